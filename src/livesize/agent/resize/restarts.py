"""Decides which containers a resize restarts, exactly once each (ARK resizePolicy, IBM). Pure.

The decision is part of the promise: it is durable, with the attempt each container is to reach,
before the first one is stopped. After a crash a container that has reached its attempt is left
alone, and one that was stopped and not started again is started, whatever its exit code says.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.pods.config import started_hash
from livesize.api.objects import Object
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_policy import ResizeAction, action_for, is_always_live, strongest
from livesize.api.resize_state import resize_state
from livesize.api.resources import parse_resources, resizable_of, same_size
from livesize.runtime.interface import ContainerPhase, ContainerView


class Overdue(enum.Enum):
    """What restarts because the resize has taken too long, beside what restarts anyway."""

    NOTHING = enum.auto()
    CHANGED = enum.auto()  # the containers that do not have their size (on-deadline Restart)
    ALL = enum.auto()  # the whole pod (InPlaceResizePreferred; decisions 37)


def plan_restarts(
    pod: Object,
    entry: Allocation,
    views: Mapping[str, ContainerView],
    *,
    overdue: Overdue = Overdue.NOTHING,
) -> dict[str, int]:
    """Containers that restart to reach ``entry``'s sizes, with the attempt they are to reach."""
    if entry.settled:
        return {}
    restarting = dict(entry.restarting)
    for container in _restarted(pod, entry, overdue):
        view = views.get(container["name"])
        if view is None or view.phase is not ContainerPhase.RUNNING:
            continue
        target = restarting.get(view.name)
        reached_for_older = (
            target is not None
            and view.attempt >= target
            and view.hash != started_hash(container, entry)
        )
        if target is None or reached_for_older:
            restarting[view.name] = view.attempt + 1
    return restarting


def is_due(entry: Allocation, view: ContainerView) -> bool:
    return view.attempt < entry.restarting.get(view.name, 0)


def _restarted(pod: Object, entry: Allocation, overdue: Overdue) -> list[Object]:
    match overdue:
        case Overdue.NOTHING:
            return _demanded(pod, entry)
        case Overdue.CHANGED:
            return _changed(pod, entry)
        case Overdue.ALL:
            return resizable_of(pod)


def _changed(pod: Object, entry: Allocation) -> list[Object]:
    return [
        container
        for container in resizable_of(pod)
        if not same_size(entry.size_before(container["name"]), entry.size(container["name"]))
    ]


def _demanded(pod: Object, entry: Allocation) -> list[Object]:
    containers = resizable_of(pod)
    requested = _requests_restart(pod, entry)
    if not requested and all(map(is_always_live, containers)):
        return []
    actions = {
        container["name"]: action_for(
            container,
            parse_resources(entry.size_before(container["name"])),
            parse_resources(entry.size(container["name"])),
        )
        for container in containers
    }
    action = strongest(actions.values())
    if action is ResizeAction.RESTART_POD or (action is not None and requested):
        return containers
    return [
        container
        for container in containers
        if actions[container["name"]] is ResizeAction.RESTART_CONTAINER
    ]


def _requests_restart(pod: Object, entry: Allocation) -> bool:
    """The resize that this promise answers was requested with action Restart."""
    state = resize_state(pod)
    return (
        state.get("generation") == entry.generation
        and state.get("action") == RequestedAction.RESTART
    )
