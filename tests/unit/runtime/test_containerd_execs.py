"""Sessions of containerd: when one is closed, what it began is ended, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.machinery.clock import SystemClock
from livesize.runtime.containerd import execs as execs_module
from livesize.runtime.containerd.execs import CriExecSession, Execs
from livesize.runtime.fake_streams import FakeSession
from livesize.runtime.interface import RuntimeCallError

ID = "c1"


@pytest.fixture
def execs(monkeypatch: pytest.MonkeyPatch) -> Execs:
    monkeypatch.setattr(execs_module, "END_SECONDS", 0.1)
    return Execs(SystemClock())


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Each leads a group of its own, as what runc starts."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, 9)
        one.communicate()


def run(sleepers: list[subprocess.Popen[bytes]], *words: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
    sleepers.append(process)
    return process


async def begin(execs: Execs, *words: str) -> CriExecSession:
    async def opened() -> Any:
        return FakeSession(words, "", None)

    return await execs.begin(ID, words, opened)


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_what_a_session_began_ends_with_it_though_it_does_not_want_to(
    execs: Execs, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    words = ("sh", "-c", "trap '' TERM; echo on; sleep 60; true")
    process = run(sleepers, *words)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    before = open_descriptors()
    session = await begin(execs, *words)
    await execs.started(ID, process.pid)
    await session.close()
    assert process.wait(2) == -9
    assert open_descriptors() == before


async def test_what_ended_by_itself_is_not_signalled(
    execs: Execs, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    async def opened() -> Any:
        return FakeSession((), "", 0)

    session = await execs.begin(ID, ("true",), opened)
    bystander = run(sleepers, "sleep", "60")
    await execs.started(ID, bystander.pid)
    assert await session.exit_code() == 0
    await session.close()
    assert bystander.poll() is None


async def test_a_start_of_our_own_command_is_not_taken_for_the_sessions(
    execs: Execs, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    with execs.own_command(ID):
        session = await begin(execs, "sleep", "61")
        probe, asked = run(sleepers, "sleep", "60"), run(sleepers, "sleep", "61")
        for process in (probe, asked):
            await execs.started(ID, process.pid)
        await session.close()
    assert asked.wait(2) == -15
    assert probe.poll() is None


async def test_sessions_of_one_container_begin_one_after_the_other(
    execs: Execs, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    first = await begin(execs, "sleep", "60")
    waiting = asyncio.create_task(begin(execs, "sleep", "60"))
    await asyncio.sleep(0)
    assert not waiting.done()
    one, other = run(sleepers, "sleep", "60"), run(sleepers, "sleep", "60")
    await execs.started(ID, one.pid)
    second = await waiting
    await execs.started(ID, other.pid)
    await second.close()
    assert (other.wait(2), one.poll()) == (-15, None)
    await first.close()
    assert one.wait(2) == -15


async def test_a_start_that_is_never_told_holds_up_nobody_for_long(
    execs: Execs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execs_module, "START_SECONDS", 0.05)
    async with asyncio.timeout(2):
        first = await begin(execs, "sleep", "60")
        second = await begin(execs, "sleep", "60")
        await first.close()
        await second.close()
    await execs.started(ID, os.getpid())  # late, and nobody's: we are still here


async def test_a_session_that_cannot_be_opened_leaves_nothing(
    execs: Execs, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    async def opened() -> Any:
        raise RuntimeCallError("no")

    with pytest.raises(RuntimeCallError):
        await execs.begin(ID, ("sleep",), opened)
    async with asyncio.timeout(1):
        session = await begin(execs, "sleep", "60")
    process = run(sleepers, "sleep", "60")
    await execs.started(ID, process.pid)
    await session.close()
    assert process.wait(2) == -15
