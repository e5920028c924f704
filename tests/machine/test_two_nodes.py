"""Two data directories on one machine: what belongs to the one, the other never touches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaks import processes_of
from livesize.runtime.process.processes import read_start_ticks
from system.groups import group_of, start_time
from system.up import LIVESIZE, Up, container

pytestmark = pytest.mark.containers


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path / "first")
    up.start()
    up.create_pod("db", [container("app", "200m", "64Mi")])
    yield up
    up.end()


def run_up(up: Up, directory: Path) -> subprocess.CompletedProcess[str]:
    """A second one, of the same node name; it is expected to refuse."""
    words = ["--data-dir", str(directory), "--listen", "127.0.0.1:0", "--node-name", up.node]
    return subprocess.run(
        [LIVESIZE, "up", *words], capture_output=True, text=True, timeout=30, check=False
    )


def test_a_second_one_of_the_same_name_refuses_and_touches_nothing(
    first: Up, tmp_path: Path
) -> None:
    pid = group_of(first, "db", "app").main_pid()
    began = start_time(pid)
    refused = run_up(first, tmp_path / "second")
    assert refused.returncode == 1
    assert f"process {first.pid} with --data-dir {first.directory}" in refused.stderr
    assert "--node-name" in refused.stderr
    assert start_time(pid) == began
    first.kill()
    refused = run_up(first, tmp_path / "second")
    assert refused.returncode == 1
    assert f"belongs to --data-dir {first.directory}" in refused.stderr
    assert f"livesize clean --node-name {first.node}" in refused.stderr
    assert start_time(pid) == began
    first.start()
    first.wait_running("db")
    assert start_time(pid) == began, "its own data directory takes over"


def livesize_clean(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LIVESIZE, "clean", *words], capture_output=True, text=True, timeout=30, check=False
    )


def test_what_a_dead_directory_left_is_shown_and_removed_and_nothing_else(
    first: Up, tmp_path: Path
) -> None:
    other = Up(tmp_path / "other")
    other.start()
    other.create_pod("web", [container("app", "100m", "32Mi")])
    bystander = group_of(other, "web", "app").main_pid()
    first.create_pod(
        "cache",
        [container("app", "100m", "32Mi") | {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}],
        volumes=[{"name": "m", "emptyDir": {"medium": "Memory"}}],
    )
    pid = group_of(first, "db", "app").main_pid()
    began = start_time(pid)

    alive = livesize_clean("--node-name", first.node, "--yes")
    assert alive.returncode == 1
    assert f"is alive: process {first.pid}" in alive.stderr
    alive = livesize_clean("--data-dir", str(first.directory), "--yes")
    assert alive.returncode == 1
    assert start_time(pid) == began

    first.kill()
    uid = first_uid(first)
    shown = livesize_clean("--node-name", first.node)
    assert shown.returncode == 0, shown.stderr
    assert "/c-app" in shown.stdout
    assert f"  process        {pid} " in shown.stdout
    assert f"  mount          {first.directory}/agent/volumes" in shown.stdout
    assert start_time(pid) == began, "it was only shown"

    removed = livesize_clean("--node-name", first.node, "--yes")
    assert removed.returncode == 0, removed.stderr
    assert read_start_ticks(pid) is None, "it has ended"
    assert not list(Path("/sys/fs/cgroup").glob(f"*/livesize/*{uid}*"))
    assert str(first.directory) not in Path("/proc/self/mountinfo").read_text()
    assert Path(f"/proc/{bystander}").exists(), "the other node's pods go on"

    again = livesize_clean("--data-dir", str(first.directory), "--yes")
    assert "Nothing of" in again.stdout
    second = Up(tmp_path / "second")
    second.node, second._arguments[-1] = first.node, first.node
    second.start()
    second.stop()
    other.end()
    first.start()
    first.wait_running("db")


def first_uid(up: Up) -> str:
    return str(json.loads((up.directory / "agent/node.json").read_text())["uid"])


def test_groups_that_another_removes_are_made_again_at_once(first: Up) -> None:
    """As a second node once did: kill all that is in there, and remove the groups."""
    group = group_of(first, "db", "app")
    pid = group.main_pid()
    with standing_still(first):
        os.kill(pid, signal.SIGKILL)
        for hierarchy in ("memory", "cpu", "cpuacct", "pids"):
            for path in (group.path, group.path.parent):
                remove(Path("/sys/fs/cgroup", hierarchy, path))
    began = time.monotonic()

    def is_mended() -> bool:
        statuses = first.pod("db").get("status", {}).get("containerStatuses", [{}])
        return bool(statuses[0].get("restartCount")) and "running" in statuses[0]["state"]

    first.wait_until(is_mended, "the container was started again")
    assert time.monotonic() - began < 8  # told by the kernel: by itself it looks every 10 s
    mended = group_of(first, "db", "app")
    assert mended.memory_limit_bytes() == mended.pod().memory_limit_bytes() == 64 << 20


def test_what_is_moved_out_of_its_group_is_seen_and_started_again(first: Up) -> None:
    group = group_of(first, "db", "app")
    pid = group.main_pid()
    with standing_still(first):
        for hierarchy in ("memory", "cpu", "cpuacct", "pids"):
            members = Path(f"/sys/fs/cgroup/{hierarchy}/{group.path}/cgroup.procs").read_text()
            for member in members.split():
                Path(f"/sys/fs/cgroup/{hierarchy}/cgroup.procs").write_text(member)
            remove(Path("/sys/fs/cgroup", hierarchy, group.path))
    first.wait_until(
        lambda: first.pod("db")["status"]["containerStatuses"][0]["restartCount"] == 1,
        "the container was started again",
    )
    first.wait_running("db")
    assert group_of(first, "db", "app").main_pid() != pid
    events = first.kubectl("get", "events", "-o", "jsonpath={.items[*].message}").stdout
    assert "another process removed its control group" in events


@contextlib.contextmanager
def standing_still(up: Up) -> Iterator[None]:
    """The agent finds all of it gone at once, and not the first half."""
    os.kill(up.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(up.pid, signal.SIGCONT)


def remove(group: Path) -> None:
    """The kernel needs a moment after the last process has ended; what we make anew may be there
    again already."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return


