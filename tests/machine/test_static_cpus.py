"""`livesize up --cpu-policy static` on this machine: files, processes, and a kill -9 in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.api.cpu_list import format_cpu_list, parse_cpu_list
from system.groups import group_of
from system.up import Up, container

pytestmark = pytest.mark.containers

POLICY = ("--cpu-policy", "static")
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture(params=["process", pytest.param("containerd", marks=pytest.mark.matrix)])
def up(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Up]:
    if request.param == "containerd":
        request.getfixturevalue("needs_containerd")
    up = Up(tmp_path / "up", runtime=request.param, allocatable=f"cpu={len(CPUS)}")
    up.start(*POLICY)
    yield up
    up.end()


def runs_on(up: Up, pod: str) -> list[int]:
    """The group and its process agree."""
    group = group_of(up, pod, "app")
    cpus = parse_cpu_list(group.cpus())
    assert os.sched_getaffinity(group.main_pid()) == set(cpus)
    return list(cpus)


def refused(up: Up, pod: str, cpu: str) -> str:
    size = {"cpu": cpu}
    patch = {"name": "app", "resources": {"requests": size, "limits": size}}
    code, answer = up.patch_resize(pod, {"spec": {"containers": [patch]}})
    assert code == 200, answer
    state = up.wait_until(
        lambda: (found := up.pod(pod)["status"]["resizeState"])["phase"] == "Infeasible" and found,
        f"{pod} cannot have {cpu}",
    )
    return str(state["message"])


def test_a_cpu_is_one_containers_alone_and_stays_so_through_kill_9(up: Up) -> None:
    first, own, *rest = CPUS
    up.create_pod("shared", [container("app", "100m", "32Mi")], hostNetwork=True)
    assert runs_on(up, "shared") == CPUS
    up.create_pod("db", [container("app", "1", "32Mi")], hostNetwork=True)
    assert (runs_on(up, "db"), runs_on(up, "shared")) == ([own], [first, *rest])
    pid = group_of(up, "db", "app").main_pid()

    assert "is not whole" in refused(up, "shared", "200m")
    assert "static CPU policy" in refused(up, "db", str(len(CPUS)))
    events = up.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    told = {one["involvedObject"]["name"] for one in events if one["reason"] == "ResizeInfeasible"}
    assert told == {"shared", "db"}

    up.kill()
    up.start(*POLICY)
    up.wait_running("db")
    up.create_pod("late", [container("app", "100m", "32Mi")], hostNetwork=True)
    assert (runs_on(up, "db"), runs_on(up, "late")) == ([own], [first, *rest])
    assert group_of(up, "db", "app").main_pid() == pid, "nothing restarted"

    up.delete_pod("db")
    up.wait_until(
        lambda: group_of(up, "late", "app").cpus() == format_cpu_list(CPUS), "all is shared"
    )
