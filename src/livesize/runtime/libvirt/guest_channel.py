"""The host's end of the line on which a guest says what it sees (guest_images/vm_guest.py).

The guest is not trusted: a line that is too long or makes no sense is dropped, and so is a report
that its domain cannot have (guest_bounds.py). A guest that says more than it can have to say is not
listened to for the rest of the second; the kernel then holds it up. Reports come as answers and
unasked; both are handed on. Belongs to the event loop and never blocks it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.runtime.libvirt.guest_bounds import (
    GuestLimits,
    GuestReport,
    ImplausibleReportError,
    check_report,
    shown,
)

_CHUNK_BYTES = 16384
_LINE_BYTES = 16384  # a report of a guest with every CPU and node takes an eighth of it
_LINES_PER_SECOND = 500  # it speaks when a vCPU or a block of memory comes or goes
_MOST_CHUNKS = 1000  # of a second: one report may come in many


class GuestChannel:
    """``on_report`` is called for every report; ``on_dropped`` with the sentence why for one that
    is not believed; ``on_close`` once, when QEMU has closed it."""

    def __init__(
        self,
        limits: GuestLimits,
        on_report: Callable[[GuestReport], None],
        on_close: Callable[[], None],
        on_dropped: Callable[[str], None],
    ) -> None:
        self.is_silent = False  # asked last, it did not answer in time
        self.last: GuestReport | None = None
        self._limits = limits
        self._on_report = on_report
        self._on_close = on_close
        self._on_dropped = on_dropped
        self._second = _Second()
        self._listens_again: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._reports_requested = 0
        self._waiting: dict[int, asyncio.Future[GuestReport | None]] = {}

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self, path: Path) -> None:
        """Connect to QEMU's end. A guest that still boots answers when it can. OSError: nobody
        is there."""
        self.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:  # by the folder's descriptor: a socket's path may have 107 characters only
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(folder)
        self._socket = connection
        self._listen()

    def close(self) -> None:
        if self._listens_again is not None:
            self._listens_again.cancel()
            self._listens_again = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._buffer = b""
        self.last = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()

    async def ask(self, timeout_seconds: float) -> GuestReport | None:
        """A fresh report; None where none came in time, or one that is not believed."""
        if self._socket is None:
            return None
        self._reports_requested += 1
        number = self._reports_requested
        future: asyncio.Future[GuestReport | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._socket.send(b"report %d\n" % number)
            async with asyncio.timeout(timeout_seconds):
                # A closed channel cancels the future, not the task that waits for it.
                await asyncio.wait((future,))
            return None if future.cancelled() else future.result()
        except (TimeoutError, OSError):
            self.is_silent = True
            return None
        finally:
            self._waiting.pop(number, None)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            content = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self.close()
            self._on_close()
            return
        *lines, self._buffer = (self._buffer + content).split(b"\n")
        if len(self._buffer) > _LINE_BYTES:
            self._buffer = b""
            self._on_dropped(f"it says more than {_LINE_BYTES} bytes in one line")
        for line in lines:
            self._take(line)
        if self._second.is_full(asyncio.get_running_loop().time(), len(lines)):
            self._on_dropped("it says more than it can have to say, and is not heard for a second")
            self._pause()

    def _take(self, line: bytes) -> None:
        if not line or self._socket is None:
            return
        try:
            report = msgspec.json.decode(line, type=GuestReport)
        except (msgspec.MsgspecError, RecursionError):
            self._on_dropped(f"it says {shown(line[:100].decode(errors='replace'))}")
            return
        try:
            check_report(report, self._limits)
        except ImplausibleReportError as unfit:
            self._answer(report.id, None)
            self._on_dropped(str(unfit))
        else:
            self.last = report
            self._answer(report.id, report)
            self._on_report(report)

    def _answer(self, number: int, report: GuestReport | None) -> None:
        self.is_silent = False
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(report)

    def _listen(self) -> None:
        self._listens_again = None
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def _pause(self) -> None:
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        self._listens_again = loop.call_later(1.0, self._listen)


class _Second:
    """Counts what is heard in one second."""

    def __init__(self) -> None:
        self._began = 0.0
        self._chunks = self._lines = 0

    def is_full(self, now: float, lines: int) -> bool:
        """With one more piece of so many lines."""
        if now - self._began >= 1.0:
            self._began, self._chunks, self._lines = now, 0, 0
        self._chunks += 1
        self._lines += lines
        return self._lines > _LINES_PER_SECOND or self._chunks > _MOST_CHUNKS
