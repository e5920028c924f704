"""Keeps files of control groups open that are read and written again and again.

The way to such a file leads through eight folders, each of which the kernel looks up anew: opening
it takes far longer than reading it. A file of a group that is gone answers ENODEV even if a new
group has its name, so it is opened anew then, and whoever asks learns the truth.
"""

from __future__ import annotations

import errno
import os
import threading

from livesize.runtime.cgroups.files import call_failed

LIMIT = 192
"""Of each way, reading and writing: together well below the 1,024 a process may have open."""
_READ_BYTES = 4096


class GroupFileCache:
    """Safe to use from several threads: a file that is let go of while another thread uses it is
    closed when that thread is done with it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._reading = _OpenFiles(os.O_RDONLY, limit)
        self._writing = _OpenFiles(os.O_WRONLY | os.O_TRUNC, limit)

    def read_number(self, path: str) -> int:
        return int(self._read(path))

    def read_text(self, path: str) -> str:
        """A file of one record, which the kernel hands over in one piece."""
        return self._read(path).decode().strip()

    def write_text(self, path: str, value: str) -> None:
        try:
            self.write_raw(path, value)
        except OSError as failure:
            raise call_failed(f"write {value} to", path, failure) from failure

    def write_raw(self, path: str, value: str) -> None:
        """Write and let the OSError out, for callers that know what it means."""
        content = value.encode()
        try:
            self._writing.open(path).write(content)
        except OSError as failure:
            if failure.errno != errno.ENODEV:
                raise
            self._writing.open_anew(path).write(content)

    def forget(self, group: str) -> None:
        """Let go of what is in this folder."""
        for kept in (self._reading, self._writing):
            kept.forget(f"{group}/")

    def _read(self, path: str) -> bytes:
        try:
            try:
                return self._reading.open(path).read()
            except OSError as failure:
                if failure.errno != errno.ENODEV:
                    raise
                return self._reading.open_anew(path).read()
        except OSError as failure:
            raise call_failed("read", path, failure) from failure


class _Open:
    """Closed when nobody holds it any more."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, flags | os.O_CLOEXEC)

    def read(self) -> bytes:
        return os.pread(self._descriptor, _READ_BYTES, 0)

    def write(self, content: bytes) -> None:
        os.pwrite(self._descriptor, content, 0)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class _OpenFiles:
    """The files opened last; the oldest makes room."""

    def __init__(self, flags: int, limit: int) -> None:
        self._flags = flags
        self._limit = limit
        self._files: dict[str, _Open] = {}
        self._changing = threading.Lock()

    def open(self, path: str) -> _Open:
        return self._files.get(path) or self.open_anew(path)

    def open_anew(self, path: str) -> _Open:
        file = _Open(path, self._flags)
        with self._changing:
            self._files.pop(path, None)
            self._files[path] = file
            if len(self._files) > self._limit:
                del self._files[next(iter(self._files))]
        return file

    def forget(self, prefix: str) -> None:
        with self._changing:
            for path in [path for path in self._files if path.startswith(prefix)]:
                del self._files[path]
