"""Starts, watches, restarts and stops child processes; signals only what it started itself.

The two sides of it:

- the parent runs ``Supervisor(spec, clock=..., backoff=...).run()`` in a task group. It starts the
  child, waits until it is ready, starts it again with a growing pause when it dies, and ends it
  (SIGTERM, after the grace SIGKILL) on ``stop()`` or when cancelled;
- the child may call ``tell_ready()`` once it serves, and awaits ``wait_lifeline()``, which returns
  when the parent has died, however it died, so that no child outlives its parent unawares.

    starting ──ready──► up ──dies──► pause ──► starting
        └──dies, or not ready in time──► pause
    any ──stop()──► SIGTERM ──grace──► SIGKILL ──► ended

Waiting costs nothing: an exit is seen through a pidfd, which also makes it impossible to signal
another process that got the same pid. Output goes straight into the log file, not through a pipe,
so a busy parent never holds up its child, and the last lines of both survive a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.steps import Backoff

LIFELINE = "LIVESIZE_LIFELINE"
_READY_WORD = b"ready\n"


class ChildSpec(msgspec.Struct, frozen=True):
    """What to start. ``env`` is the whole environment; ``user`` and ``group`` need root."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: Path
    pass_fds: tuple[int, ...] = ()  # open files it inherits, under the same numbers
    user: int | None = None
    group: int | None = None
    working_dir: Path = Path("/")
    log_cap_bytes: int = 16 << 20  # the one before is kept beside it, as NAME.1
    log_check_seconds: float = 30.0
    ready_timeout_seconds: float = 30.0
    stop_grace_seconds: float = 10.0
    stable_after_seconds: float = 10.0  # up for that long: earlier failures are forgotten
    give_up_after: int | None = None  # failures in a row; None: never


class ChildStarted(msgspec.Struct, frozen=True, tag=True):
    name: str
    pid: int


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    name: str
    pid: int
    seconds: float


class ChildFailed(msgspec.Struct, frozen=True, tag=True):
    """It died, or did not start, or was not ready in time; it starts again after the pause."""

    name: str
    why: str
    failures: int
    pause_seconds: float


class ChildStopped(msgspec.Struct, frozen=True, tag=True):
    """It ended because it was told to."""

    name: str
    pid: int
    killed: bool


ChildEvent: TypeAlias = ChildStarted | ChildReady | ChildFailed | ChildStopped


class ChildFailedError(Exception):
    """A child could not be kept running; the sentence says why, and where its log is."""


class Child:
    """One running process, from its start to its end."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._lifeline = lifeline
        # Ours until we reap it, so the pid cannot have been given to somebody else yet.
        self._pidfd = os.pidfd_open(process.pid)
        self._exited = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    def describe_exit(self) -> str:
        assert self.status is not None
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    async def wait(self) -> None:
        await self._exited.wait()

    def send(self, number: signal.Signals) -> None:
        """Harmless when it has ended."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def told_ready(self) -> None:
        """Return when the child has called ``tell_ready``, or has ended without."""
        loop = asyncio.get_running_loop()
        heard = b""
        while not heard.endswith(_READY_WORD):
            more = await loop.sock_recv(self._lifeline, 64)
            if not more:
                await self.wait()  # it is on its way out; how it went says more
                return
            heard += more

    def close(self) -> None:
        """Let go of an ended child."""
        assert self.status is not None
        self._lifeline.close()

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._process.wait()
        self._exited.set()


Readiness: TypeAlias = Callable[[Child], Awaitable[None]]


async def told_ready(child: Child) -> None:
    """The readiness of children that speak our protocol."""
    await child.told_ready()


def _ignore(_event: ChildEvent) -> None:
    pass


