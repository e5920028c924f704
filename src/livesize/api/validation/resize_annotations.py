"""Checks of the annotations that say how a pod, or every pod of a workload, is to be resized."""

from __future__ import annotations

import msgspec

from livesize.api import requested_action
from livesize.api.duration import parse_duration
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE, OnDeadline
from livesize.api.resources import VM_NAME, is_vm
from livesize.api.validation.choices import one_of
from livesize.api.validation.resources import validate_policy_map
from livesize.api.workload_resize import POLICIES

_NEVER = "a pod with restartPolicy Never has no containers that may restart"


def validate_resize_annotations(obj: Object, *, never: bool) -> list[FieldError]:
    """The deadline, what is done then, and the action; ``never``: restartPolicy is Never."""
    annotations = lookup(obj, "metadata", "annotations", default={})
    errors: list[FieldError] = []
    if DEADLINE in annotations and parse_duration(annotations[DEADLINE]) is None:
        detail = "must be a duration such as 30s, 5m or 1h30m"
        errors.append(_invalid(DEADLINE, detail, annotations[DEADLINE]))
    for name, words, restart in (
        (ON_DEADLINE, OnDeadline, OnDeadline.RESTART),
        (
            requested_action.ANNOTATION,
            requested_action.SPELLINGS,
            requested_action.RequestedAction.RESTART,
        ),
    ):
        if name in annotations:
            errors += one_of(annotations[name], words, _field(name))
            if never and annotations[name] == restart:
                errors.append(_invalid(name, _NEVER, annotations[name]))
    return errors


def validate_annotated_policies(obj: Object, template: Object) -> list[FieldError]:
    """``obj``: the workload, or its ``template``. Each policy is of a container that the template
    has, in the words of IBM's map, and nothing in the template says otherwise."""
    text = lookup(obj, "metadata", "annotations", POLICIES)
    if text is None:
        return []
    policies = _read_policies(text)
    if policies is None:
        detail = (
            "must be JSON that names containers, resources and policies, for instance"
            ' {"app": {"cpu": "LiveResizeable", "memory": "RestartOnly"}}'
        )
        return [_invalid(POLICIES, detail, text)]
    containers = _containers(template)
    errors: list[FieldError] = []
    for name, mapped in policies.items():
        field, container = f"{_field(POLICIES)}[{name}]", containers.get(name)
        own = lookup(container, "resources", "resizePolicy", default=mapped)
        if container is None:
            kind, detail = FieldErrorKind.NOT_FOUND, "the template has no container of this name"
            errors.append(FieldError(kind, field, detail, name))
        elif own != mapped:
            detail = "contradicts resources.resizePolicy of the container; give one of the two"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, mapped))
        else:
            errors += validate_policy_map(mapped, container, field, never=False)
    return errors


def _read_policies(text: str) -> dict[str, dict[str, str]] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, UnicodeError):
        return None


def _containers(template: Object) -> dict[str, Object]:
    """By name; a virtual machine is the container that its pod is served with."""
    if is_vm(template):
        return {VM_NAME: template["spec"]["virtualMachine"]}
    containers = lookup(template, "spec", "containers", default=[])
    return {str(container.get("name")): container for container in containers}


def _field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _invalid(name: str, detail: str, value: str) -> FieldError:
    return FieldError(FieldErrorKind.INVALID, _field(name), detail, value)
