"""What a plan is made from: a workload, what belongs to it, and what was answered. Pure.

Objects are those of the caches. Two facts stand in no object, and the controller remembers them as
long as it lives; the next one finds them out again:

    a refusal    what the API server said to a patch of a pod; the same patch is not sent again
    a silence    since when a node has not judged a resize
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping

import msgspec

from livesize.api.disruption import is_healthy, protects
from livesize.api.objects import Object, generation_of, lookup, name_of

REVISION_LABEL = "controller-revision-hash"
NOTED = "livesize.dev/noted-revision"
"""Annotation of a pod: whose policies and annotations it has been given, while its label does not
say so yet."""


class RefusalKind(enum.Enum):
    CAPACITY = "capacity"
    """More than its node has: the same as infeasible (newer Kubernetes refuses it at once)."""
    INVALID = "invalid"
    """Never, on this pod."""
    FORBIDDEN = "forbidden"
    """Not now, and a new pod would be refused as well: quotas, ranges of limits."""


class PatchRefusal(msgspec.Struct, frozen=True):
    """``since``: when this patch was refused first; ``time``: last."""

    patch: Object
    kind: RefusalKind
    message: str
    since: float
    time: float


class Answers(msgspec.Struct, frozen=True):
    """By the uid of a pod. ``silences``: generation of the pod, and since when."""

    refusals: Mapping[str, PatchRefusal] = {}
    silences: Mapping[str, tuple[int, float]] = {}


class WorkloadView(msgspec.Struct, frozen=True):
    """``pods``: that the workload controls, or one of its ReplicaSets. ``revisions``: templates of
    a StatefulSet by the names of its ControllerRevisions. ``budgets``: of the namespace."""

    workload: Object
    pods: tuple[Object, ...]
    revisions: Mapping[str, Object] = {}
    replica_sets: tuple[Object, ...] = ()
    budgets: tuple[Object, ...] = ()
    answers: Answers = Answers()


def revision_template(revision: Object) -> Object:
    """The template in a ControllerRevision of a StatefulSet."""
    template: Object = lookup(revision, "data", "spec", "template", default={})
    return {name: part for name, part in template.items() if name != "$patch"}


def revision_of(pod: Object) -> str:
    labels = pod["metadata"].get("labels")
    return str(labels.get(REVISION_LABEL, "")) if labels else ""


def noted_revision_of(pod: Object) -> str:
    """The revision whose policies and annotations it has."""
    annotations = pod["metadata"].get("annotations")
    noted = annotations.get(NOTED) if annotations else None
    return str(noted) if noted else revision_of(pod)


def ordinal_of(pod: Object) -> int:
    """The number at the end of its name; -1 where there is none."""
    return _ordinal(name_of(pod))


@functools.lru_cache(4096)
def _ordinal(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def has_budget(pod: Object, view: WorkloadView) -> bool:
    return any(protects(budget, pod) for budget in view.budgets)


def may_be_disrupted(pod: Object, view: WorkloadView) -> bool:
    """Every budget that protects it allows a disruption now; or it serves nobody anyway."""
    if not is_healthy(pod):
        return True
    return all(_allows(budget) for budget in view.budgets if protects(budget, pod))


def _allows(budget: Object) -> bool:
    status = budget.get("status") or {}
    counted = (status.get("observedGeneration") or 0) >= generation_of(budget)
    return counted and (status.get("disruptionsAllowed") or 0) > 0
