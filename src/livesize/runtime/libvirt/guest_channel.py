"""The host's end of the line on which a guest says what it sees (runtime/guest/vm_guest.py).

The guest is not trusted: a line that is too long or makes no sense is dropped. Reports come as
answers and unasked; both are handed on. Belongs to the event loop and never blocks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

_CHUNK_BYTES = 65536
_LINE_BYTES = 65536


class GuestReport(msgspec.Struct, frozen=True, rename="camel"):
    id: int
    online: str
    mem_total: int  # KiB, as the other amounts
    available: int
    uptime: float
    boot_id: str
    nodes: dict[str, int] = {}


class GuestChannel:
    """``on_report`` is called for every report; ``on_close`` once, when QEMU has closed it."""

    def __init__(
        self, on_report: Callable[[GuestReport], None], on_close: Callable[[], None]
    ) -> None:
        self.is_silent = False  # asked last, it did not answer in time
        self.last: GuestReport | None = None
        self._on_report = on_report
        self._on_close = on_close
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[GuestReport]] = {}

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
        asyncio.get_running_loop().add_reader(connection.fileno(), self._readable)

    def close(self) -> None:
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
        """A fresh report; None where none came in time."""
        if self._socket is None:
            return None
        self._asked += 1
        number = self._asked
        future: asyncio.Future[GuestReport] = asyncio.get_running_loop().create_future()
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
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                self._heard(msgspec.json.decode(line, type=GuestReport))

    def _heard(self, report: GuestReport) -> None:
        self.is_silent = False
        self.last = report
        future = self._waiting.pop(report.id, None)
        if future is not None and not future.done():
            future.set_result(report)
        self._on_report(report)
