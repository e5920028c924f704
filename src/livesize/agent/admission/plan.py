"""Decides what this node takes in: new pods, and resizes of those it has. Pure.

A new pod is admitted or rejected, for good. A resize is accepted, deferred (it would fit an empty
node, not this one now) or infeasible (it can never fit here). Only what grows is judged, each
resource alone, so a pure shrink never waits, and going back to a size still held is always
possible (decisions 6 to 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from livesize.agent.admission.support import unsupported_field
from livesize.api.accounting import Fits, NeverFits, NoRoomNow, fits, fits_growing, footprint
from livesize.api.objects import Object, lookup
from livesize.api.qos import qos_class
from livesize.api.reasons import Reason
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_phase import ResizePhase
from livesize.api.resize_state import order_of_request, phase_of, resize_state
from livesize.api.resources import NOTHING, Amounts, ResourceName, is_vm, maximum
from livesize.api.runtime_features import NO_FEATURES, RuntimeFeatures

UNSUPPORTED = "UnsupportedByNode"
_SIDES = ("requests", "limits")


class Admit(msgspec.Struct, frozen=True, tag=True):
    pass


class Reject(msgspec.Struct, frozen=True, tag=True):
    """The pod cannot run here; its status becomes Failed with this reason and sentence."""

    reason: str
    message: str


Admission: TypeAlias = Admit | Reject


class Accept(msgspec.Struct, frozen=True, tag=True):
    pass


class Defer(msgspec.Struct, frozen=True, tag=True):
    message: str


class Infeasible(msgspec.Struct, frozen=True, tag=True):
    message: str


Verdict: TypeAlias = Accept | Defer | Infeasible


class NodeRoom(msgspec.Struct, frozen=True):
    """What the node has, and what pods other than the one being judged use of it."""

    allocatable: Amounts
    used_by_others: Amounts


def judge_new(
    pod: Object,
    room: NodeRoom,
    *,
    held: Amounts = NOTHING,
    runs_vms: bool = False,
    features: RuntimeFeatures = NO_FEATURES,
) -> Admission:
    """A new pod, at its allocated resources, or at what it is ``held`` at where that is more. The
    scheduler may have been too late (F12)."""
    unsupported = unsupported_field(pod, features)
    if is_vm(pod) and not runs_vms:
        unsupported = "spec.virtualMachine: this node runs no virtual machines"
    if unsupported:
        return Reject(UNSUPPORTED, unsupported)
    verdict = fits([room.used_by_others], maximum(footprint(pod), held), room.allocatable)
    match verdict:
        case Fits():
            return Admit()
        case NoRoomNow() | NeverFits():
            is_cpu = verdict.resource is ResourceName.CPU
            reason = Reason.OUT_OF_CPU if is_cpu else Reason.OUT_OF_MEMORY
            return Reject(reason.value, f"Pod was rejected: {verdict.sentence()}")


def judge_resize(desired: Amounts, held: Amounts, room: NodeRoom) -> Verdict:
    """``desired`` requests of a pod whose footprint is ``held`` now; both with its overhead."""
    verdict = fits_growing(desired, held, room.used_by_others, room.allocatable)
    match verdict:
        case Fits():
            return Accept()
        case NoRoomNow():
            return Defer(verdict.sentence())
        case NeverFits():
            return Infeasible(verdict.sentence())


def refusal_message(pod: Object, verdict: Defer | Infeasible, allocated: Sequence[Object]) -> str:
    """Why, the way back, and, where a restart is wished for as a way out, why that is none."""
    sentences = [verdict.message]
    if isinstance(verdict, Infeasible):
        had = "; ".join(_size_text(size) for size in allocated)
        sentences.append(f"Ask for less, or take it back by asking for what is allocated: {had}")
    if resize_state(pod).get("action") == RequestedAction.IN_PLACE_PREFERRED:
        sentences.append("A restart gives this node no more room: only another node helps")
    return ". ".join(sentences)


def _size_text(size: Object) -> str:
    amounts_text = [
        f"{resource} {':'.join(dict.fromkeys(amounts))}"
        for resource in ResourceName
        if (amounts := [size[side][resource] for side in _SIDES if resource in size.get(side, {})])
    ]
    return f"{size['name']} {' '.join(amounts_text) or 'nothing'}"


RetryKey: TypeAlias = tuple[int, int, int]
_CLASSES: dict[str, int] = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


def retry_key(pod: Object, arrival: int) -> RetryKey:
    """Deferred resizes are tried again by priority, then QoS class, then age (decisions 42)."""
    priority = int(lookup(pod, "spec", "priority", default=0))
    quality = lookup(pod, "status", "qosClass") or qos_class(pod)
    return -priority, _CLASSES[quality], arrival


def order_after_restart(pod: Object) -> tuple[bool, RetryKey]:
    """An agent that starts looks at what was deferred first, as when room appears: that was judged
    before; then at all others in the order in which they were asked (ARK)."""
    arrival = order_of_request(pod)
    if phase_of(pod) is ResizePhase.DEFERRED:
        return False, retry_key(pod, arrival)
    return True, (0, 0, arrival)
