"""Writes a container's log as an answer: with times, from a moment on, the last lines, so much."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence

from aiohttp import web

from livesize.runtime.streams import LogLine, LogLines


def format_time_ns(time_ns: int) -> str:
    """As Kubernetes writes the time of a line: RFC 3339 with nanoseconds."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def format_lines(lines: Sequence[LogLine], *, timestamps: bool) -> bytes:
    if not timestamps:
        return b"".join(line.data for line in lines)
    return b"".join(format_time_ns(line.time_ns).encode() + b" " + line.data for line in lines)


async def send_log(
    request: web.BaseRequest, lines: LogLines, *, timestamps: bool, limit_bytes: int | None
) -> web.StreamResponse:
    """The answer begins once it is known that there is a log; before, it is a refusal."""
    async with contextlib.aclosing(lines):
        await anext(lines)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = limit_bytes
        async for several in lines:
            left = await _write(response, format_lines(several, timestamps=timestamps), left)
            if left == 0:
                break
        await response.write_eof()
    return response


async def _write(response: web.StreamResponse, data: bytes, left: int | None) -> int | None:
    """How much may still be written; None: whatever there is."""
    if left is not None:
        data = data[:left]
        left -= len(data)
    if data:
        await response.write(data)
    return left
