"""Which control groups a machine has, by its mount table."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups, parse_mounts
from livesize.runtime.cgroups.interface import group_path, shrink_margin
from livesize.runtime.cgroups.v1 import CgroupsV1
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import ContainerGroup, PodGroup, RuntimeCallError

V1 = """\
24 1 0:21 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw shared:9 master:1 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
"""


def test_controllers_that_share_a_mount_are_found() -> None:
    mounts = parse_mounts(V1)
    assert mounts.unified == ()
    assert mounts.controllers == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory",
        "pids": "/sys/fs/cgroup/pids",
    }


def test_a_mount_with_a_space_is_read_as_it_is() -> None:
    line = r"35 30 0:31 / /mnt/my\040groups rw - cgroup2 cgroup2 rw"
    assert parse_mounts(line).unified == ("/mnt/my groups",)


@pytest.mark.parametrize(
    ("controllers", "driver"),
    [
        pytest.param("cpuset cpu io memory pids", CgroupsV2, id="a full tree is taken"),
        pytest.param("hugetlb", CgroupsV1, id="an empty tree beside version 1 is not"),
    ],
)
def test_the_driver(tmp_path: Path, controllers: str, driver: type) -> None:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    table = tmp_path / "mountinfo"
    table.write_text(f"{V1}40 30 0:40 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert isinstance(open_cgroups(SystemClock(), table), driver)


def test_a_machine_without_control_groups_is_told_what_is_missing(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("24 1 0:21 / /sys rw - sysfs sysfs rw\n")
    with pytest.raises(RuntimeCallError, match="mount cgroup2"):
        open_cgroups(SystemClock(), table)


def test_where_groups_stand() -> None:
    assert group_path("livesize/n1", PodGroup("u-1")) == "livesize/n1/pod-u-1"
    assert group_path("livesize/n1", ContainerGroup("u-1", "tasks")) == (
        "livesize/n1/pod-u-1/c-tasks"
    )


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_name_leads_out_of_the_root(uid: str, name: str) -> None:
    try:
        path = group_path("root", ContainerGroup(uid, name))
    except RuntimeCallError:
        return
    assert path.split("/") == ["root", f"pod-{uid}", f"c-{name}"]


@given(st.integers(min_value=0, max_value=1 << 50))
def test_the_margin_leaves_a_limit_that_can_be_reached(target: int) -> None:
    margin = shrink_margin(target)
    assert 0 <= margin <= target // 8
    assert margin >= min(32 * 1024 * 1024, target // 8)
