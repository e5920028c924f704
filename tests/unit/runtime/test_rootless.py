"""Containers of an ordinary user: which groups are theirs, and what they cannot have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from livesize.main.wiring.accounts import user_exists
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.processes import read_start_ticks
from livesize.runtime.rootless.delegation import (
    Delegation,
    find_delegation,
    require_delegation,
)
from livesize.runtime.rootless.namespaces import end_namespaces

MANAGER = "user.slice/user-1000.slice/user@1000.service"


def machine(root: Path, own: str, writable: str, controllers: str) -> Path:
    """A tree of groups of which ``writable`` and all below is the user's; /proc/self of a process
    in ``own``."""
    tree = root / "cgroup"
    group = tree
    for part in own.split("/"):
        group = group / part
        group.mkdir(parents=True)
        if str(group.relative_to(tree)).startswith(writable):
            for name in ("cgroup.procs", "cgroup.subtree_control"):
                (group / name).touch()
            (group / "cgroup.controllers").write_text(controllers)
    proc = root / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(f"31 23 0:28 / {tree} rw - cgroup2 cgroup2 rw\n")
    (proc / "cgroup").write_text(f"0::/{own}\n")
    return proc


def test_pods_stand_in_the_outermost_group_that_is_the_users(tmp_path: Path) -> None:
    own = f"{MANAGER}/app.slice/livesize-up.service"
    found = find_delegation(machine(tmp_path, own, MANAGER, "cpu memory pids\n"))
    assert found == Delegation(str(tmp_path / "cgroup" / MANAGER), ("cpu", "memory", "pids"))
    assert require_delegation(found).endswith("user@1000.service")


def test_a_session_has_no_group_of_its_own(tmp_path: Path) -> None:
    own = "user.slice/user-1000.slice/session-1.scope"
    found = find_delegation(machine(tmp_path, own, own, "cpu memory pids"))
    with pytest.raises(RuntimeCallError, match="systemd-run --user"):
        require_delegation(found)


def test_controllers_that_are_missing_are_named(tmp_path: Path) -> None:
    own = f"{MANAGER}/app.slice/x.service"
    found = find_delegation(machine(tmp_path, own, MANAGER, "memory pids"))
    with pytest.raises(RuntimeCallError, match=r"lack cpu; .*Delegate="):
        require_delegation(found)


def test_version_1_has_nothing_for_users(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n")
    (tmp_path / "cgroup").write_text("4:cpu:/\n")
    assert find_delegation(tmp_path) == Delegation("")


@pytest.mark.parametrize(
    ("uid_map", "exists"),
    [
        ("         0          0 4294967295\n", True),
        ("         0       1000          1\n", False),
        ("0 1000 1\n1 100000 65536\n", True),
    ],
)
def test_nobody_exists_only_where_a_namespace_has_more_than_one_user(
    uid_map: str, exists: bool
) -> None:
    assert user_exists(65534, uid_map) is exists


def test_who_keeps_the_namespaces_is_ended_once(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as keeper:
        ticks = read_start_ticks(keeper.pid)
        note = tmp_path / "namespaces.json"
        note.write_text(f'{{"pid": {keeper.pid}, "start_ticks": {(ticks or 0) + 1}}}')
        end_namespaces(tmp_path)  # somebody else has that number now
        assert keeper.poll() is None
        note.write_text(f'{{"pid": {keeper.pid}, "start_ticks": {ticks}}}')
        end_namespaces(tmp_path)
        assert keeper.wait(10) == -9
    end_namespaces(tmp_path)
    assert list(tmp_path.iterdir()) == []
