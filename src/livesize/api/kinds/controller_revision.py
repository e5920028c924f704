"""Controller revisions: what a workload's template was, kept by its controller to go back to."""

from __future__ import annotations

from livesize.api import roles
from livesize.api.columns import AGE, NAME, NONE, Column, at
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.schema.fields import Type, integer, scalar
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.workloads import APPS
from livesize.api.validation.shares import validate_counts

CONTROLLER_REVISIONS = Resource(
    "apps", "v1", "controllerrevisions", "ControllerRevision", True, "controllerrevision"
)


class ControllerRevision(TypedObject, package=APPS):
    """A state of a workload's template, which never changes."""

    data = scalar(
        Type.FIELDS,
        2,
        keeps_zero=True,
        description="What is patched into the workload to go back to this revision.",
    )
    revision = integer(3, keeps_zero=True, description="Its place in the history.")


def default_controller_revision(revision: Object) -> Object:
    return {"revision": 0, **revision}


def validate_controller_revision(revision: Object) -> list[FieldError]:
    errors = validate_counts(revision, "", "revision")
    if revision.get("data") is None:
        errors.append(FieldError(FieldErrorKind.REQUIRED, "data", "data is mandatory"))
    return errors


def validate_controller_revision_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_controller_revision(new)
    if new.get("data") != old.get("data"):
        detail = "field is immutable"
        errors.append(FieldError(FieldErrorKind.INVALID, "data", detail, new.get("data")))
    return errors


def _controller(revision: Object, _now: float) -> str:
    """statefulset.apps/web"""
    for owner in lookup(revision, "metadata", "ownerReferences", default=[]):
        if owner.get("controller"):
            group = str(owner.get("apiVersion")).rpartition("/")[0]
            kind = str(owner.get("kind")).lower() + (f".{group}" if group else "")
            return f"{kind}/{owner.get('name')}"
    return NONE


CONTROLLER_REVISION = Kind(
    CONTROLLER_REVISIONS,
    shape=ControllerRevision,
    defaults=default_controller_revision,
    validate=validate_controller_revision,
    validate_update=validate_controller_revision_update,
    roles=roles.combine(roles.RULING, {roles.Role.CONTROLLER: {"": roles.ALL}}),
    columns=(
        NAME,
        Column("Controller", _controller),
        Column("Revision", at("revision", default="0")),
        AGE,
    ),
)
