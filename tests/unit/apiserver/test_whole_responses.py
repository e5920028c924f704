"""The head of an answer goes out with its body, and never waits for one that does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from livesize.apiserver.http.responses import PIECE_BYTES, Response, send_answer
from livesize.apiserver.http.whole_responses import LARGE_BYTES, WholeResponses

Application = Callable[[Any, Any, Any], Awaitable[None]]


class Recorded(asyncio.Transport):
    """Remembers each write by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def answering(body: bytes) -> Application:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send_answer(send, Response(200, body))

    return application


async def written(application: Application, request: bytes) -> list[bytes]:
    config = uvicorn.Config(application, http=WholeResponses, lifespan="off", log_config=None)
    protocol = WholeResponses(config, ServerState(), {})
    transport = Recorded()
    protocol.connection_made(transport)
    protocol.data_received(request)
    tasks = list(protocol.tasks)
    assert tasks
    await asyncio.wait(tasks)
    protocol.connection_lost(None)
    return transport.writes


async def test_a_small_answer_is_one_write() -> None:
    (whole,) = await written(answering(b"{}"), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert whole.startswith(b"HTTP/1.1 200")
    assert whole.endswith(b"\r\n\r\n{}")


async def test_the_answer_to_head_does_not_wait_for_a_body() -> None:
    writes = await written(answering(b"{}"), b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"".join(writes).endswith(b"\r\n\r\n")


async def test_a_stream_begins_at_once() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"line\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    writes = await written(application, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert writes[0].endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert writes[1] == b"5\r\nline\n\r\n"


async def test_continue_is_said_before_the_body_is_read() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send_answer(send, Response(200, b"{}"))

    head = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    writes = await written(application, head + b"{}")
    assert writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert len(writes) == 2


async def test_the_head_of_an_answer_that_breaks_off_is_sent() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("a bug")

    writes = await written(application, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"".join(writes).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "size",
    [0, 1, LARGE_BYTES, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES],
)
async def test_a_body_of_any_size_arrives_whole(size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    writes = await written(answering(body), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, rest = b"".join(writes).partition(b"\r\n\r\n")
    assert b"content-length: %d" % size in head
    assert rest == body
    assert max(map(len, writes)) <= PIECE_BYTES + LARGE_BYTES
