"""Inside the guest: containerd that leaves control groups to systemd; pods are slices of it.

systemd sets its groups back to what it knows whenever it reads its units again. What a resize has
changed must be known to it, of the pod's slice and of the container's scope; what it cannot keep
exactly is set right again by the agent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.service import UNIT, Service, start_service, systemctl
from system.groups import GroupFiles, start_time
from system.up import container

pytestmark = pytest.mark.cgroup_v2

DATA = Path("/var/lib/livesize")
ROOT = Path("/sys/fs/cgroup")
MIB = 1024 * 1024
SETTINGS = """\
node-name: guest
listen: 127.0.0.1:7443
allocatable: {cpu: 2, memory: 1Gi}
runtime: containerd
keep: true
"""
PRIVATE = f"{SETTINGS}cgroup-driver: systemd\n"


def node(field: str) -> str:
    """Its uid, or the name of the group that holds its pods."""
    return str(json.loads((DATA / "agent/node.json").read_text())[field])


def scope_of(up: Service, pod: str) -> GroupFiles:
    """Where the kernel says that the container's first process is."""
    found = up.pod(pod)
    identity = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    uid = found["metadata"]["uid"].replace("-", "_")
    above = f"livesize-{node('group').replace('-', '_')}"
    slices = f"livesize.slice/{above}.slice/{above}-pod{uid}.slice"
    group = GroupFiles(Path(f"{slices}/cri-containerd-{identity}.scope"))
    said = Path(f"/proc/{group.main_pid()}/cgroup").read_text().strip()
    assert said == f"0::/{group.path}", "the workload is in a scope of the pod's slice"
    return group


def limits(group: GroupFiles) -> list[tuple[int | None, int | None]]:
    """Of the container and of its pod."""
    both = (group, group.pod())
    return [(one.cpu_quota_us(), one.memory_limit_bytes()) for one in both]


def main_pid() -> str:
    return systemctl("show", "-P", "MainPID", UNIT).strip()


def known(unit: str) -> tuple[str, str]:
    """What systemd itself keeps."""
    asked = systemctl("show", "-P", "CPUQuotaPerSecUSec", "-P", "MemoryMax", unit).split()
    return asked[0], asked[1]


@pytest.fixture(scope="module")
def up() -> Iterator[Service]:
    start_service(PRIVATE)
    service = Service(DATA)
    service.await_ready()
    if service.pod("db").get("kind") != "Pod":  # there again where a test is run once more
        service.create_pod("db", [container("app", "1", "32Mi")], hostNetwork=True)
    yield service
    systemctl("stop", UNIT)


def test_a_resize_is_known_to_systemd_and_stays(up: Service) -> None:
    group = scope_of(up, "db")
    pid = group.main_pid()
    began = start_time(pid)
    assert limits(group) == [(100_000, 32 * MIB)] * 2
    for cpu, memory in (("1500m", 64), ("500m", 40)):  # up, then down
        up.resize("db", cpu=cpu, memory=f"{memory}Mi")
        size = (int(cpu[:-1]) * 100, memory * MIB)
        assert limits(group) == [size] * 2
        systemctl("daemon-reload")
        assert limits(group) == [size] * 2
        for unit in (group.path.name, group.pod().path.name):
            assert known(unit)[1] == str(size[1])
    systemctl("daemon-reexec")
    assert limits(group) == [(50_000, 40 * MIB)] * 2
    assert (group.main_pid(), start_time(pid)) == (pid, began), "nothing restarted"


def test_what_systemd_cannot_keep_is_set_right_again(up: Service) -> None:
    """It knows whole percents of a CPU only."""
    group = scope_of(up, "db")
    up.resize("db", cpu="505m", memory="40Mi")
    exact, rounded = [(50_500, 40 * MIB)] * 2, [(51_000, 40 * MIB)] * 2
    up.wait_until(lambda: limits(group) == exact, "the exact quota is there")
    systemctl("daemon-reload")
    assert limits(group) in (rounded, exact), "never less than was promised"
    up.wait_until(lambda: limits(group) == exact, "the agent sees it and sets it right")


def test_a_limit_that_somebody_else_gave_systemd_is_set_right_again(up: Service) -> None:
    group = scope_of(up, "db")
    up.resize("db", cpu="500m", memory="40Mi")
    pod = group.pod().path.name
    systemctl("set-property", "--runtime", pod, "MemoryMax=900M", "CPUQuota=90%")
    right = [(50_000, 40 * MIB)] * 2
    up.wait_until(lambda: limits(group) == right, "the agent sets it right")
    systemctl("daemon-reload")
    assert limits(group) == right


