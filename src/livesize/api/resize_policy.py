"""What a change of a resource does to a running container: three answers from three dialects.

- today's Kubernetes and ARK: ``resizePolicy`` of the container, a list;
- IBM: ``resources.resizePolicy``, a map from resource to policy;
- no policy at all: live (decisions 2).

Where IBM's map stands, a resource it does not name is RestartOnly. Both dialects may stand on one
container as long as they say the same; validation refuses the rest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from livesize.api.objects import Object, lookup
from livesize.api.resources import ResourceName, Resources


class ResizeAction(enum.IntEnum):
    """Ordered by precedence: of several, the largest wins (IBM; ARK, F6)."""

    LIVE = 1
    RESTART_CONTAINER = 2
    RESTART_POD = 3


LIST_POLICIES: dict[str, ResizeAction] = {
    "NotRequired": ResizeAction.LIVE,
    "RestartContainer": ResizeAction.RESTART_CONTAINER,
}
MAP_POLICIES: dict[str, ResizeAction] = {
    "LiveResizeable": ResizeAction.LIVE,
    "ContainerRestartOnly": ResizeAction.RESTART_CONTAINER,
    "RestartOnly": ResizeAction.RESTART_POD,
}
POLICY_WORDS: dict[ResizeAction, str] = {
    ResizeAction.LIVE: "NoRestart",
    ResizeAction.RESTART_CONTAINER: "RestartContainer",
    ResizeAction.RESTART_POD: "RestartOnly",
}
"""The documents' words for what holds, whether it was said or is the default (decisions 2)."""
_LIVE_WORD = POLICY_WORDS[ResizeAction.LIVE]
_OLD_KEYS = {"name": "resourceName", "policy": "restartPolicy"}


def policy_of(container: Object, resource: ResourceName) -> ResizeAction:
    """What a change of ``resource`` does to this (validated) container."""
    listed = listed_policy(container, resource)
    if listed is not None:
        return listed
    mapped = mapped_policy(container, resource)
    return ResizeAction.LIVE if mapped is None else mapped


def shown_policy(container: Object, name: str) -> Object:
    """What holds for each resource of a container, by default too: {name, cpu, memory}."""
    if "resizePolicy" not in container and is_always_live(container):
        return {"name": name, "cpu": _LIVE_WORD, "memory": _LIVE_WORD}
    words = {one.value: POLICY_WORDS[policy_of(container, one)] for one in ResourceName}
    return {"name": name, **words}


def listed_policy(container: Object, resource: ResourceName) -> ResizeAction | None:
    """What the container's list says; None where it says nothing."""
    for item in container.get("resizePolicy") or []:
        given = normalize_policy_item(item)
        if given.get("resourceName") == resource:
            return LIST_POLICIES.get(str(given.get("restartPolicy")))
    return None


def mapped_policy(container: Object, resource: ResourceName) -> ResizeAction | None:
    """What IBM's map says; None where there is no map."""
    policies = lookup(container, "resources", "resizePolicy")
    if not isinstance(policies, dict):
        return None
    return MAP_POLICIES.get(str(policies.get(resource, "RestartOnly")))


def is_always_live(container: Object) -> bool:
    """No policy of the container asks for a restart, whatever changes. False where it takes more
    than a look to tell."""
    if "resizePolicy" in (container.get("resources") or ()):
        return False
    listed = container.get("resizePolicy") or ()
    return all(item.get("restartPolicy") == "NotRequired" for item in listed)


def action_for(container: Object, before: Resources, after: Resources) -> ResizeAction | None:
    """What going from ``before`` to ``after`` does; None where nothing changes."""
    actions = [policy_of(container, resource) for resource in changed_resources(before, after)]
    return max(actions, default=None)


def strongest(actions: Iterable[ResizeAction | None]) -> ResizeAction | None:
    """The action that realizes them all: RestartOnly dominates the others (IBM)."""
    return max((action for action in actions if action is not None), default=None)


def changed_resources(before: Resources, after: Resources) -> tuple[ResourceName, ...]:
    return tuple(
        resource
        for resource in ResourceName
        if before.requests.amount(resource) != after.requests.amount(resource)
        or before.limits.amount(resource) != after.limits.amount(resource)
    )


def normalize_policy_item(item: Any) -> Any:
    """One item of the list in today's words: name → resourceName, policy → restartPolicy,
    NoRestart → NotRequired (decisions 1). Two spellings that contradict each other both stay,
    for validation to refuse."""
    if not isinstance(item, dict):
        return item
    written = dict(item)
    for key in ("policy", "restartPolicy"):
        if written.get(key) == "NoRestart":
            written[key] = "NotRequired"
    for old, new in _OLD_KEYS.items():
        if old in written and written.get(new, written[old]) == written[old]:
            written[new] = written.pop(old)
    return written
