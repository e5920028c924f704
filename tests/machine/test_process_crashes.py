"""The process runtime is killed, with its shims or alone, and everything is found again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.context import system_context
from livesize.runtime import oci
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    PodConfig,
    PodGroup,
    RuntimeCallError,
)
from livesize.runtime.process.runtime import ProcessRuntime

pytestmark = pytest.mark.containers

UID = "pod-one"
LIMITS = KernelLimits(512, 50_000, 64 * 1024 * 1024)
POINTS = [
    "create-pod/group",
    "create-pod/record",
    "start/record",
    "start/group",
    "start/limits",
    "start/launch-config",
    "start/spawned",
    "start/started",
    "remove-pod/groups",
    "remove-pod/record",
]
AGENT = """
import asyncio, sys
from pathlib import Path
import msgspec
from livesize.machinery.context import system_context
from livesize.machinery.steps import CrashPoints
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.process.runtime import ProcessRuntime, ProcessSettings

async def main(state, group, pod, container, crash_at, arm):
    settings = ProcessSettings(points=CrashPoints(crash_at=crash_at, arm=arm))
    runtime = ProcessRuntime(Path(state), group, system_context(), settings=settings)
    await runtime.open()
    config = msgspec.json.decode(pod, type=PodConfig)
    await runtime.create_pod(config)
    await runtime.start_container(msgspec.json.decode(container, type=ContainerConfig))
    print("started", flush=True)
    if not crash_at:
        sys.stdin.read()
    await runtime.stop_container(config.uid, "main", 0)
    await runtime.remove_pod(config.uid)