@pytest.mark.parametrize("killed", ["agent", "containerd", "both"])
def test_who_starts_again_finds_pods_as_they_were(up: Service, killed: str) -> None:
    group = scope_of(up, "db")
    pid = group.main_pid()
    began = start_time(pid)
    before = limits(group)
    pids = {
        "agent": [int(main_pid())],
        "containerd": [int((DATA / "agent/containerd/containerd/containerd.pid").read_text())],
    }
    if killed != "containerd":
        up.expect_restart()
    ended = pids["agent"] + pids["containerd"] if killed == "both" else pids[killed]
    for one in ended:
        os.kill(one, signal.SIGKILL)
    for one in ended:
        up.wait_until(lambda one=one: not Path(f"/proc/{one}/exe").exists(), "it has ended")
    assert limits(group) == before
    if killed != "containerd":
        old = ("0", str(pids["agent"][0]))
        up.wait_until(lambda: main_pid() not in old, "systemd starts it again")
        up.await_ready()
    memory = {"agent": 44, "containerd": 48, "both": 52}[killed]
    up.resize("db", cpu="500m", memory=f"{memory}Mi")
    systemctl("daemon-reload")
    assert limits(group) == [(50_000, memory * MIB)] * 2
    assert (group.main_pid(), start_time(pid)) == (pid, began), "nothing restarted"
    assert up.pod("db")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_shrink_below_what_is_held_waits_and_kills_nobody(up: Service) -> None:
    """Asked of systemd alone, the kernel would kill."""
    hold = "head -c 20000000 /dev/zero > /dev/shm/held; trap 'rm /dev/shm/held' USR1;"
    up.delete_pod("held")  # there again where the test is run once more
    up.create_pod(
        "held",
        [container("app", "1", "64Mi", command=f"{hold} while :; do sleep 1; done")],
        hostNetwork=True,
    )
    group = scope_of(up, "held")
    up.wait_until(lambda: group.memory_usage_bytes() > 19 * MIB, "it holds 20 MB")
    amounts = {"cpu": "1", "memory": "12Mi"}
    sizes = {"requests": amounts, "limits": amounts}
    patch = {"spec": {"containers": [{"name": "app", "resources": sizes}]}}
    code, answer = up.patch_resize("held", patch)
    assert code == 200, answer

    def phase() -> str:
        return str(up.pod("held").get("status", {}).get("resizeState", {}).get("phase"))

    up.wait_until(lambda: phase() in ("InProgress", "Error"), "it cannot be made smaller yet")
    assert limits(group)[0][1] == 64 * MIB
    os.kill(group.main_pid(), signal.SIGUSR1)
    up.wait_resized("held")
    assert limits(group) == [(100_000, 12 * MIB)] * 2
    assert up.pod("held")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_pod_that_goes_leaves_no_slice(up: Service) -> None:
    unit = scope_of(up, "held").pod().path.name
    path = ROOT / scope_of(up, "held").pod().path
    up.delete_pod("held")
    up.wait_until(lambda: not path.exists(), "its group is gone")
    assert unit not in systemctl("list-units", "--all", "--no-legend", "livesize*.slice")
    assert not Path(f"/run/systemd/transient/{unit}").exists()


def test_a_containerd_that_is_there_says_who_writes_its_groups(up: Service) -> None:
    """The same one, met as somebody else's, by an agent that was told nothing."""
    socket = next(Path("/run/livesize").glob("*/containerd.sock"))
    systemctl("stop", UNIT)  # containerd goes on, and so does the pod
    uid = node("uid")
    Path("/etc/livesize/up.yaml").write_text(f"{SETTINGS}runtime-endpoint: {socket}\n")
    up.expect_restart()
    systemctl("start", UNIT)
    up.await_ready()
    assert node("uid") == uid
    group = scope_of(up, "db")
    up.resize("db", cpu="700m", memory="56Mi")
    systemctl("daemon-reload")
    assert limits(group) == [(70_000, 56 * MIB)] * 2
    up.delete_pod("new")  # there again where the test is run once more
    up.create_pod("new", [container("app", "500m", "32Mi")], hostNetwork=True)
    assert limits(scope_of(up, "new")) == [(50_000, 32 * MIB)] * 2
    said = subprocess.run(
        ["livesize", "doctor"], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "LIVESIZE_RUNTIME_ENDPOINT": str(socket)},
    ).stdout  # fmt: skip
    assert "systemd writes the control groups" in said
