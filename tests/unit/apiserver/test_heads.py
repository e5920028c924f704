"""How long a head may take: bytes that trickle in do not prolong it. The timers are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from livesize.apiserver.http.heads import (
    HEAD_SECONDS,
    LINGER_SECONDS,
    MAX_MESSAGE_BYTES,
    BoundedHeads,
)
from livesize.apiserver.http.responses import Response, send_answer

IDLE_SECONDS = 75
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


class Timer:
    def __init__(self, seconds: float, fire: Callable[[], None]) -> None:
        self.seconds = seconds
        self.fire = fire
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """The loop of a protocol: tasks run, timers wait."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, fire: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, fire))
        return self.timers[-1]

    def create_task(self, running: Any) -> Any:
        return asyncio.get_running_loop().create_task(running)

    @property
    def running(self) -> list[float]:
        return [one.seconds for one in self.timers if not one.cancelled]


class Connection(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send_answer(send, Response(200, b"{}"))


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.get_running_loop().create_future()


def opened(application: Any = answer) -> tuple[BoundedHeads, Timers, Connection]:
    config = uvicorn.Config(
        application, lifespan="off", log_config=None, timeout_keep_alive=IDLE_SECONDS
    )
    timers, connection = Timers(), Connection()
    protocol = BoundedHeads(config, ServerState(), {}, timers)  # type: ignore[arg-type]
    protocol.connection_made(connection)
    return protocol, timers, connection


async def test_a_first_head_has_its_time_however_it_trickles_in() -> None:
    protocol, timers, connection = opened()
    for byte in GET:
        protocol.data_received(bytes([byte]))
    assert timers.running == [HEAD_SECONDS]
    timers.timers[0].fire()
    assert connection.ended == "closed"


async def test_a_request_ends_the_time_and_its_answer_begins_another() -> None:
    protocol, timers, connection = opened()
    protocol.data_received(GET + b"\r\n")
    assert timers.running == []
    await asyncio.wait(protocol.tasks)
    assert timers.running == [IDLE_SECONDS]
    protocol.data_received(GET)
    assert timers.running == [IDLE_SECONDS]
    assert not connection.ended


async def test_a_body_that_comes_after_the_answer_is_not_read_for_long() -> None:
    protocol, timers, connection = opened()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    await asyncio.wait(protocol.tasks)
    assert timers.running == [LINGER_SECONDS]
    protocol.data_received(b"12345678")
    assert timers.running == [LINGER_SECONDS]
    timers.timers[-1].fire()
    assert connection.ended == "aborted"


async def test_a_body_that_comes_soon_after_the_answer_keeps_the_connection() -> None:
    protocol, timers, _ = opened()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    await asyncio.wait(protocol.tasks)
    protocol.data_received(b"123456789")
    assert timers.running == [IDLE_SECONDS]


async def test_what_comes_with_a_body_has_an_end_too() -> None:
    """Chunks' marks and headers after the body are no body, whose length the application limits."""
    protocol, _, connection = opened(waiting)
    protocol.data_received(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-After: "
    )
    for _ in range(MAX_MESSAGE_BYTES // 65536):
        assert not connection.ended
        protocol.data_received(b"a" * 65536)
    assert connection.ended == "aborted"
    for task in protocol.tasks:
        task.cancel()
