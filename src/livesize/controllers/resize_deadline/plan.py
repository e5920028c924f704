"""Decides what becomes of a resize that takes longer than its pod allows. Pure.

Nothing is done before the deadline, except that what can never fit is not waited for. Restarting
containers is the node's own business (livesize.agent.resize.restarts). Going back is a request like
every other, and asked once: a pod that asks for its former sizes already is left alone.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.resize_deadline import Deadline, OnDeadline, deadline_of
from livesize.api.resize_progress import (
    ResizeProgress,
    Sizes,
    desired_sizes,
    progress_of,
    resizable_containers,
)
from livesize.api.resources import same_size

_SIDES = ("requests", "limits")


class LeaveAlone(msgspec.Struct, frozen=True, tag=True):
    pass


class Wait(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Revert(msgspec.Struct, frozen=True, tag=True):
    """``patch``: a strategic merge patch for pods/resize."""

    patch: Object


class Evict(msgspec.Struct, frozen=True, tag=True):
    pass


DeadlinePlan: TypeAlias = LeaveAlone | Wait | Revert | Evict


def acting_deadline(pod: Object) -> Deadline | None:
    """The deadline of a pod that stays, where something is to be done here."""
    deadline = deadline_of(pod)
    leaving = lookup(pod, "metadata", "deletionTimestamp")
    ended = lookup(pod, "status", "phase") in ("Succeeded", "Failed")
    if deadline is None or leaving or ended or deadline.action is OnDeadline.RESTART:
        return None
    return deadline


def plan_deadline(pod: Object, waited_seconds: float, former: Sizes) -> DeadlinePlan:
    """``waited_seconds``: since the resize was asked; ``former``: the sizes before it."""
    deadline, progress = acting_deadline(pod), progress_of(pod)
    if deadline is None or progress is ResizeProgress.SETTLED:
        return LeaveAlone()
    if waited_seconds < deadline.seconds and progress is not ResizeProgress.INFEASIBLE:
        return Wait(deadline.seconds - waited_seconds)
    return Evict() if deadline.action is OnDeadline.EVICT else _revert(pod, former)


def _revert(pod: Object, former: Sizes) -> DeadlinePlan:
    spec: Object = {}
    desired = desired_sizes(pod)
    for field, container in resizable_containers(pod):
        name, resources = container["name"], container.get("resources") or {}
        if name in former and not same_size(desired[name], former[name]):
            change = {"name": name, "resources": _back(resources, former[name])}
            spec.setdefault(field, []).append(change)
            if former[name].get("cells"):  # of a virtual machine
                spec["virtualMachine"] = {"numa": {"cells": former[name]["cells"]}}
    return Revert({"spec": spec}) if spec else LeaveAlone()


def _back(resources: Object, former: Object) -> Object:
    """What was not there before goes."""
    change: Object = {}
    for side in _SIDES:
        before, after = resources.get(side) or {}, former.get(side) or {}
        amounts = {name: after.get(name) for name in sorted({*before, *after})}
        if amounts:
            change[side] = amounts
    return change
