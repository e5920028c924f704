"""Real small processes are started, watched, restarted and stopped; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from livesize.machinery.children import (
    Child,
    ChildEvent,
    ChildFailed,
    ChildFailedError,
    ChildReady,
    ChildSpec,
    ChildStarted,
    ChildStopped,
    Supervisor,
    told_ready,
    wait_lifeline,
)
from livesize.machinery.clock import SystemClock
from livesize.machinery.steps import Backoff

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
SLEEPER = ("sleep", "1000")
# What a child in Python says with tell_ready(); plain sh knows only descriptors below 10.
READY = "echo ready >&$LIVESIZE_LIFELINE"
READY_SLEEPER = ("bash", "-c", f"{READY}; exec sleep 1000")


class Events:
    """What the supervisor told, in order, and a way to wait for the next."""

    def __init__(self) -> None:
        self.seen: list[ChildEvent] = []
        self._queue: asyncio.Queue[ChildEvent] = asyncio.Queue()

    def __call__(self, event: ChildEvent) -> None:
        self.seen.append(event)
        self._queue.put_nowait(event)

    async def until(self, kind: type[ChildEvent]) -> ChildEvent:
        async with asyncio.timeout(5):
            while True:
                event = await self._queue.get()
                if isinstance(event, kind):
                    return event

    def kinds(self) -> list[type[ChildEvent]]:
        return [type(event) for event in self.seen]


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., ChildSpec]:
    def make(argv: tuple[str, ...], **settings: Any) -> ChildSpec:
        settings = {"stop_grace_seconds": 5.0, **settings}
        return ChildSpec("child", argv, ENVIRONMENT, tmp_path / "child.log", **settings)

    return make


def supervisor(spec: ChildSpec, events: Events, **settings: Any) -> Supervisor:
    backoff = Backoff(0.01, 0.02, random.Random(1))
    return Supervisor(spec, clock=SystemClock(), backoff=backoff, on_event=events, **settings)


@asynccontextmanager
async def running(watcher: Supervisor) -> AsyncIterator[None]:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(watcher.run())
        try:
            yield
        finally:
            watcher.stop()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_child_starts_and_stop_ends_it_with_sigterm(spec: Callable[..., ChildSpec]) -> None:
    events = Events()
    watcher = supervisor(spec(SLEEPER), events)
    async with running(watcher):
        await watcher.wait_ready()
        pid = watcher.pid
        assert pid is not None
        assert is_alive(pid)
    assert not is_alive(pid)
    assert watcher.pid is None
    assert events.kinds() == [ChildStarted, ChildReady, ChildStopped]
    assert events.seen[-1] == ChildStopped("child", pid, killed=False)


async def test_what_ignores_sigterm_is_killed_after_the_grace(
    spec: Callable[..., ChildSpec],
) -> None:
    events = Events()
    stubborn = ("bash", "-c", f"trap '' TERM; {READY}; exec sleep 1000")
    watcher = supervisor(spec(stubborn, stop_grace_seconds=0.05), events, ready=told_ready)
    async with running(watcher):
        await watcher.wait_ready()
    assert isinstance(events.seen[-1], ChildStopped)
    assert events.seen[-1].killed


async def test_a_child_that_dies_is_started_again_after_a_pause(
    spec: Callable[..., ChildSpec],
) -> None:
    events = Events()
    watcher = supervisor(spec(SLEEPER), events)
    async with running(watcher):
        await watcher.wait_ready()
        first = watcher.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        failed = await events.until(ChildFailed)
        assert isinstance(failed, ChildFailed)
        assert failed.why == "killed by SIGKILL"
        assert 0 < failed.pause_seconds <= 0.02
        await watcher.wait_ready()
        assert watcher.pid not in {None, first}


async def test_failures_in_a_row_are_counted_and_end_in_giving_up_with_the_log_named(
    spec: Callable[..., ChildSpec], tmp_path: Path
) -> None:
    events = Events()
    watcher = supervisor(spec(("sh", "-c", "echo broken >&2; exit 7"), give_up_after=3), events)
    with pytest.raises(ChildFailedError, match=r"3 times.*exit status 7.*child\.log"):
        await watcher.run()
    assert [event.failures for event in events.seen if isinstance(event, ChildFailed)] == [1, 2]
    assert (tmp_path / "child.log").read_text() == "broken\n" * 3
    with pytest.raises(ChildFailedError):
        await watcher.wait_ready()


async def test_a_program_that_does_not_exist_counts_as_a_failure(
    spec: Callable[..., ChildSpec],
) -> None:
    watcher = supervisor(spec(("/nonexistent/program",), give_up_after=1), Events())
    with pytest.raises(ChildFailedError, match=r"could not be started: .*No such file"):
        await watcher.run()


async def test_a_child_that_was_up_long_enough_starts_counting_anew(
    spec: Callable[..., ChildSpec],
) -> None:
    events = Events()
    watcher = supervisor(spec(("true",), stable_after_seconds=0.0), events)
    async with running(watcher):
        for _ in range(3):
            failed = await events.until(ChildFailed)
            assert isinstance(failed, ChildFailed)
            assert failed.failures == 1


async def test_it_is_ready_only_when_the_child_says_so(spec: Callable[..., ChildSpec]) -> None:
    events = Events()
    watcher = supervisor(spec(READY_SLEEPER), events, ready=told_ready)
    async with running(watcher):
        await watcher.wait_ready()
        assert watcher.is_ready
    assert not watcher.is_ready


@pytest.mark.parametrize(
    ("argv", "ready", "why"),
    [
        pytest.param(SLEEPER, told_ready, "not ready after 0.05 s", id="silent"),
        pytest.param(("sh", "-c", "exit 3"), told_ready, "exit status 3", id="died first"),
    ],
)
async def test_a_child_that_does_not_get_ready_is_ended_and_started_again(
    spec: Callable[..., ChildSpec], argv: tuple[str, ...], ready: Any, why: str
) -> None:
    events = Events()
    watcher = supervisor(spec(argv, ready_timeout_seconds=0.05), events, ready=ready)
    async with running(watcher):
        failed = await events.until(ChildFailed)
        assert isinstance(failed, ChildFailed)
        assert failed.why == why
        await events.until(ChildStarted)


async def test_a_readiness_that_refuses_fails_the_start(spec: Callable[..., ChildSpec]) -> None:
    async def refuse(_child: Child) -> None:
        raise ConnectionRefusedError("nobody listens")

    events = Events()
    watcher = supervisor(spec(SLEEPER, give_up_after=1), events, ready=refuse)
    with pytest.raises(ChildFailedError, match="never got ready: nobody listens"):
        await watcher.run()
    started = events.seen[0]
    assert isinstance(started, ChildStarted)
    assert not is_alive(started.pid)


async def test_cancelling_the_supervisor_ends_the_child(spec: Callable[..., ChildSpec]) -> None:
    watcher = supervisor(spec(SLEEPER), Events())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run())
        await watcher.wait_ready()
        pid = watcher.pid
        assert pid is not None
        task.cancel()
    assert not is_alive(pid)


async def test_stop_while_pausing_returns_at_once(spec: Callable[..., ChildSpec]) -> None:
    events = Events()
    backoff = Backoff(100.0, 100.0, random.Random(1))
    watcher = Supervisor(spec(("false",)), clock=SystemClock(), backoff=backoff, on_event=events)
    async with running(watcher):
        await events.until(ChildFailed)


async def test_output_goes_to_the_log_and_a_log_over_its_cap_is_moved_aside(
    spec: Callable[..., ChildSpec], tmp_path: Path
) -> None:
    log, kept = tmp_path / "child.log", tmp_path / "child.log.1"
    script = f"printf 0123456789; {READY}; read x < fifo; printf after; exec sleep 1000"
    os.mkfifo(tmp_path / "fifo")
    noisy = spec(
        ("bash", "-c", script), log_cap_bytes=4, log_check_seconds=0.01, working_dir=tmp_path
    )
    watcher = supervisor(noisy, Events(), ready=told_ready)
    async with running(watcher):
        await watcher.wait_ready()
        async with asyncio.timeout(5):
            while not kept.exists() or log.read_bytes():
                await asyncio.sleep(0.005)
        assert kept.read_bytes() == b"6789"
        (tmp_path / "fifo").write_text("go\n")
        async with asyncio.timeout(5):
            while b"r" not in kept.read_bytes():
                await asyncio.sleep(0.005)
    assert kept.read_bytes() == b"fter"


PARENT = """
    import asyncio, os, pathlib, random, sys
    from livesize.machinery.children import ChildSpec, Supervisor, told_ready
    from livesize.machinery.clock import SystemClock
    from livesize.machinery.steps import Backoff

    async def main():
        here = pathlib.Path(sys.argv[1])
        spec = ChildSpec("child", (sys.executable, "-c", sys.argv[2]), os.environ, here / "log")
        watcher = Supervisor(
            spec, clock=SystemClock(), backoff=Backoff(1, 1, random.Random()), ready=told_ready
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run())
            await watcher.wait_ready()
            print(watcher.pid, flush=True)

    asyncio.run(main())
