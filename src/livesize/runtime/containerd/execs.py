"""Ends what runs in a container for somebody who has left: containerd itself lets it go on.

CRI says nothing of the process that an Exec starts, but containerd tells of each start, with its
process. So sessions of one container begin one after the other, and the start that is told next is
the session's. While commands of our own run in the same container (probes, hooks), a start counts
as the session's only if it runs the session's words. A process is kept by descriptor: its number
may come to belong to another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.runtime.streams import Output, Session

START_SECONDS = 5.0
"""So long the next session of a container waits to hear of the start of the one before."""
END_SECONDS = 1.0
_BECOMING_DELAYS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)


class CriExecSession:
    """A session, and the process behind it as soon as that is known."""

    def __init__(self, session: Session, start: _Start) -> None:
        self._session = session
        self._start = start
        self._ended = False

    def output(self) -> AsyncIterator[Output]:
        return self._session.output()

    async def write(self, data: bytes) -> None:
        await self._session.write(data)

    async def end_input(self) -> None:
        await self._session.end_input()

    def resize(self, width: int, height: int) -> None:
        self._session.resize(width, height)

    async def exit_code(self) -> int:
        code = await self._session.exit_code()
        self._ended = True
        return code

    async def close(self) -> None:
        try:
            await self._session.close()
            if not self._ended:
                await self._start.end()
        finally:
            self._start.forget()


class _Start:
    """One start that was asked for. ``settled``: it has happened, or never will."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._pid = 0
        self._descriptor = -1
        self._forgotten = False
        self.settled = asyncio.Event()

    def is_of(self, words: list[bytes]) -> bool:
        """Whether a process with these words is this one; a script is run by its interpreter."""
        asked = [word.encode() for word in self._command]
        return words == asked or words[-len(asked) :][1:] == asked[1:] != []

    def happened(self, pid: int) -> None:
        with contextlib.suppress(OSError):  # it may have ended already
            if not self._forgotten:
                self._descriptor, self._pid = os.pidfd_open(pid), pid
        self.settled.set()

    async def end(self) -> None:
        await self.wait_settled(END_SECONDS)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._descriptor < 0 or await self._is_over(0):
                return
            self._send(number)
            if await self._is_over(END_SECONDS):
                return

    def forget(self) -> None:
        self._forgotten = True
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    async def wait_settled(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.settled.wait()

    def _send(self, number: signal.Signals) -> None:
        """To it and to what it has started, which is of its group unless it has left it. Without
        root some users of a container are out of reach."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self._pid) == self._pid:
                os.killpg(self._pid, number)
            else:
                signal.pidfd_send_signal(self._descriptor, number)

    async def _is_over(self, seconds: float) -> bool:
        """A descriptor of a process can be read once it has ended."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, over.set)
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await over.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._descriptor)
        return True


class Execs:
    """The sessions of all containers, by container id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._starts: dict[str, _Start] = {}
        self._own: dict[str, int] = {}

    async def begin(
        self, container_id: str, command: tuple[str, ...], opened: Callable[[], Awaitable[Session]]
    ) -> CriExecSession:
        """The session that ``opened`` opens; when it is closed, what it began is ended."""
        while (before := self._starts.get(container_id)) is not None:
            await before.wait_settled(START_SECONDS)
            before.settled.set()
            if self._starts.get(container_id) is before:
                del self._starts[container_id]
        start = self._starts[container_id] = _Start(command)
        try:
            return CriExecSession(await opened(), start)
        except BaseException:
            self._drop(container_id, start)
            raise

    @contextlib.contextmanager
    def own_command(self, container_id: str) -> Iterator[None]:
        """While it runs, not every start in the container is a session's."""
        self._own[container_id] = self._own.get(container_id, 0) + 1
        try:
            yield
        finally:
            self._own[container_id] -= 1
            if not self._own[container_id]:
                del self._own[container_id]

    async def started(self, container_id: str, pid: int) -> None:
        """containerd has started a process beside the container's first."""
        if container_id not in self._starts:
            return
        words = await self._words(pid) if container_id in self._own else None
        start = self._starts.get(container_id)
        if start is None or (words is not None and not start.is_of(words)):
            return
        del self._starts[container_id]
        start.happened(pid)

    async def _words(self, pid: int) -> list[bytes]:
        """What the process runs, once it has become what it was started for."""
        words: list[bytes] = []
        for delay_seconds in _BECOMING_DELAYS:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
            if words and words[1:] != [b"init"]:  # of runc
                break
            await self._clock.sleep(delay_seconds)
        return words

    def _drop(self, container_id: str, start: _Start) -> None:
        start.forget()
        start.settled.set()
        if self._starts.get(container_id) is start:
            del self._starts[container_id]
