"""What is asked of a running container beside its life and its sizes: logs, a shell, a port.

A session is a process run beside the container's first (exec), or that first process itself
(attach). The caller that opens one closes it, however it went; what it has not read is bounded by
the pipes below it, so a slow reader slows the process and fills no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from livesize.runtime.interface import GoneError, RuntimeCallError

STDOUT, STDERR = 1, 2
CONTAINER_LOG_MAX_BYTES = 10 * 1024 * 1024
CONTAINER_LOG_MAX_FILES = 5


class NotRunningError(RuntimeCallError):
    """The container is known, and nothing runs in it."""


class NoLogError(GoneError):
    """There is no log of that start: it never was, or has been removed."""


class ExecRequest(msgspec.Struct, frozen=True):
    """With a terminal there is one output, and a stdin whether it is used or not."""

    pod_uid: str
    container: str
    command: tuple[str, ...]
    stdin: bool = False
    tty: bool = False


class AttachRequest(msgspec.Struct, frozen=True):
    """``stdin`` and ``tty`` only where the container was started with them."""

    pod_uid: str
    container: str
    stdin: bool = False
    tty: bool = False


class Output(NamedTuple):
    stream: int  # STDOUT or STDERR
    data: bytes


class Session(Protocol):
    def output(self) -> AsyncIterator[Output]:
        """What it writes, until it has closed all it writes to."""
        ...

    async def write(self, data: bytes) -> None:
        """To its stdin; waits while that is full. What nobody reads any more is dropped."""
        ...

    async def end_input(self) -> None:
        """Its stdin ends here."""
        ...

    def resize(self, width: int, height: int) -> None:
        """Its terminal has this size now."""
        ...

    async def exit_code(self) -> int:
        """Wait for its end; 128 and the signal where one ended it."""
        ...

    async def close(self) -> None:
        """Let go: an exec that still runs loses its stdin and its terminal, and is ended."""
        ...


class LogQuery(msgspec.Struct, frozen=True):
    """Which part of a container's log. ``since`` is in seconds since the epoch."""

    pod_uid: str
    container: str
    previous: bool = False
    follow: bool = False
    since: float | None = None
    tail_lines: int | None = None


class LogLine(NamedTuple):
    """A line with its end, or the beginning of one that was cut; when it came."""

    time_ns: int
    data: bytes


class LogLimits(msgspec.Struct, frozen=True):
    """A container's log is kept in at most so many parts of at most so many bytes."""

    max_bytes: int = CONTAINER_LOG_MAX_BYTES
    max_files: int = CONTAINER_LOG_MAX_FILES


LogLines: TypeAlias = AsyncGenerator[Sequence[LogLine], None]
"""First comes an empty one, as soon as it is known that there is a log."""
PortStreams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