"""
CHILD = """
import asyncio, os
from livesize.machinery.children import tell_ready, wait_lifeline

async def main():
    tell_ready()
    await wait_lifeline()
    print("the parent is gone", flush=True)

asyncio.run(main())
"""


async def test_a_child_learns_through_the_lifeline_that_its_parent_was_killed(
    tmp_path: Path,
) -> None:
    script = textwrap.dedent(PARENT)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), CHILD], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        handle = os.pidfd_open(child)
        parent.kill()
    await asyncio.wait_for(readable(handle), 5)
    os.close(handle)
    assert (tmp_path / "log").read_text() == "the parent is gone\n"


async def readable(handle: int) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, event.set)
    await event.wait()
    asyncio.get_running_loop().remove_reader(handle)


async def test_without_a_parent_the_lifeline_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIVESIZE_LIFELINE", raising=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait_lifeline(), 0.01)


async def test_a_child_can_be_an_ordinary_user(
    spec: Callable[..., ChildSpec], tmp_path: Path, needs_root: None
) -> None:
    watcher = supervisor(
        spec(("sh", "-c", "id -u; id -g; id -G; exit 1"), user=1234, group=4321, give_up_after=1),
        Events(),
    )
    with pytest.raises(ChildFailedError):
        await watcher.run()
    assert (tmp_path / "child.log").read_text().split() == ["1234", "4321", "4321"]


async def test_a_child_inherits_the_files_named_and_no_others(
    spec: Callable[..., ChildSpec], tmp_path: Path
) -> None:
    named, other = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        check = f"test -e /proc/self/fd/{named} && test ! -e /proc/self/fd/{other} && exit 9"
        watcher = supervisor(
            spec(("bash", "-c", check), pass_fds=(named,), give_up_after=1), Events()
        )
        with pytest.raises(ChildFailedError, match="exit status 9"):
            await watcher.run()
    finally:
        os.close(named)
        os.close(other)


async def test_no_file_descriptor_is_left_open(spec: Callable[..., ChildSpec]) -> None:
    watcher = supervisor(spec(("false",), give_up_after=2), Events())
    before = open_files()
    with pytest.raises(ChildFailedError):
        await watcher.run()
    assert open_files() == before


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def test_all_of_it_works_on_uvloop_too(spec: Callable[..., ChildSpec]) -> None:
    async def main() -> None:
        events = Events()
        watcher = supervisor(spec(READY_SLEEPER), events, ready=told_ready)
        async with running(watcher):
            await watcher.wait_ready()
            assert watcher.pid is not None
            os.kill(watcher.pid, signal.SIGKILL)
            await events.until(ChildFailed)
            await watcher.wait_ready()
        assert isinstance(events.seen[-1], ChildStopped)

    on_uvloop(main())
