"""SIGTERM while `livesize up` was still starting ended in a traceback and exit code 1; and nobody
could hasten the end of workloads that ignore SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path

import pytest

from livesize.runtime.fake import Behaviour
from system.groups import group_of
from system.up import LIVESIZE, Up
from system.up import container as up_container
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


@pytest.mark.apiserver
def test_sigterm_during_the_start(tmp_path: Path) -> None:
    command = [LIVESIZE, "up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--runtime", "fake"], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 20
        while not (tmp_path / "kubeconfig").exists():  # written before anything is ready
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors


async def test_a_second_signal_ends_the_grace(world: World) -> None:
    world.machine.behaviours[("stubborn",)] = Behaviour(ignores_sigterm=True)
    await world.start()
    app = container(command=["stubborn"])
    await world.api.run_pod("db", app, terminationGracePeriodSeconds=600)
    uid = await world.running("db")
    agent, hurry = world.agent, asyncio.Event()
    assert agent is not None
    await world.stop()
    stopping = asyncio.create_task(agent.stop_workloads(hurry))
    await asyncio.sleep(0.01)
    assert uid in world.machine.pods
    hurry.set()
    async with asyncio.timeout(2):
        await stopping
    assert uid not in world.machine.pods


@pytest.mark.containers
def test_workloads_are_stopped_though_nobody_reads_what_up_says(tmp_path: Path) -> None:
    """Its last words went into a closed pipe, and that ended it before the workloads had ended."""
    up = Up(tmp_path / "up")
    up.start(output=subprocess.PIPE)
    assert up.process is not None
    assert up.process.stdout is not None
    up.create_pod("db", [up_container("app", "100m", "32Mi")])
    pid = group_of(up, "db", "app").main_pid()
    up.process.stdout.close()
    up.stop()
    assert not Path(f"/proc/{pid}").exists()
