"""The sizes of a container on a fake machine, in the units of manifests."""

from __future__ import annotations

from livesize.runtime.fake import FakeMachine
from livesize.runtime.interface import ContainerGroup
from livesize.sim.manifests import CONTAINER, CPU, MEMORY, ManifestSizes

_QUOTA_US_OF_MILLI = 100
_MIB = 1 << 20


def has_on_machine(machine: FakeMachine, uid: str, sizes: ManifestSizes) -> bool:
    real = sizes_on_machine(machine, uid)
    return real is not None and all(sizes.amount(name) == has for name, has in real.items())


def sizes_on_machine(machine: FakeMachine, uid: str) -> dict[str, int] | None:
    group = machine.groups.get(ContainerGroup(uid, CONTAINER))
    if group is None:
        return None
    quota, memory = group.limits.cpu_quota_us or 0, group.limits.memory_limit_bytes or 0
    return {CPU: quota // _QUOTA_US_OF_MILLI, MEMORY: memory // _MIB}
