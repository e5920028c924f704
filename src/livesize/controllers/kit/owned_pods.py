"""Pods of a workload: made from its template, counted, and which of too many go first. Pure.

active      has not ended and is not being deleted
ready       its condition Ready says so
available   has been ready for minReadySeconds
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from livesize.api.conditions import find_condition, is_true
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.reasons import ConditionType
from livesize.api.resize_state import is_terminal
from livesize.api.times import parse_time
from livesize.api.vm_status import statuses_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_NUMBER = re.compile("-?[0-9]{1,10}")
_NANOSECONDS = 1e9

Rank: TypeAlias = tuple[Any, ...]


def owner_reference(resource: Resource, owner: Object) -> Object:
    """Says that ``owner`` controls an object; its deletion in the foreground waits for it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_pod(resource: Resource, owner: Object, template: Object) -> Object:
    """A pod of the template that ``owner`` controls. The API server completes its name."""
    given = template.get("metadata") or {}
    copied = {key: given[key] for key in ("labels", "annotations", "finalizers") if key in given}
    metadata = {
        **copied,
        "generateName": f"{name_of(owner)}-",
        "ownerReferences": [owner_reference(resource, owner)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def is_leaving(pod: Object) -> bool:
    return bool(lookup(pod, "metadata", "deletionTimestamp"))


def is_active(pod: Object) -> bool:
    return not is_leaving(pod) and not is_terminal(pod)


def is_terminating(pod: Object) -> bool:
    """Is being deleted, and something of it still runs."""
    return is_leaving(pod) and not is_terminal(pod)


def is_ready(pod: Object) -> bool:
    return is_true(pod, ConditionType.READY)


def min_ready_seconds(workload: Object) -> int:
    return int(lookup(workload, "spec", "minReadySeconds", default=0))


def seconds_to_available(pod: Object, ready_seconds: int, now: float) -> float | None:
    """How long the pod has to stay ready until it is available; 0: it is, None: not ready.
    ``ready_seconds``: for how long a pod of its workload has to be ready (minReadySeconds)."""
    condition = find_condition(pod, ConditionType.READY) or {}
    if condition.get("status") != "True":
        return None
    if not ready_seconds:
        return 0.0
    since = condition.get("lastTransitionTime")
    return max(0.0, parse_time(since) + ready_seconds - now) if since else None


def is_available(pod: Object, ready_seconds: int, now: float) -> bool:
    return seconds_to_available(pod, ready_seconds, now) == 0


def next_available_seconds(pods: Iterable[Object], ready_seconds: int, now: float) -> float | None:
    """When the next of these pods becomes available if it stays ready; None: none does."""
    waits = (seconds_to_available(pod, ready_seconds, now) for pod in pods)
    return min((wait for wait in waits if wait), default=None)


def first_to_go(pods: Sequence[Object], related: Iterable[Object], now: float) -> list[Object]:
    """``pods``, first those whose deletion costs least. ``related``: active pods of the same
    workload, whatever their version; a node that has many of them can spare one sooner."""
    neighbours = Counter(_node(pod) for pod in related)
    return sorted(pods, key=lambda pod: deletion_rank(pod, neighbours[_node(pod)], now))


def deletion_rank(pod: Object, neighbours: int, now: float) -> Rank:
    """Kubernetes' order: unassigned, pending, not ready, cheap, doubled up, younger, restarted
    more often. Ages count in powers of ten, so that among pods of about one age chance decides."""
    ready = find_condition(pod, ConditionType.READY) or {}
    restarts = [int(one.get("restartCount", 0)) for one in statuses_of(pod)]
    return (
        bool(_node(pod)),
        _PHASES.get(lookup(pod, "status", "phase", default="Pending"), len(_PHASES)),
        ready.get("status") == "True",
        _cost(pod),
        -neighbours,
        _age_rank(ready.get("lastTransitionTime"), now) if ready.get("status") == "True" else 0,
        -max(restarts, default=0),
        _age_rank(lookup(pod, "metadata", "creationTimestamp"), now),
        uid_of(pod),
    )


def _node(pod: Object) -> str:
    return str(lookup(pod, "spec", "nodeName", default=""))


def _cost(pod: Object) -> int:
    """A cost that is no number of 32 bits counts as none."""
    said = str(lookup(pod, "metadata", "annotations", DELETION_COST, default="0"))
    cost = int(said) if _NUMBER.fullmatch(said) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _age_rank(since: str | None, now: float) -> int:
    age = now - parse_time(since) if since else 0.0
    return int(math.log10(age * _NANOSECONDS)) if age * _NANOSECONDS >= 1 else -1
