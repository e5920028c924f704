"""Decides what becomes of a resize that takes longer than its pod allows. Pure.

Nothing is done before the deadline, except that what can never fit is not waited for. Restarting
containers is the node's own business (livesize.agent.resize.restarts). Going back is a request like
every other, and asked once: a pod that asks for its former sizes already is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.resize_deadline import OnDeadline, deadline_of
from livesize.api.resize_state import UNFINISHED, ResizePhase, is_terminal, phase_of, resize_state
from livesize.api.resources import is_vm, resizable_of, same_size, sidecars_of

_SIDES = ("requests", "limits")


class Rest(msgspec.Struct, frozen=True, tag=True):
    pass


class Wait(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Revert(msgspec.Struct, frozen=True, tag=True):
    """``patch``: a strategic merge patch for pods/resize."""

    patch: Object


class Evict(msgspec.Struct, frozen=True, tag=True):
    pass


Plan: TypeAlias = Rest | Wait | Revert | Evict


def plan_deadline(pod: Object, waited_seconds: float) -> Plan:
    """``waited_seconds``: since the resize was asked."""
    deadline = deadline_of(pod)
    leaving = lookup(pod, "metadata", "deletionTimestamp") or is_terminal(pod)
    if deadline is None or leaving or phase_of(pod) not in UNFINISHED:
        return Rest()
    if deadline.action is OnDeadline.RESTART:
        return Rest()
    hopeless = phase_of(pod) is ResizePhase.INFEASIBLE
    if waited_seconds < deadline.seconds and not hopeless:
        return Wait(deadline.seconds - waited_seconds)
    if deadline.action is OnDeadline.EVICT:
        return Evict()
    return _revert(pod, resize_state(pod).get("previous") or [])


def _revert(pod: Object, previous: Sequence[Object]) -> Plan:
    former = {size["name"]: size for size in previous}
    changes = {
        container["name"]: _back(container.get("resources") or {}, former[container["name"]])
        for container in resizable_of(pod)
        if container["name"] in former
        and not same_size(container.get("resources") or {}, former[container["name"]])
    }
    if not changes:
        return Rest()
    if is_vm(pod):
        (resources,) = changes.values()
        return Revert({"spec": {"virtualMachine": {"resources": resources}}})
    sidecars = sidecars_of(pod)
    spec: dict[str, list[Object]] = {}
    for name, change in changes.items():
        kind = "initContainers" if name in sidecars else "containers"
        spec.setdefault(kind, []).append({"name": name, "resources": change})
    return Revert({"spec": spec})


def _back(resources: Object, former: Object) -> Object:
    """What was not there before goes."""
    change: Object = {}
    for side in _SIDES:
        before, after = resources.get(side) or {}, former.get(side) or {}
        amounts = {name: after.get(name) for name in sorted({*before, *after})}
        if amounts:
            change[side] = amounts
    return change
