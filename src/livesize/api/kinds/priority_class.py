"""Priority classes: which pods are placed first."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    at,
    truth,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.roles import RULING
from livesize.api.schema.fields import boolean, integer, string
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.choices import required_one_of

PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    False,
    "priorityclass",
    ("pc",),
)
SCHEDULING = "io.k8s.api.scheduling.v1"


class PriorityClass(TypedObject, package=SCHEDULING):
    """What pods that name it are worth."""

    value = integer(2, keeps_zero=True)
    globalDefault = boolean(3)
    description = string(4)
    preemptionPolicy = string(5, keeps_zero=True)


LARGEST_PRIORITY = 1_000_000_000


SYSTEM_PREFIX = "system-"


SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2 * LARGEST_PRIORITY,
    "system-node-critical": 2 * LARGEST_PRIORITY + 1000,
}


def default_priority_class(priority: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority", **priority}


def validate_priority_class(priority: Object) -> list[FieldError]:
    name, value = str(lookup(priority, "metadata", "name", default="")), priority.get("value", 0)
    policies = ("PreemptLowerPriority", "Never")
    errors = required_one_of(priority.get("preemptionPolicy"), policies, "preemptionPolicy")
    if name.startswith(SYSTEM_PREFIX):
        if value != SYSTEM_PRIORITIES.get(name):
            detail = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use"
                " only"
            )
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, "metadata.name", detail))
    elif value > LARGEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {LARGEST_PRIORITY}"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "value", detail))
    if not -(2**31) <= value < 2**31:
        detail = "must be a whole number of 32 bits"
        errors.append(FieldError(FieldErrorKind.INVALID, "value", detail, value))
    return errors


def validate_priority_class_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_priority_class(new)
    if new.get("value", 0) != old.get("value", 0):
        detail = "may not be changed in an update."
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "value", detail))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        kind, detail = FieldErrorKind.INVALID, "field is immutable"
        errors.append(FieldError(kind, "preemptionPolicy", detail, new.get("preemptionPolicy")))
    return errors


PRIORITY_CLASS = Kind(
    PRIORITY_CLASSES,
    shape=PriorityClass,
    defaults=default_priority_class,
    validate=validate_priority_class,
    validate_update=validate_priority_class_update,
    roles=RULING,
    columns=(
        NAME,
        Column("Value", lambda priority, _now: priority.get("value", 0), "integer"),
        Column("Global-Default", truth("globalDefault"), "boolean"),
        AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", default="")),
    ),
)
