"""Picks the shape of a pod."""

from __future__ import annotations

from livesize.agent.dependencies import AgentDependencies
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.resize.hooks import ResizeHooks
from livesize.agent.resize.shape import ContainersShape
from livesize.agent.shape import Shape
from livesize.agent.vm.shape import VmShape
from livesize.api.resources import is_vm


def shape_of(dependencies: AgentDependencies, record: PodRecord) -> Shape:
    """A VM on a node without virtual machines was not let in, and only rests or is removed."""
    if is_vm(record.pod) and dependencies.vms is not None:
        return VmShape(dependencies.vms, record, dependencies)
    return ContainersShape(
        dependencies.runtime,
        record,
        dependencies.machine.memory_bytes,
        dependencies.volumes,
        ResizeHooks(dependencies, record),
        dependencies.cpus,
    )
