"""Checks that the kinds which make pods have in common, with Kubernetes' sentences.

A template that cannot become pods is refused with its workload, so that no controller tries in
vain. What an update leaves as it was is not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from livesize.api.errors import FieldError, FieldErrorKind, nested
from livesize.api.objects import Object, evolve, lookup
from livesize.api.resize_deadline import ON_DEADLINE
from livesize.api.validation.choices import one_of
from livesize.api.validation.counts import too_many_parts
from livesize.api.validation.pod import validate_pod_template
from livesize.api.validation.resize_annotations import (
    validate_annotated_policies,
    validate_resize_annotations,
)
from livesize.api.validation.selectors import validate_selector
from livesize.api.validation.shares import validate_counts
from livesize.api.validation.unsupported import validate_supported
from livesize.api.workload_resize import ANNOTATIONS, PARALLELISM, parallelism_of
from livesize.api.workloads import selects, template_of

TEMPLATE = "spec.template"
_OF_STATUS = ("observedGeneration", "replicas", "unavailableReplicas", "terminatingReplicas")


def validate_workload(
    workload: Object, maker: str, *, selector_of: str, volumes: Iterable[str] = ()
) -> list[FieldError]:
    """``maker``: the kind that makes the pods, and ``selector_of`` the one whose selector it is, as
    Kubernetes' sentences name them. ``volumes``: names of those that each pod gets besides."""
    errors = validate_counts(
        workload["spec"], "spec", "replicas", "minReadySeconds", "revisionHistoryLimit"
    )
    errors += _validate_selector(workload["spec"].get("selector"), selector_of)
    errors += _validate_template(workload, maker, volumes)
    return errors + _validate_annotations(workload)


def validate_workload_update(
    new: Object,
    old: Object,
    validate: Callable[[Object], list[FieldError]],
    parts: tuple[str, ...],
) -> list[FieldError]:
    """``parts``: the numbers in its status that are parts of status.replicas."""
    errors: list[FieldError] = []
    annotations = ("metadata", "annotations")
    if new.get("spec") != old.get("spec"):
        errors += validate(new)
    elif lookup(new, *annotations) != lookup(old, *annotations):
        errors += _validate_annotations(new)
    if new.get("status") != old.get("status"):
        errors += _validate_status(new.get("status") or {}, old.get("status") or {}, parts)
    return errors


def validate_same_selector(new: Object, old: Object) -> list[FieldError]:
    after = lookup(new, "spec", "selector")
    if after == lookup(old, "spec", "selector"):
        return []
    return [FieldError(FieldErrorKind.INVALID, "spec.selector", "field is immutable", after)]


def _validate_selector(selector: Object | None, selector_of: str) -> list[FieldError]:
    if selector is None:
        return [FieldError(FieldErrorKind.REQUIRED, "spec.selector", "")]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        detail = f"empty selector is invalid for {selector_of}"
        return [FieldError(FieldErrorKind.INVALID, "spec.selector", detail, selector)]
    return validate_selector(selector)


def _validate_template(workload: Object, maker: str, volumes: Iterable[str]) -> list[FieldError]:
    template = template_of(workload)
    too_many = too_many_parts(template)
    if too_many:
        return nested(too_many, TEMPLATE)
    spec: Object = template.get("spec") or {}
    errors = validate_pod_template(_with_volumes(template, volumes), TEMPLATE)
    if not selects(workload, template):
        field, detail = f"{TEMPLATE}.metadata.labels", "`selector` does not match template `labels`"
        labels = lookup(template, "metadata", "labels", default={})
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, labels))
    policy = spec.get("restartPolicy", "Always")
    errors += one_of(policy, ["Always"], f"{TEMPLATE}.spec.restartPolicy")
    for name, detail in (
        ("activeDeadlineSeconds", f"activeDeadlineSeconds in {maker} is not Supported"),
        ("ephemeralContainers", "ephemeral containers not allowed in pod template"),
    ):
        if spec.get(name):
            field = f"{TEMPLATE}.spec.{name}"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, detail))
    errors += nested(validate_annotated_policies(template, template), TEMPLATE)
    if ON_DEADLINE in lookup(template, "metadata", "annotations", default={}):
        field = f"{TEMPLATE}.metadata.annotations[{ON_DEADLINE}]"
        detail = "its pods would act on it one by one: say it on the workload"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, detail))
    return errors or nested(validate_supported(template), TEMPLATE)


def _with_volumes(template: Object, names: Iterable[str]) -> Object:
    """The template as its pods are: each gets a volume of its own for every claim."""
    volumes: list[Object] = lookup(template, "spec", "volumes", default=[])
    there = {volume.get("name") for volume in volumes}
    added = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        for name in dict.fromkeys(names)
        if name not in there
    ]
    return evolve(template, ("spec", "volumes"), [*volumes, *added]) if added else template


def _validate_annotations(workload: Object) -> list[FieldError]:
    """Of the workload itself; those of its template are validated with it."""
    parallelism = lookup(workload, *ANNOTATIONS, PARALLELISM)
    errors: list[FieldError] = []
    if parallelism is not None and parallelism_of(workload) is None:
        field, detail = f"metadata.annotations[{PARALLELISM}]", "must be a positive integer"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, parallelism))
    return [
        *errors,
        *validate_resize_annotations(workload, never=False),
        *validate_annotated_policies(workload, template_of(workload)),
    ]


def _validate_status(status: Object, old: Object, parts: tuple[str, ...]) -> list[FieldError]:
    errors = validate_counts(status, "status", *_OF_STATUS, *parts, "collisionCount")
    for part in parts:
        if status.get(part, 0) > status.get("replicas", 0):
            errors.append(_too_many(status, part, "status.replicas"))
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        errors.append(_too_many(status, "availableReplicas", "readyReplicas"))
    if status.get("collisionCount", 0) < old.get("collisionCount", 0):
        field, detail = "status.collisionCount", "cannot be decremented"
        value = status.get("collisionCount", 0)
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, value))
    return errors


def _too_many(status: Object, part: str, whole: str) -> FieldError:
    detail = f"cannot be greater than {whole}"
    return FieldError(FieldErrorKind.INVALID, f"status.{part}", detail, status.get(part, 0))
