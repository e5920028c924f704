"""Reads one pod from the machine, into an immutable snapshot."""

from __future__ import annotations

import msgspec

from livesize.agent.resize.plan import PodObservation
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object
from livesize.api.resources import containers_of, init_containers_of
from livesize.machinery.clock import Clock
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    PodGroup,
    PodView,
    Runtime,
)
from livesize.runtime.vm import VmRuntime, VmView


class PodSnapshot(msgspec.Struct, frozen=True):
    """``view`` None: the machine does not have the pod. ``groups`` None: nor its group.
    ``vm``: the running virtual machine, as it was read last."""

    view: PodView | None
    groups: PodObservation | None
    vm: VmView | None = None

    @property
    def containers(self) -> dict[str, ContainerView]:
        return {} if self.view is None else {one.name: one for one in self.view.containers}


def all_run(pod: Object, snapshot: PodSnapshot) -> bool:
    """Every container of a pod that has no init containers."""
    if snapshot.view is None or init_containers_of(pod):
        return False
    return _running(snapshot.view) == {one["name"] for one in containers_of(pod)}


def has_lost_group(container: ContainerView, snapshot: PodSnapshot) -> bool:
    """It runs, and nothing limits it: another process moved it out of its group."""
    if container.phase is not ContainerPhase.RUNNING:
        return False
    return snapshot.groups is None or container.name not in snapshot.groups.containers


def observe_again(runtime: Runtime, uid: str, groups: PodObservation) -> PodSnapshot:
    """With limits that were read a moment ago, as long as the same containers run."""
    view = runtime.pod(uid)
    if view is not None and _running(view) == groups.containers.keys():
        return PodSnapshot(view, groups)
    return observe_pod(runtime, uid)


def _running(view: PodView) -> set[str]:
    return {one.name for one in view.containers if one.phase is ContainerPhase.RUNNING}


def observe_pod(runtime: Runtime, uid: str, vms: VmRuntime | None = None) -> PodSnapshot:
    view = runtime.pod(uid)
    if view is None:
        return PodSnapshot(None, None)
    try:
        pod = runtime.read_limits(PodGroup(uid))
    except GoneError:
        return PodSnapshot(view, None)
    containers: dict[str, KernelLimits] = {}
    for container in view.containers:
        # Only what runs has limits; the rest gets them when it starts again.
        if container.phase is not ContainerPhase.RUNNING:
            continue
        try:
            containers[container.name] = runtime.read_limits(ContainerGroup(uid, container.name))
        except GoneError:
            continue
    groups = PodObservation(pod, containers)
    vm = vms.vm(uid) if vms is not None and containers else None
    return PodSnapshot(view, groups, vm)  # also one that is suspended: its size is known


LOST_SECONDS = 0.6
"""Longer than containerd takes to say that a container has ended, and why."""


class LostGroups:
    """Which containers run without a control group: another process removed it, or moved them out.
    A runtime may remove the group of a container that has ended, and report the end a moment
    later. So only a container that still runs after that moment is lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}  # by the container's id

    def is_lost(self, view: ContainerView, snapshot: PodSnapshot) -> bool:
        if not has_lost_group(view, snapshot):
            self._since.pop(view.id, None)
            return False
        now = self._clock.monotonic()
        return now - self._since.setdefault(view.id, now) >= LOST_SECONDS

    def wait_seconds(self, snapshot: PodSnapshot) -> float:
        """Until the next one that has no group counts as lost; infinity: all have theirs."""
        views = snapshot.containers.values()
        missing = {view.id for view in views if has_lost_group(view, snapshot)}
        self._since = {one: since for one, since in self._since.items() if one in missing}
        first = min(self._since.values(), default=float("inf"))
        return max(0.0, first + LOST_SECONDS - self._clock.monotonic())
