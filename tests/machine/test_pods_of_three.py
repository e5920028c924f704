"""Pods of three containers, resized live on each runtime: the kernel's files are the witness."""

from __future__ import annotations

import time
from typing import Any

import pytest

from system.groups import GroupFiles, cpu_seconds_used, group_of, start_time
from system.up import Up, container

pytestmark = pytest.mark.containers

Size = tuple[str, str]
NAMES = ("a", "b", "c")
BEFORE: dict[str, Size] = {"a": ("100m", "32Mi"), "b": ("200m", "48Mi"), "c": ("300m", "64Mi")}
MEBIBYTE = 1 << 20

# One after the other.
CHANGES: dict[str, dict[str, Size]] = {
    "grow": {"a": ("200m", "64Mi"), "b": ("300m", "80Mi"), "c": ("400m", "96Mi")},
    "shrink": {"a": ("50m", "16Mi"), "b": ("100m", "24Mi"), "c": ("150m", "32Mi")},
    "opposite directions": {"a": ("300m", "16Mi"), "c": ("100m", "128Mi")},
    "one up and one down": {"a": ("200m", "24Mi"), "b": ("200m", "16Mi")},
    "cpu only": {"a": ("150m", "24Mi"), "b": ("300m", "16Mi")},
    "memory only": {"b": ("300m", "96Mi"), "c": ("100m", "32Mi")},
}


class Three:
    """A running pod, and what the machine said of it at the beginning."""

    def __init__(self, up: Up, containers: list[dict[str, Any]]) -> None:
        self.up = up
        up.create_pod("three", containers, hostNetwork=True)
        self.groups: dict[str, GroupFiles] = {n: group_of(up, "three", n) for n in NAMES}
        self.pids = {name: group.main_pid() for name, group in self.groups.items()}
        self.began = {name: start_time(pid) for name, pid in self.pids.items()}

    def resize(self, resources: dict[str, dict[str, Any]]) -> None:
        containers = [{"name": name, "resources": one} for name, one in resources.items()]
        code, answer = self.up.patch_resize("three", {"spec": {"containers": containers}})
        assert code == 200, answer
        self.up.wait_resized("three")

    def same_processes(self) -> bool:
        pids = {name: group.main_pid() for name, group in self.groups.items()}
        began = {name: start_time(pid) for name, pid in pids.items()}
        return (pids, began) == (self.pids, self.began)

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.up.pod("three")["status"]["containerStatuses"]}

    def check_limits(self, limits: dict[str, tuple[int | None, int | None]]) -> None:
        """Milli-CPU and MiB of each container; the pod has the sum, or no limit."""
        for name, (cpu_milli, memory_mib) in limits.items():
            assert self.groups[name].cpu_quota_us() == _times(cpu_milli, 100), name
            assert self.groups[name].memory_limit_bytes() == _times(memory_mib, MEBIBYTE), name
        pod = self.groups["a"].pod()
        assert pod.cpu_quota_us() == _times(_sum(cpu for cpu, _ in limits.values()), 100)
        assert pod.memory_limit_bytes() == _times(_sum(mib for _, mib in limits.values()), MEBIBYTE)

    def check_unrestarted_and_told(self) -> None:
        assert self.same_processes()
        spec = {one["name"]: one["resources"] for one in self.up.pod("three")["spec"]["containers"]}
        for name, status in self.statuses().items():
            assert status["restartCount"] == 0
            assert status["resources"] == spec[name]


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None else number * factor


def _sum(numbers: Any) -> int | None:
    known = list(numbers)
    return None if None in known else sum(known)


def numbers(sizes: dict[str, Size]) -> dict[str, tuple[int | None, int | None]]:
    return {n: (int(c.removesuffix("m")), int(m.removesuffix("Mi"))) for n, (c, m) in sizes.items()}


def amounts(size: Size) -> dict[str, str]:
    return {"cpu": size[0], "memory": size[1]}


def burstable(name: str, request: Size) -> dict[str, Any]:
    return {**container(name, *request), "resources": {"requests": amounts(request)}}


