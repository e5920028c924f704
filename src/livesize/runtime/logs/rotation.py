"""Rotates the logs that workloads write by themselves, and says when one has grown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.logs.file_watch import FileWatch
from livesize.runtime.logs.raw import Growth, shorten, times_path
from livesize.runtime.logs.times import LogTimes, note
from livesize.runtime.streams import LogLimits

_log = get_logger("runtime.logs")

CUT_SECONDS = 1.0
"""So long a log may be too long: who follows it has read it by then."""
_LOOK_SECONDS = 1.0
"""Where the kernel does not say that a log grew, it is looked at this often while followed."""


class LogRotation:
    def __init__(self, clock: Clock, limits: LogLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._watch: FileWatch | None = None
        self._noted: dict[Path, int] = {}  # up to where times are known
        self._starts: dict[Path, int] = {}
        self._cutting: dict[Path, asyncio.TimerHandle] = {}
        self._ended: set[Path] = set()  # those that are cut once more
        self._waiting: dict[Path, set[asyncio.Future[None]]] = {}

    def open(self) -> None:
        self._watch = FileWatch(self._grew)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for cutting in self._cutting.values():
            cutting.cancel()
        for path in list(self._waiting):
            self._wake(path)

    def begin(self, log: Path) -> None:
        """It is being written from now on, or was written while nobody looked."""
        if self._watch is None or not log.exists():
            return
        self._ended.discard(log)
        times = LogTimes(times_path(log))
        self._noted[log], self._starts[log] = times.end, times.start
        self._note(log, log.stat().st_mtime_ns)
        self._watch.add(log)

    def end(self, log: Path) -> None:
        """Nobody writes it any more."""
        if self._watch is not None:
            self._watch.drop(log)
        self._grew(log)
        if log in self._cutting:
            self._ended.add(log)
        else:
            self._forget(log)
        self._wake(log)

    def following(self, log: Path, is_live: Callable[[], bool]) -> Growth:
        """How to wait for more of it."""

        async def grown() -> None:
            if not is_live():
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(log, set()).add(waiter)
            try:
                # Bounded: where the kernel watches no more files, nobody tells.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await waiter
            finally:
                self._waiting.get(log, set()).discard(waiter)

        return Growth(is_live, grown)

    def _grew(self, log: Path) -> None:
        if log in self._noted:
            try:
                self._note(log, int(self._clock.now() * 1e9))
            except FileNotFoundError:
                self._forget(log)  # the pod is being removed
            else:
                self._consider_cutting(log)
        self._wake(log)

    def _note(self, log: Path, time_ns: int) -> None:
        size = log.stat().st_size
        if size < self._noted[log]:  # the workload has emptied it: it was opened anew, as a file
            times_path(log).unlink(missing_ok=True)
            self._noted[log] = self._starts[log] = 0
        if size > self._noted[log]:
            note(times_path(log), size, time_ns)
        self._noted[log] = size

    def _consider_cutting(self, log: Path) -> None:
        held = self._noted[log] - self._starts[log]
        if held > self._limits.max_bytes * self._limits.max_files and log not in self._cutting:
            loop = asyncio.get_running_loop()
            self._cutting[log] = loop.call_later(CUT_SECONDS, self._cut, log)

    def _cut(self, log: Path) -> None:
        """Once a second at most, however fast it grows."""
        self._cutting.pop(log, None)
        if log not in self._noted:
            return
        try:
            start = shorten(log, self._noted[log], self._limits)
        except FileNotFoundError:
            self._forget(log)  # the pod was removed
            return
        except OSError as failure:
            _log.warning("log not shortened", log=str(log), reason=str(failure))
            return
        self._starts[log] = start
        if not start:
            self._noted[log] = 0
        if log in self._ended:
            self._forget(log)

    def _forget(self, log: Path) -> None:
        self._ended.discard(log)
        self._noted.pop(log, None)
        self._starts.pop(log, None)

    def _wake(self, log: Path) -> None:
        for waiter in self._waiting.pop(log, set()):
            if not waiter.done():
                waiter.set_result(None)
