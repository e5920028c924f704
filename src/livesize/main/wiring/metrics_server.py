"""Serves what was counted, for processes that have no API server: GET /metrics over plain HTTP.

One answer for each connection. The text has names and numbers of this process only, no objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livesize.machinery.exposition import Family

_READ_SECONDS = 5.0
_LONGEST_HEAD_BYTES = 8192


@contextlib.asynccontextmanager
async def metrics_server(
    listener: socket.socket | None, families: Callable[[], Iterable[Family]]
) -> AsyncIterator[None]:
    """Serve on ``listener`` until left; without one, serve nothing."""
    if listener is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head.split(b" ", 2)[:2], families))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, sock=listener, limit=_LONGEST_HEAD_BYTES):
        yield


def _response(request: list[bytes], families: Callable[[], Iterable[Family]]) -> bytes:
    if request != [b"GET", b"/metrics"]:
        return _encode("404 Not Found", b"GET /metrics is all there is\n")
    from livesize.machinery.exposition import exposition

    return _encode("200 OK", exposition(families()))


def _encode(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
