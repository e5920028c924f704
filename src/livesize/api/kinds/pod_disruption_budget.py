"""Disruption budgets: how many of a set of pods may be evicted at a time."""

from __future__ import annotations

from collections.abc import Callable

from livesize.api import roles
from livesize.api.columns import (
    AGE,
    NAME,
    Column,
)
from livesize.api.disruption import ALWAYS_ALLOW, IF_HEALTHY_BUDGET, judge_eviction
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS
from livesize.api.objects import Object, lookup
from livesize.api.schema.fields import (
    Message,
    Type,
    integer,
    list_of,
    map_of,
    object_of,
    scalar,
    string,
)
from livesize.api.schema.meta import Condition, LabelSelector, TypedObject
from livesize.api.validation.choices import one_of
from livesize.api.validation.selectors import validate_selector
from livesize.api.validation.shares import validate_share

DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    True,
    "poddisruptionbudget",
    ("pdb",),
)
POLICY = "io.k8s.api.policy.v1"


class PodDisruptionBudgetSpec(Message, package=POLICY):
    minAvailable = scalar(Type.INT_OR_STRING, 1)
    selector = object_of(LabelSelector, 2, keeps_zero=True)
    maxUnavailable = scalar(Type.INT_OR_STRING, 3)
    unhealthyPodEvictionPolicy = string(4, keeps_zero=True)


class PodDisruptionBudgetStatus(Message, package=POLICY):
    observedGeneration = integer(1)
    disruptedPods = map_of(Type.TIME, 2)
    disruptionsAllowed = integer(3, keeps_zero=True)
    currentHealthy = integer(4, keeps_zero=True)
    desiredHealthy = integer(5, keeps_zero=True)
    expectedPods = integer(6, keeps_zero=True)
    conditions = list_of(Condition, 7, key="type")


class PodDisruptionBudget(TypedObject, package=POLICY):
    spec = object_of(PodDisruptionBudgetSpec, 2)
    status = object_of(PodDisruptionBudgetStatus, 3)


def validate_disruption_budget(budget: Object) -> list[FieldError]:
    spec = budget.get("spec") or {}
    errors: list[FieldError] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        errors.append(FieldError(FieldErrorKind.INVALID, "spec", detail, spec))
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            errors += validate_share(spec[name], f"spec.{name}")
    policy, field = spec.get("unhealthyPodEvictionPolicy"), "spec.unhealthyPodEvictionPolicy"
    if policy is not None:
        errors += one_of(policy, (IF_HEALTHY_BUDGET, ALWAYS_ALLOW), field)
    return errors + validate_selector(spec.get("selector") or {})


def _share(field: str) -> Callable[[Object, float], str]:
    """minAvailable or maxUnavailable of a disruption budget."""
    return lambda budget, _now: str(lookup(budget, "spec", field, default="N/A"))


DISRUPTION_BUDGET = Kind(
    DISRUPTION_BUDGETS,
    shape=PodDisruptionBudget,
    validate=validate_disruption_budget,
    subresources={"status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    judge_eviction=judge_eviction,
    roles=roles.combine(
        roles.EDITED, roles.STATUS, {roles.Role.CONTROLLER: {"status": roles.COLLECT}}
    ),
    columns=(
        NAME,
        Column("Min Available", _share("minAvailable")),
        Column("Max Unavailable", _share("maxUnavailable")),
        Column(
            "Allowed Disruptions",
            lambda budget, _now: lookup(budget, "status", "disruptionsAllowed", default=0),
            "integer",
        ),
        AGE,
    ),
)