@pytest.fixture
def with_containerd(needs_containerd: None, tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path / "containerd", runtime="containerd")
    up.start()
    up.create_pod("db", [container("app", "200m", "64Mi")], hostNetwork=True)
    yield up
    up.end()


def test_a_pod_of_containerd_that_lost_all_is_started_again(with_containerd: Up) -> None:
    """The sandbox too: all its processes were in the pod's group."""
    up = with_containerd
    group = group_of(up, "db", "app")
    pod = group.path.parent
    members = [
        member
        for path in Path("/sys/fs/cgroup/memory", pod).glob("*/cgroup.procs")
        for member in path.read_text().split()
    ]
    assert len(members) >= 2, "the sandbox and the container"
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(member), signal.SIGKILL)
    for hierarchy in ("memory", "cpu", "cpuacct", "pids"):
        for path in (*Path("/sys/fs/cgroup", hierarchy, pod).glob("*/"), pod):
            remove(Path("/sys/fs/cgroup", hierarchy, path))

    def is_mended() -> bool:
        statuses = up.pod("db").get("status", {}).get("containerStatuses", [{}])
        return bool(statuses[0].get("restartCount")) and "running" in statuses[0]["state"]

    up.wait_until(is_mended, "the container was started again")
    mended = group_of(up, "db", "app")
    assert mended.memory_limit_bytes() == mended.pod().memory_limit_bytes() == 64 << 20


def test_a_private_containerd_is_cleaned_away_with_all_it_runs(with_containerd: Up) -> None:
    up = with_containerd
    pid = group_of(up, "db", "app").main_pid()
    up.kill()
    shown = livesize_clean("--data-dir", str(up.directory))
    assert "containerd --config" in shown.stdout
    assert "containerd-shim-runc-v2" in shown.stdout
    removed = livesize_clean("--data-dir", str(up.directory), "--yes")
    assert removed.returncode == 0, removed.stderr
    assert read_start_ticks(pid) is None, "ended; in a container nobody may reap it"
    up.wait_until(
        lambda: not processes_of(up.directory, [up.node]), "the control plane has ended too"
    )
    assert not list(Path("/sys/fs/cgroup").glob(f"*/livesize/{up.node}.*"))
    assert str(up.directory) not in Path("/proc/self/mountinfo").read_text()
    up.start()
    up.wait_running("db")