asyncio.run(main(*sys.argv[1:]))
"""


def pod_config() -> PodConfig:
    return PodConfig(UID, "default", "one", KernelLimits(1024, 100_000, None))


def config(script: str = "sleep 1000", attempt: int = 0) -> ContainerConfig:
    return ContainerConfig(
        pod_uid=UID,
        name="main",
        image=oci.BUILT_IN_IMAGE,
        command=("sh", "-c", script),
        args=(),
        env=(),
        working_dir="",
        hostname="one",
        limits=LIMITS,
        attempt=attempt,
    )


class Place:
    """One state folder and root group, on which agents come and go."""

    def __init__(self, state: Path, group: str) -> None:
        self.state = state
        self.group = group
        self._opened: list[ProcessRuntime] = []

    def agent(self, script: str = "sleep 1000", crash_at: str = "") -> subprocess.Popen[str]:
        """An agent in a process of its own, which can be killed."""
        pod = msgspec.json.encode(pod_config()).decode()
        container = msgspec.json.encode(config(script)).decode()
        arm = self.state.parent / "arm"
        if crash_at:
            arm.write_text("1")
        words = [str(self.state), self.group, pod, container, crash_at, str(arm)]
        return subprocess.Popen(
            [sys.executable, "-c", AGENT, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def open(self) -> ProcessRuntime:
        runtime = ProcessRuntime(self.state, self.group, system_context())
        await runtime.open()
        self._opened.append(runtime)
        return runtime

    async def clear(self) -> None:
        runtime = self._opened[-1] if self._opened else await self.open()
        for pod in runtime.list_pods():
            for container in pod.containers:
                await runtime.stop_container(pod.uid, container.name, 0)
            await runtime.remove_pod(pod.uid)
        for opened in self._opened:
            await opened.close()

    def attempt_folder(self, attempt: int = 0) -> Path:
        return self.state / "pods" / UID / "containers" / "main" / str(attempt)


@pytest.fixture
async def place(tmp_path: Path, root_group: str) -> AsyncIterator[Place]:
    made = Place(tmp_path / "state", root_group)
    yield made
    await made.clear()


def killed(agent: subprocess.Popen[str]) -> None:
    assert agent.stdout is not None
    assert agent.stdout.readline() == "started\n"
    agent.kill()
    agent.communicate()


def seen(runtime: ProcessRuntime) -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    return pod.containers[0]


async def ended(runtime: ProcessRuntime) -> ContainerView:
    events = runtime.events()
    async with asyncio.timeout(10):
        while seen(runtime).phase is not ContainerPhase.EXITED:
            await anext(events)
    return seen(runtime)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_any_point_the_next_agent_gets_on(place: Place, point: str) -> None:
    agent = place.agent(crash_at=point)
    agent.communicate(timeout=60)
    assert agent.returncode == -signal.SIGKILL
    runtime = await place.open()
    await runtime.create_pod(pod_config())
    pod = runtime.pod(UID)
    assert pod is not None
    if not pod.containers or pod.containers[0].phase is ContainerPhase.EXITED:
        attempt = 1 if pod.containers else 0
        await runtime.start_container(config(attempt=attempt))
    assert seen(runtime).phase is ContainerPhase.RUNNING
    assert runtime.read(ContainerGroup(UID, "main")).limits == LIMITS
    if point in ("start/spawned", "start/started"):
        assert seen(runtime).attempt == 0  # it was not started a second time


async def test_the_workload_survives_the_agent_and_its_end_is_seen(place: Place) -> None:
    killed(place.agent("trap 'exit 9' TERM; sleep 1000 & wait"))
    runtime = await place.open()
    assert seen(runtime).phase is ContainerPhase.RUNNING
    os.kill(seen(runtime).pid, signal.SIGTERM)
    assert (await ended(runtime)).exit_code == 9


async def test_an_end_while_no_agent_looks_is_found_later(place: Place) -> None:
    killed(place.agent("while ! test -e /dev/shm/go; do sleep 0.02; done; exit 11"))
    pid = int((place.attempt_folder() / "pid").read_text().split()[0])
    Path(f"/proc/{pid}/root/dev/shm/go").touch()
    async with asyncio.timeout(10):
        while not (place.attempt_folder() / "exit").exists() or Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
    runtime = await place.open()
    view = seen(runtime)
    assert (view.phase, view.exit_code) == (ContainerPhase.EXITED, 11)
    assert view.finished_at is not None


async def test_an_oom_kill_while_no_agent_looks_is_told_later(place: Place) -> None:
    wait = "while ! test -e /dev/shm/go; do sleep 0.02; done"
    killed(place.agent(f"{wait}; exec dd if=/dev/zero of=/dev/null bs=100M"))
    pid = int((place.attempt_folder() / "pid").read_text().split()[0])
    Path(f"/proc/{pid}/root/dev/shm/go").touch()
    async with asyncio.timeout(20):
        while not (place.attempt_folder() / "exit").exists():
            await asyncio.sleep(0.01)
    view = await ended(await place.open())
    assert (view.exit_code, view.oom_killed) == (137, True)


async def test_a_killed_shim_does_not_take_the_workload_with_it(place: Place) -> None:
    runtime = await place.open()
    await runtime.create_pod(pod_config())
    view = await runtime.start_container(config())
    os.kill(int((place.attempt_folder() / "shim").read_text()), signal.SIGKILL)
    await asyncio.sleep(0.1)
    assert seen(runtime) == view
    await runtime.close()
    again = await place.open()
    assert seen(again) == view
    await again.stop_container(UID, "main", 0)
    assert seen(again).exit_code == 255  # nobody saw how


async def test_after_a_reboot_containers_have_ended(place: Place) -> None:
    runtime = await place.open()
    await runtime.create_pod(pod_config())
    await runtime.start_container(config())
    await runtime.stop_container(UID, "main", 0)
    await runtime.close()
    folder = place.attempt_folder()
    (folder / "outcome.json").unlink()
    (folder / "exit").unlink()
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "boot_id": "another"}))
    (folder / "pid").write_text(f"{os.getpid()} 1\n")  # by chance a living pid
    again = await place.open()
    assert (seen(again).phase, seen(again).exit_code) == (ContainerPhase.EXITED, 255)
    assert again.read(PodGroup(UID)).limits.memory_limit_bytes is None


async def test_a_pid_that_was_given_away_is_left_alone(place: Place) -> None:
    """The files name a living process that is not the container."""
    runtime = await place.open()
    await runtime.create_pod(pod_config())
    await runtime.start_container(config())
    await runtime.stop_container(UID, "main", 0)
    await runtime.close()
    stranger = subprocess.Popen(["sleep", "1000"])
    folder = place.attempt_folder()
    (folder / "outcome.json").unlink()
    (folder / "exit").unlink()
    (folder / "pid").write_text(f"{stranger.pid} 1\n")
    (folder / "shim").write_text(f"{stranger.pid}\n")
    again = await place.open()
    await again.stop_container(UID, "main", 0)
    assert seen(again).phase is ContainerPhase.EXITED
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


async def test_two_agents_cannot_share_a_state_folder(place: Place) -> None:
    await place.open()
    second = ProcessRuntime(place.state, place.group, system_context())
    with pytest.raises(RuntimeCallError, match="used by another agent"):
        await second.open()
    await second.close()


async def test_a_cancelled_start_leaves_nothing_running(place: Place) -> None:
    runtime = await place.open()
    await runtime.create_pod(pod_config())
    await runtime.start_container(config("true"))  # the image is unpacked now
    await ended(runtime)
    starting = asyncio.create_task(runtime.start_container(config(attempt=1)))
    await asyncio.sleep(0.012)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await runtime.start_container(config(attempt=2))
    assert seen(runtime).attempt == 2
