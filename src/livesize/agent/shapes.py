"""Picks the shape of a pod."""

from __future__ import annotations

from livesize.agent.outside import Outside
from livesize.agent.pods.post import PodRecord
from livesize.agent.resize.hooks import ResizeHooks
from livesize.agent.resize.shape import ContainersShape
from livesize.agent.shape import Shape
from livesize.agent.vm.shape import VmShape
from livesize.api.resources import is_vm


def shape_of(outside: Outside, record: PodRecord) -> Shape:
    """A VM on a node without virtual machines was not let in, and only rests or is removed."""
    if is_vm(record.pod) and outside.vms is not None:
        return VmShape(outside.vms, record, outside)
    return ContainersShape(
        outside.runtime,
        record,
        outside.machine.memory_bytes,
        outside.volumes,
        ResizeHooks(outside, record),
        outside.cpus,
    )