# ARK, "Test Cases": for an existing container workload with C CPUs and memory X, here 1 and 64 MiB,
# with a Delta of 32 MiB. Each ends where it began, or where the next begins.
ARK_CASES: dict[str, list[tuple[int, int]]] = {
    "set VM memory to X + Delta; then reduce it to X": [(1, 96), (1, 64)],
    "set memory to X + Delta; repeat to increase memory to X + 3*Delta; then reduce memory to X": [
        (1, 96),
        (1, 128),
        (1, 160),
        (1, 64),
    ],
    "set VM vcpus to C+1, then reduce it to C": [(2, 64), (1, 64)],
    "set VM vcpus to C + 3, then reduce it to C+1": [(4, 64), (2, 64)],
    "do combined changes in #1 and #3": [(2, 96), (1, 64)],
    "do combined changes in #2 and #4": [(4, 96), (4, 128), (4, 160), (2, 64)],
}


def test_the_cases_of_ark(up: Up) -> None:
    three = Three(up, [container("a", "1", "64Mi"), *(container(n, "10m", "8Mi") for n in "bc")])
    for case, sizes in ARK_CASES.items():
        for cpus, memory_mib in sizes:
            size = amounts((str(cpus), f"{memory_mib}Mi"))
            three.resize({"a": {"requests": size, "limits": size}})
            limits = {"a": (cpus * 1000, memory_mib), "b": (10, 8), "c": (10, 8)}
            assert three.same_processes(), case
            three.check_limits(limits)
    three.check_unrestarted_and_told()


def test_a_guaranteed_pod(up: Up) -> None:
    three = Three(up, [container(name, *BEFORE[name]) for name in NAMES])
    sizes = BEFORE
    for change in CHANGES.values():
        sizes = {**sizes, **change}
        three.resize(
            {
                name: {"requests": amounts(one), "limits": amounts(one)}
                for name, one in change.items()
            }
        )
        three.check_limits(numbers(sizes))
        three.check_unrestarted_and_told()


def test_a_burstable_pod(up: Up) -> None:
    """Without limits at first: adding them is a resize too."""
    three = Three(up, [burstable(name, ("20m", "8Mi")) for name in NAMES])
    three.check_limits(dict.fromkeys(NAMES, (None, None)))
    sizes = BEFORE
    for change in ({"added limits": BEFORE} | CHANGES).values():
        sizes = {**sizes, **change}
        three.resize({name: {"limits": amounts(one)} for name, one in change.items()})
        three.check_limits(numbers(sizes))
        three.check_unrestarted_and_told()


def test_exactly_the_container_with_restart_container_restarts_once(up: Up) -> None:
    containers = [container(name, *BEFORE[name]) for name in NAMES]
    containers[1]["resizePolicy"] = [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    ]
    three = Three(up, containers)
    size = amounts(("200m", "96Mi"))
    three.resize({name: {"requests": size, "limits": size} for name in NAMES})
    assert {n: one["restartCount"] for n, one in three.statuses().items()} == {
        "a": 0,
        "b": 1,
        "c": 0,
    }
    three.groups["b"] = group_of(up, "three", "b")
    three.check_limits(dict.fromkeys(NAMES, (200, 96)))
    kept = {name: three.groups[name].main_pid() for name in ("a", "c")}
    assert kept == {name: three.pids[name] for name in ("a", "c")}
    assert three.groups["b"].main_pid() != three.pids["b"]


def test_usage_follows_the_quota_and_throttling_stops(up: Up) -> None:
    """Over 10 CFS periods at most 10 % above the quota; with room to spare nothing is held up."""
    busy = "while :; do :; done"
    containers = [container(name, *BEFORE[name]) for name in NAMES]
    containers[0] = container("a", "100m", "32Mi", command=busy)
    three = Three(up, containers)
    group = three.groups["a"]
    for cpu, most in (("300m", 0.33), ("100m", 0.11)):
        size = amounts((cpu, "32Mi"))
        three.resize({"a": {"requests": size, "limits": size}})
        time.sleep(0.1)  # the period that was under way
        assert cpu_seconds_used(group, over_seconds=1.0) <= most
    size = amounts(("2", "32Mi"))
    three.resize({"a": {"requests": size, "limits": size}})
    time.sleep(0.2)
    throttled = group.throttled_periods()
    time.sleep(0.5)
    assert group.throttled_periods() == throttled
    assert three.same_processes()
