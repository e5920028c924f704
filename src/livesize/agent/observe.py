"""Reads one pod from the machine, into an immutable snapshot."""

from __future__ import annotations

import msgspec

from livesize.agent.resize.plan import PodObservation
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    PodGroup,
    PodView,
    Runtime,
)


class PodSnapshot(msgspec.Struct, frozen=True):
    """``view`` None: the machine does not have the pod. ``groups`` None: nor its group."""

    view: PodView | None
    groups: PodObservation | None

    @property
    def containers(self) -> dict[str, ContainerView]:
        return {} if self.view is None else {one.name: one for one in self.view.containers}


def observe_pod(runtime: Runtime, uid: str) -> PodSnapshot:
    view = runtime.pod(uid)
    if view is None:
        return PodSnapshot(None, None)
    try:
        pod = runtime.read(PodGroup(uid)).limits
    except GoneError:
        return PodSnapshot(view, None)
    containers: dict[str, KernelLimits] = {}
    for container in view.containers:
        # Only what runs has limits; the rest gets them when it starts again.
        if container.phase is not ContainerPhase.RUNNING:
            continue
        try:
            containers[container.name] = runtime.read(ContainerGroup(uid, container.name)).limits
        except GoneError:
            continue
    return PodSnapshot(view, PodObservation(pod, containers))
