"""Real cgroup files, version 1: at every step boundary the containers stay within the pod.

ARK, "Container resource limit update ordering". Random plans, held at each boundary; what is
checked is what the kernel's own files say, not what was written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from livesize.agent.resize.apply import group_steps
from livesize.agent.resize.plan import PodObservation, plan_resize
from livesize.api.group_changes import GroupChange, SetCpu, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits, pod_kernel
from livesize.machinery.clock import SystemClock
from livesize.machinery.steps import CrashPoints, run_steps
from livesize.runtime.cgroups.detect import open_cgroups, parse_mounts
from livesize.runtime.cgroups.interface import CgroupDriver, group_path, read_setting
from livesize.runtime.interface import ContainerGroup, Group, PodGroup, Runtime

pytestmark = pytest.mark.containers

UID = "order"
NAMES = ("a", "b", "c")
MIB = 1024 * 1024
NO_LIMIT_FROM = 1 << 62


class EmptyGroups:
    """Groups without processes, through the real driver: the part of a Runtime a plan needs."""

    def __init__(self, driver: CgroupDriver, root: str) -> None:
        self._driver = driver
        self._root = root

    def make(self, pod: KernelLimits, containers: dict[str, KernelLimits]) -> None:
        sizes: list[tuple[Group, KernelLimits]] = [(PodGroup(UID), pod)]
        sizes += [(ContainerGroup(UID, name), size) for name, size in containers.items()]
        for group, size in sizes:
            path = group_path(self._root, group)
            self._driver.make(path)
            self._driver.write_cpu(path, size.cpu_weight, size.cpu_quota_us)
            self._driver.write_memory(path, size.memory_limit_bytes)

    def remove(self) -> None:
        groups: list[Group] = [*(ContainerGroup(UID, name) for name in NAMES), PodGroup(UID)]
        for group in groups:
            self._driver.remove(group_path(self._root, group))

    def remove_root(self) -> None:
        self._driver.remove(self._root)

    def read_limits(self, group: Group) -> KernelLimits:
        return self._driver.read_limits(group_path(self._root, group))

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        return read_setting(self._driver, group_path(self._root, group), change)

    async def write(self, group: Group, change: GroupChange) -> None:
        path = group_path(self._root, group)
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                self._driver.write_cpu(path, weight, quota_us)
            case SetMemory(limit_bytes=limit_bytes):
                self._driver.write_memory(path, limit_bytes)


class Files(CrashPoints):
    """Reads the kernel's files of the pod and its containers before and after every step."""

    def __init__(self, root: str) -> None:
        super().__init__()
        mounts = parse_mounts(Path("/proc/self/mountinfo").read_text()).controllers
        pod = group_path(root, PodGroup(UID))
        self._cpu = Path(mounts["cpu"]) / pod
        self._memory = Path(mounts["memory"]) / pod
        self.boundaries = 0

    def reach(self, name: str) -> None:
        self.boundaries += 1
        self._check(name, self._cpu, "cpu.cfs_quota_us")
        self._check(name, self._memory, "memory.limit_in_bytes")

    def limits(self, file: str) -> tuple[int | None, list[int | None]]:
        pod = self._cpu if file.startswith("cpu.") else self._memory
        containers = sorted(child for child in pod.iterdir() if child.is_dir())
        return _limit(pod / file), [_limit(child / file) for child in containers]

    def _check(self, name: str, pod: Path, file: str) -> None:
        limit, containers = self.limits(file)
        if limit is None:
            return
        known = [one for one in containers if one is not None]
        assert len(known) == len(containers), f"{name}: a container without limit in a limited pod"
        assert sum(known) <= limit, f"{name}: {file} {containers} in a pod of {limit}"


def _limit(path: Path) -> int | None:
    value = int(path.read_text())
    return None if value < 0 or value >= NO_LIMIT_FROM else value


@pytest.fixture
def groups(root_group: str) -> Iterator[EmptyGroups]:
    driver = open_cgroups(SystemClock())
    if driver.version is not CgroupVersion.V1:
        pytest.fail("this machine has cgroup v2: run the cgroup_v2 tier")
    driver.make(root_group)
    made = EmptyGroups(driver, root_group)
    yield made
    made.remove()
    made.remove_root()


def random_limits(source: random.Random) -> KernelLimits:
    return KernelLimits(
        source.randint(2, 2000),
        source.choice([None, source.randint(1000, 200_000), source.randint(1000, 200_000)]),
        source.choice([None, source.randint(4, 64) * MIB, source.randint(4, 64) * MIB]),
    )


async def test_containers_stay_within_the_pod_at_every_boundary(
    groups: EmptyGroups, root_group: str
) -> None:
    boundaries = 0
    for seed in range(60):
        source = random.Random(seed)
        names = NAMES[: source.randint(1, len(NAMES))]
        before = {name: random_limits(source) for name in names}
        wanted = {name: random_limits(source) for name in names}
        pod = pod_kernel(before.values(), CgroupVersion.V1)
        pod_wanted = pod_kernel(wanted.values(), CgroupVersion.V1)
        groups.make(pod, before)
        plan = plan_resize(PodObservation(pod, before), wanted, pod_wanted)
        files = Files(root_group)
        outcome = await run_steps(
            "resize",
            group_steps(cast("Runtime", groups), UID, plan),
            clock=SystemClock(),
            points=files,
            errors=(),
        )
        assert outcome.done, seed
        assert files.limits("cpu.cfs_quota_us") == (
            pod_wanted.cpu_quota_us,
            [wanted[name].cpu_quota_us for name in names],
        )
        assert files.limits("memory.limit_in_bytes") == (
            pod_wanted.memory_limit_bytes,
            [wanted[name].memory_limit_bytes for name in names],
        )
        boundaries += files.boundaries
        groups.remove()
    assert boundaries > 300, "the plans had something to do"
