"""sd_notify: what a service manager is told, and that nobody is told where nobody asks."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from livesize.machinery.clock import SystemClock
from livesize.machinery.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


def test_ready_and_stopping(manager: socket.socket) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready("well")
    assert heard(manager) == "READY=1\nSTATUS=well"
    notifier.stopping()
    assert heard(manager).startswith("STOPPING=1\n")


def test_a_name_in_the_abstract_space() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"livesize-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"}).ready("well")
        assert heard(listening).startswith("READY=1")


async def test_it_is_told_that_the_loop_still_turns(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000"}
    notifier = Notifier.from_environment(environment)
    task = asyncio.create_task(notifier.keep_alive(SystemClock()))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5):
        for _ in range(3):
            assert await loop.sock_recv(manager, 100) == b"WATCHDOG=1"
    task.cancel()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000"},
        {"NOTIFY_SOCKET": "/no/such/socket"},
        {"NOTIFY_SOCKET": "/no/such/socket", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/no/such/socket", "WATCHDOG_USEC": "soon"},
    ],
)
async def test_nobody_who_listens_does_no_harm(environment: dict[str, str]) -> None:
    notifier = Notifier.from_environment(environment)
    notifier.ready("well")
    notifier.stopping()
    async with asyncio.timeout(5):
        await notifier.keep_alive(SystemClock())
