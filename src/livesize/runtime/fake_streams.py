"""Logs and sessions of the machine in memory (fake.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from livesize.runtime.streams import STDOUT, LogLine, LogQuery, Output

ECHO = ("cat",)
"""The one command that reads: it writes what it is given, until that ends."""


class FakeSession:
    """A command that writes ``text`` and ends with ``code``; None: when it is let go."""

    def __init__(self, command: tuple[str, ...], text: str, code: int | None) -> None:
        self.size: tuple[int, int] | None = None
        self._code = code
        self._ended = asyncio.Event()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._echoes = command == ECHO
        if text:
            self._pieces.put_nowait(text.encode())
        if code is not None and not self._echoes:
            self._end()

    async def output(self) -> AsyncIterator[Output]:
        while piece := await self._pieces.get():
            yield Output(STDOUT, piece)

    async def write(self, data: bytes) -> None:
        if self._echoes and data and not self._ended.is_set():
            self._pieces.put_nowait(data)

    async def end_input(self) -> None:
        if self._echoes:
            self._end()

    def resize(self, width: int, height: int) -> None:
        self.size = (width, height)

    async def exit_code(self) -> int:
        await self._ended.wait()
        return self._code or 0

    async def close(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._pieces.put_nowait(b"")


def fake_lines(text: str, time: float, query: LogQuery) -> list[LogLine]:
    """What ``text``, written at ``time``, has for the query."""
    if query.since is not None and query.since > time:
        return []
    lines = [LogLine(int(time * 1e9), one) for one in text.encode().splitlines(keepends=True)]
    kept = len(lines) if query.tail_lines is None else query.tail_lines
    return lines[max(len(lines) - kept, 0) :]