class Supervisor:
    """Keeps one child running until told otherwise.

    ``ready`` returns when the child can be used; OSError (TimeoutError, ConnectionError among
    them) means it will not be, and the child is started anew. None: ready once started.
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        clock: Clock,
        backoff: Backoff,
        ready: Readiness | None = None,
        on_event: Callable[[ChildEvent], None] = _ignore,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._backoff = backoff
        self._readiness = ready
        self._on_event = on_event
        self._stop_requested = asyncio.Event()
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def stop(self) -> None:
        """Ask ``run`` to end the child and return."""
        self._stop_requested.set()

    async def wait_ready(self) -> None:
        """Return when the child can be used; ChildFailedError if it never will be."""
        if await _first_of(ready=self._ready.wait(), over=self._over.wait()) == "over":
            raise ChildFailedError(f"{self._spec.name} was stopped or given up; {self._see_log()}")

    async def run(self) -> None:
        """Return after ``stop``; raise ChildFailedError after too many failures in a row."""
        failures = 0
        try:
            while not self._stop_requested.is_set():
                began = self._clock.monotonic()
                why = await self._run_once()
                if why is None:
                    return
                lasted = self._clock.monotonic() - began
                failures = 1 if lasted >= self._spec.stable_after_seconds else failures + 1
                await self._pause(why, failures)
        finally:
            self._over.set()

    async def _pause(self, why: str, failures: int) -> None:
        limit = self._spec.give_up_after
        if limit is not None and failures >= limit:
            raise ChildFailedError(
                f"{self._spec.name} failed {failures} times in a row, last: {why};"
                f" {self._see_log()}"
            )
        pause = self._backoff.seconds(failures)
        self._on_event(ChildFailed(self._spec.name, why, failures, pause))
        await _first_of(stop=self._stop_requested.wait(), pause=self._clock.sleep(pause))

    def _see_log(self) -> str:
        return f"see {self._spec.log_path}"

    async def _run_once(self) -> str | None:
        """Start it and see it through; None when it was stopped, else why it ended."""
        _cap_log(self._spec.log_path, self._spec.log_cap_bytes)
        try:
            child = start_child(self._spec)
        except OSError as failure:
            return f"could not be started: {failure}"
        self._child = child
        self._on_event(ChildStarted(self._spec.name, child.pid))
        try:
            return await self._watch(child)
        finally:
            self._ready.clear()
            await self._end(child)
            child.close()
            self._child = None

    async def _watch(self, child: Child) -> str | None:
        began = self._clock.monotonic()
        why = await self._until_ready(child)
        if why is not None or self._stop_requested.is_set():
            return why
        self._ready.set()
        seconds = self._clock.monotonic() - began
        self._on_event(ChildReady(self._spec.name, child.pid, seconds))
        first = await _first_of(
            exited=child.wait(), stop=self._stop_requested.wait(), log=self._keep_log_small()
        )
        return None if first == "stop" else child.describe_exit()

    async def _until_ready(self, child: Child) -> str | None:
        if self._readiness is None:
            return None
        refusals: list[str] = []
        timeout_seconds = self._spec.ready_timeout_seconds
        first = await _first_of(
            exited=child.wait(),
            stop=self._stop_requested.wait(),
            late=self._clock.sleep(timeout_seconds),
            ready=_note_refusal(self._readiness(child), refusals),
        )
        if first == "late":
            return f"not ready after {timeout_seconds:g} s"
        if child.status is not None and first != "stop":
            return child.describe_exit()
        return f"never got ready: {refusals[0]}" if refusals else None

    async def _keep_log_small(self) -> None:
        while True:
            await self._clock.sleep(self._spec.log_check_seconds)
            _cap_log(self._spec.log_path, self._spec.log_cap_bytes)

    async def _end(self, child: Child) -> None:
        """SIGTERM, after the grace SIGKILL; also when our own task is being cancelled."""
        if child.status is not None:
            return
        killed = False
        try:
            child.send(signal.SIGTERM)
            grace = self._clock.sleep(self._spec.stop_grace_seconds)
            killed = await _first_of(exited=child.wait(), grace=grace) == "grace"
        finally:
            if child.status is None:
                child.send(signal.SIGKILL)
                await child.wait()
        self._on_event(ChildStopped(self._spec.name, child.pid, killed))


def start_child(spec: ChildSpec) -> Child:
    """Start it now, in a session of its own, so that Ctrl-C reaches only the parent."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    log = _open_log(spec.log_path)
    try:
        process = subprocess.Popen(
            spec.argv,
            env={**spec.env, LIFELINE: str(theirs.fileno())},
            cwd=spec.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs.fileno(), *spec.pass_fds),
            start_new_session=True,
            user=spec.user,
            group=spec.group,
            extra_groups=None if spec.user is None else (),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(log)
    return Child(process, ours)


def tell_ready() -> None:
    """Called by a child: it can be used now. Harmless in a process started by hand."""
    number = os.environ.get(LIFELINE, "")
    if number:
        with contextlib.suppress(BrokenPipeError):
            os.write(int(number), _READY_WORD)


async def wait_lifeline() -> None:
    """Called by a child: return when the parent has died. Started by hand, it never returns."""
    number = os.environ.get(LIFELINE, "")
    parent_gone = asyncio.Event()
    if not number:
        await parent_gone.wait()
    lifeline = int(number)
    os.set_inheritable(lifeline, False)  # the child's own children have no use for it
    loop = asyncio.get_running_loop()
    # The parent never writes, so anything to read is the end of file.
    loop.add_reader(lifeline, parent_gone.set)
    try:
        await parent_gone.wait()
    finally:
        loop.remove_reader(lifeline)


async def _note_refusal(readiness: Awaitable[None], refusals: list[str]) -> None:
    try:
        await readiness
    except OSError as failure:
        refusals.append(str(failure) or type(failure).__name__)


async def _first_of(**waits: Coroutine[Any, Any, object]) -> str:
    """The name of the wait that ended first, in the order given; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(wait) for name, wait in waits.items()}
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        first = next(name for name, task in tasks.items() if task.done())
        for task in tasks.values():
            task.cancel()
    return first


def _open_log(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def _cap_log(path: Path, cap_bytes: int) -> None:
    """Move a log that has grown too big to NAME.1, keeping the file its writer has open.

    The writer appends, so after the truncation it goes on at the start. What it writes between
    copy and truncation is lost: a few lines, once in a cap's worth.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size <= cap_bytes:
        return
    with path.open("rb") as log, path.with_name(path.name + ".1").open("wb") as kept:
        log.seek(size - cap_bytes)
        while chunk := log.read(1 << 20):
            kept.write(chunk)
    os.truncate(path, 0)
