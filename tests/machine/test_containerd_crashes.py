"""The agent or containerd is killed in the middle of resizes: they complete, nothing restarts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from system.accounts import check_accounts
from system.groups import GroupFiles, group_of, start_time
from system.up import Up, container

pytestmark = pytest.mark.containers

STEPS = ("checkpoint", "accept", "pod:cpu", "container:app:cpu", "pod:memory",
         "container:app:memory", "actuated", "report")  # fmt: skip
DAILY = ("container:app:cpu",)
KILLS = 2
MANY_KILLS = 100


@pytest.fixture(scope="module")
def shared(needs_containerd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One data directory for all: what containerd has unpacked is there for the next."""
    up = Up(tmp_path_factory.mktemp("up"), runtime="containerd", allocatable="cpu=4,memory=4Gi")
    yield up
    if up.process is not None:
        up.end()


@pytest.fixture
def up(shared: Up) -> Iterator[Up]:
    yield shared
    if shared.process is None or shared.process.poll() is not None:
        shared.process = None
        shared.start()
    shared.delete_pod("db")
    shared.stop()


class Scene:
    """A running pod, its group and its process."""

    def __init__(self, up: Up) -> None:
        self.up = up
        up.create_pod("db", [container("app", "200m", "64Mi")], hostNetwork=True)
        self.group: GroupFiles = group_of(up, "db", "app")
        self.pid = self.group.main_pid()
        self.began = start_time(self.pid)

    def ask(self, cpu: str, memory: str) -> None:
        amounts = {"cpu": cpu, "memory": memory}
        resources = {"requests": amounts, "limits": amounts}
        patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
        try:
            self.up.patch_resize("db", patch)
        except OSError:
            assert self.up.process is not None
            self.up.process.wait(10)  # it died before it could answer

    def check(self, cpu_milli: int, memory_mib: int) -> None:
        self.up.wait_resized("db")
        for group in (self.group, self.group.pod()):
            assert group.cpu_quota_us() == cpu_milli * 100
            assert group.memory_limit_bytes() == memory_mib << 20
        assert (self.group.main_pid(), start_time(self.pid)) == (self.pid, self.began)
        pod = self.up.pod("db")
        (status,) = pod["status"]["containerStatuses"]
        assert status["resources"] == pod["spec"]["containers"][0]["resources"]
        assert status["restartCount"] == 0
        check_accounts(self.up)


def containerd_pid(up: Up) -> int:
    return int((up.directory / "agent/containerd/containerd/containerd.pid").read_text())


def is_containerd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "containerd"
    except OSError:
        return False


@pytest.mark.parametrize(
    "step",
    [pytest.param(s, marks=[] if s in DAILY else pytest.mark.matrix) for s in STEPS],
)
@pytest.mark.parametrize(
    "side", [pytest.param("before"), pytest.param("after", marks=pytest.mark.matrix)]
)
def test_the_agent_dies_and_the_resize_completes(
    up: Up, tmp_path: Path, step: str, side: str
) -> None:
    arm = tmp_path / "arm"
    up.start(
        environment={
            "LIVESIZE_CRASH_AT": f"resize/{step}/{side}",
            "LIVESIZE_CRASH_ARM": str(arm),
        }
    )
    scene = Scene(up)
    daemon = containerd_pid(up)
    arm.write_text("1")
    scene.ask("600m", "128Mi")
    assert up.process is not None
    assert up.process.wait(timeout=10) == -signal.SIGKILL
    assert start_time(scene.pid) == scene.began, "the workload outlives the agent"
    assert is_containerd(daemon), "and so does containerd"
    up.process = None
    up.start()
    assert containerd_pid(up) == daemon, "which the next agent finds again"
    scene.check(600, 128)


@pytest.mark.parametrize(
    "kills", [pytest.param(KILLS), pytest.param(MANY_KILLS, marks=pytest.mark.matrix)]
)
def test_containerd_is_killed_in_the_middle_of_resizes(up: Up, kills: int) -> None:
    up.start()
    scene = Scene(up)
    for number in range(kills):
        big = number % 2 == 0
        daemon = containerd_pid(up)
        scene.ask("600m" if big else "200m", "128Mi" if big else "64Mi")
        time.sleep(0.003 * (number % 8))  # at another moment of the resize each time
        os.kill(daemon, signal.SIGKILL)
        scene.check(600 if big else 200, 128 if big else 64)
        up.wait_until(lambda: is_containerd(containerd_pid(up)), "containerd runs again")


@pytest.mark.matrix
@pytest.mark.parametrize("kills", [2, MANY_KILLS])
def test_the_control_plane_is_killed_in_the_middle_of_resizes(up: Up, kills: int) -> None:
    """What was answered is durable, and the node goes on meanwhile."""
    up.start()
    scene = Scene(up)
    for number in range(kills):
        big = number % 2 == 0
        scene.ask("600m" if big else "200m", "128Mi" if big else "64Mi")
        time.sleep(0.003 * (number % 8))
        killed = up.control_plane_pid()
        os.kill(killed, signal.SIGKILL)
        up.wait_until(lambda before=killed: is_replaced(up, before), "it was started again")
        up.wait_until(lambda: up.pod("db"), "and answers")
        scene.check(600 if big else 200, 128 if big else 64)


def is_replaced(up: Up, before: int) -> bool:
    try:
        return up.control_plane_pid() != before
    except (AssertionError, FileNotFoundError):
        return False


@pytest.mark.matrix
def test_both_are_killed_and_the_container_ends_meanwhile(up: Up) -> None:
    """The end of a container that nobody saw is found, and the pod goes on with a restart."""
    up.start()
    scene = Scene(up)
    os.kill(containerd_pid(up), signal.SIGKILL)
    up.kill()
    os.kill(scene.pid, signal.SIGKILL)
    up.start()

    def restarted() -> Any:
        (status,) = up.pod("db")["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    up.wait_until(restarted, "the container runs again")
    group = group_of(up, "db", "app")
    assert group.cpu_quota_us() == 20_000


@pytest.mark.matrix
def test_kept_containers_go_on_without_an_agent(up: Up) -> None:
    up.start("--keep")
    scene = Scene(up)
    daemon = containerd_pid(up)
    up.stop()
    assert is_containerd(daemon), "it writes their logs"
    assert start_time(scene.pid) == scene.began
    up.start()
    assert containerd_pid(up) == daemon
    scene.ask("600m", "128Mi")
    scene.check(600, 128)
