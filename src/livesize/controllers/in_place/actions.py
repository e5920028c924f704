"""What the controller does for a workload, as values; a plan is an order of them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.objects import Object
from livesize.api.reasons import EventReason


class AdjustPod(msgspec.Struct, frozen=True, tag=True):
    """Policies, annotations or the label of its revision: a strategic merge patch of the pod."""

    pod: Object
    patch: Object


class ResizePod(msgspec.Struct, frozen=True, tag=True):
    """A strategic merge patch for pods/resize."""

    pod: Object
    patch: Object


class EvictPod(msgspec.Struct, frozen=True, tag=True):
    pod: Object
    message: str


class WriteWorkload(msgspec.Struct, frozen=True, tag=True):
    """Hold again, lower the partition, revert or release: the whole object, in the version that was
    read. ``event``: what people are told of it."""

    workload: Object
    event: EventReason | None = None
    message: str = ""


class SetReplicaSetTemplate(msgspec.Struct, frozen=True, tag=True):
    """The whole object, in the version that was read."""

    replica_set: Object


class DeleteReplicaSet(msgspec.Struct, frozen=True, tag=True):
    """An empty one with the very template that another one is to have."""

    replica_set: Object


class ReportStatus(msgspec.Struct, frozen=True, tag=True):
    """``event``: what keeps the resize from its end, where that is new."""

    status: str
    event: EventReason | None = None
    message: str = ""


PodAction: TypeAlias = AdjustPod | ResizePod
WorkloadAction: TypeAlias = (
    PodAction | EvictPod | WriteWorkload | SetReplicaSetTemplate | DeleteReplicaSet | ReportStatus
)


class WorkloadPlan(msgspec.Struct, frozen=True):
    """``wait_seconds``: after which another plan is due without an event. ``silent``: uids of the
    pods whose node has not judged their resize."""

    actions: tuple[WorkloadAction, ...] = ()
    wait_seconds: float | None = None
    silent: tuple[str, ...] = ()


NOTHING = WorkloadPlan()
