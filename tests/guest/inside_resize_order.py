"""Inside the guest: real files of version 2, at every step boundary containers stay in the pod.

The random plans and the groups are those of the version 1 test; what is read are the files of
version 2.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from livesize.agent.resize.apply import group_steps
from livesize.agent.resize.plan import PodObservation, plan_resize
from livesize.api.kernel_units import CgroupVersion, pod_kernel
from livesize.machinery.clock import SystemClock
from livesize.machinery.steps import CrashPoints, run_steps
from livesize.runtime.cgroups.interface import group_path
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import PodGroup, Runtime
from machine.test_resize_order_v1 import NAMES, UID, EmptyGroups, random_limits

pytestmark = pytest.mark.cgroup_v2

MOUNT = "/sys/fs/cgroup"
PLANS = 10


class Files(CrashPoints):
    """Reads the kernel's files of the pod and its containers before and after every step."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.armed = True
        self._pod = Path(MOUNT, group_path(root, PodGroup(UID)))
        self.boundaries = 0

    def reach(self, name: str) -> None:
        self.boundaries += 1
        for file in ("cpu.max", "memory.max"):
            pod, containers = self.limits(file)
            known = [one for one in containers if one is not None]
            if pod is not None:
                assert len(known) == len(containers), f"{name}: no limit in a limited pod"
                assert sum(known) <= pod, f"{name}: {file} {containers} in a pod of {pod}"

    def limits(self, file: str) -> tuple[int | None, list[int | None]]:
        containers = sorted(child for child in self._pod.iterdir() if child.is_dir())
        return _limit(self._pod / file), [_limit(child / file) for child in containers]


def _limit(path: Path) -> int | None:
    value = path.read_text().split()[0]
    return None if value == "max" else int(value)


@pytest.fixture
def groups(root_group: str) -> Iterator[EmptyGroups]:
    driver = CgroupsV2(MOUNT, SystemClock())
    driver.make(root_group)
    made = EmptyGroups(driver, root_group)
    yield made
    made.remove()
    made.remove_root()


async def test_containers_stay_within_the_pod_at_every_boundary(
    groups: EmptyGroups, root_group: str
) -> None:
    boundaries = 0
    for seed in range(PLANS):
        source = random.Random(seed)
        names = NAMES[: source.randint(1, len(NAMES))]
        before = {name: random_limits(source) for name in names}
        wanted = {name: random_limits(source) for name in names}
        pod = pod_kernel(before.values(), CgroupVersion.V2)
        pod_wanted = pod_kernel(wanted.values(), CgroupVersion.V2)
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
        assert files.limits("cpu.max") == (
            pod_wanted.cpu_quota_us,
            [wanted[name].cpu_quota_us for name in names],
        )
        assert files.limits("memory.max") == (
            pod_wanted.memory_limit_bytes,
            [wanted[name].memory_limit_bytes for name in names],
        )
        boundaries += files.boundaries
        groups.remove()
    assert boundaries > 50, "the plans had something to do"
