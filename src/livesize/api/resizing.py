"""Reads the body of POST pods/X/resizing into a value, or refuses it with every error at once.

    {kind: Resizing, metadata {uid?}, request {requestStatus, newResources?},      (IBM)
     generation?, phase?, reason?, message?, allocated?, steps?, status?}          (ours)

After this nobody has to look at the body again: a ``ResizeReport`` is well formed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind, forbidden, invalid
from livesize.api.kinds.pod_resource import PODS
from livesize.api.objects import Object, lookup, name_of, without
from livesize.api.quantity import QuantityError, memory_bytes
from livesize.api.reasons import RESIZE_CONDITIONS
from livesize.api.resize_phase import REQUEST_STATUS, SCHEDULER_PHASES, RequestStatus, ResizePhase
from livesize.api.resources import parse_resources, resizable_of

_STATUS_LISTS = ("containerStatuses", "initContainerStatuses")
_ANSWERS = (RequestStatus.ACCEPTED, RequestStatus.REJECTED, RequestStatus.DONE)


class ResizeReport(msgspec.Struct, frozen=True):
    """What the scheduler or the node says about the resize that was asked. None: not said."""

    phase: ResizePhase
    uid: str
    generation: int | None
    reason: str
    message: str
    new_resources: list[Object] | None
    allocated: list[Object] | None
    steps: list[Object] | None
    status: Object


def parse_resizing(pod: Object, body: Object, *, from_node: bool) -> ResizeReport:
    """The answer; raises StatusError: 422 for a body we cannot read, 403 where a scheduler says
    what only the pod's node may say."""
    errors = [] if _is_plain(pod, body) else _shape_errors(pod, body)
    if errors:
        raise invalid("Resizing", "", name_of(pod), errors)
    answer = ResizeReport(
        phase=_phase(pod, body, from_node=from_node),
        uid=lookup(body, "metadata", "uid", default=""),
        generation=body.get("generation"),
        reason=body.get("reason") or "",
        message=body.get("message") or "",
        new_resources=lookup(body, "request", "newResources"),
        allocated=body.get("allocated"),
        steps=body.get("steps"),
        status=_status(body.get("status") or {}),
    )
    if not from_node:
        _check_scheduler(pod, answer)
    return answer


def _phase(pod: Object, body: Object, *, from_node: bool) -> ResizePhase:
    status = RequestStatus(body["request"]["requestStatus"])
    implied = _implied_phase(status, body.get("reason"), from_node=from_node)
    phase = ResizePhase(body.get("phase") or implied)
    if REQUEST_STATUS[phase] != status:
        detail = f"is not a phase of a resize that is {status}"
        error = FieldError(FieldErrorKind.INVALID, "phase", detail, phase.value)
        raise invalid("Resizing", "", name_of(pod), [error])
    return phase


def _implied_phase(status: RequestStatus, reason: str | None, *, from_node: bool) -> ResizePhase:
    if status is RequestStatus.ACCEPTED:
        return ResizePhase.IN_PROGRESS if from_node else ResizePhase.ACCEPTED
    if status is RequestStatus.REJECTED:
        infeasible = reason == ResizePhase.INFEASIBLE
        return ResizePhase.INFEASIBLE if infeasible else ResizePhase.DEFERRED
    return ResizePhase.DONE


def _status(given: Object) -> Object:
    """The status the node sends along, without what is ours to derive or to keep."""
    kept = {key: value for key, value in given.items() if key != "resizeState"}
    for kind in _STATUS_LISTS:
        if kept.get(kind) is not None:
            kept[kind] = [
                {key: value for key, value in status.items() if key != "allocatedResources"}
                for status in kept[kind]
            ]
    if isinstance(kept.get("virtualMachineStatus"), dict):
        kept = without(kept, ("virtualMachineStatus", "allocatedResources"))
    if kept.get("conditions") is not None:
        kept["conditions"] = [
            condition
            for condition in kept["conditions"]
            if condition.get("type") not in RESIZE_CONDITIONS
        ]
    return kept


def _check_scheduler(pod: Object, answer: ResizeReport) -> None:
    if answer.phase not in SCHEDULER_PHASES:
        why = f"only the pod's node may say that a resize is {answer.phase}"
        raise forbidden(PODS, name_of(pod), why)
    if answer.allocated is not None or answer.status:
        raise forbidden(PODS, name_of(pod), "only the pod's node may write allocated and status")


class _Sides(msgspec.Struct):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _Size(_Sides):
    name: str = ""
    cells: None = None  # of a virtual machine: looked at closer


class _Actual(msgspec.Struct):
    resources: _Sides = msgspec.field(default_factory=_Sides)


class _Request(msgspec.Struct):
    requestStatus: Literal["Accepted", "Rejected", "Done"]  # noqa: N815 - IBM's word
    newResources: None = None  # noqa: N815


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] | None = None
    containerStatuses: list[_Actual] | None = None  # noqa: N815 - Kubernetes' word
    initContainerStatuses: list[_Actual] | None = None  # noqa: N815
    virtualMachineStatus: None = None  # noqa: N815


class _Identity(msgspec.Struct):
    uid: str | None = None


class _Plain(msgspec.Struct):
    """A body as nodes send it about containers, by its types alone."""

    request: _Request
    phase: ResizePhase | None = None
    metadata: _Identity | None = None
    reason: str | None = None
    message: str | None = None
    allocated: list[_Size] | None = None
    steps: list[dict[str, Any]] | None = None
    status: _Status | None = None


def _is_plain(pod: Object, body: Object) -> bool:
    """Nothing is wrong with it, as nearly always, and that is quickly seen. False: look closer."""
    try:
        plain = msgspec.convert(body, _Plain)
        for size in body.get("allocated") or ():
            parse_resources(size)
        told = body.get("status") or {}
        for kind in _STATUS_LISTS:
            for status in told.get(kind) or ():
                parse_resources(status.get("resources"))
    except (msgspec.ValidationError, QuantityError):
        return False
    names = {container["name"] for container in resizable_of(pod)}
    generation = body.get("generation")
    whole = generation is None or type(generation) is int
    return whole and all(size.name in names for size in plain.allocated or ())


def _shape_errors(pod: Object, body: Object) -> list[FieldError]:
    return [
        *_word_errors(body),
        *_type_errors(body),
        *_size_errors(pod, lookup(body, "request", "newResources"), "request.newResources"),
        *_size_errors(pod, body.get("allocated"), "allocated"),
        *_list_errors(body.get("steps"), "steps"),
        *_status_errors(body.get("status")),
    ]


def _word_errors(body: Object) -> list[FieldError]:
    errors = []
    status = lookup(body, "request", "requestStatus")
    if status not in _ANSWERS:
        detail = _supported(_ANSWERS)
        field = "request.requestStatus"
        errors.append(FieldError(FieldErrorKind.NOT_SUPPORTED, field, detail, status))
    phase = body.get("phase")
    if phase is not None and phase not in tuple(ResizePhase):
        detail = _supported(tuple(ResizePhase))
        errors.append(FieldError(FieldErrorKind.NOT_SUPPORTED, "phase", detail, phase))
    return errors


def _supported(words: tuple[str, ...]) -> str:
    return "supported values: " + ", ".join(f'"{word}"' for word in words)


def _type_errors(body: Object) -> list[FieldError]:
    given = {
        "metadata.uid": (lookup(body, "metadata", "uid"), str),
        "generation": (body.get("generation"), int),
        "reason": (body.get("reason"), str),
        "message": (body.get("message"), str),
    }
    words = {str: "must be a string", int: "must be an integer"}
    return [
        FieldError(FieldErrorKind.TYPE_INVALID, field, words[kind], value)
        for field, (value, kind) in given.items()
        if value is not None and type(value) is not kind
    ]


def _size_errors(pod: Object, sizes: Any, field: str) -> list[FieldError]:
    errors = _list_errors(sizes, field)
    if errors or sizes is None:
        return errors
    names = [container["name"] for container in resizable_of(pod)]
    for index, size in enumerate(sizes):
        if size.get("name") not in names:
            where, detail = f"{field}[{index}].name", "the pod has no such container"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, size.get("name")))
        errors += _quantity_errors(size, f"{field}[{index}]")
        errors += _cell_errors(size.get("cells"), f"{field}[{index}].cells")
    return errors


def _cell_errors(cells: Any, field: str) -> list[FieldError]:
    errors = _list_errors(cells, field)
    if errors or cells is None:
        return errors
    for index, cell in enumerate(cells):
        try:
            memory_bytes(cell.get("memory"))
        except QuantityError as error:
            where = f"{field}[{index}].memory"
            errors.append(FieldError(FieldErrorKind.INVALID, where, str(error)))
        if type(cell.get("id")) is not int:
            detail = "must be an integer"
            errors.append(FieldError(FieldErrorKind.TYPE_INVALID, f"{field}[{index}].id", detail))
    return errors


def _quantity_errors(resources: Any, field: str) -> list[FieldError]:
    for side in ("requests", "limits"):
        if not isinstance(lookup(resources, side, default={}), dict):
            detail = "must be an object"
            return [FieldError(FieldErrorKind.TYPE_INVALID, f"{field}.{side}", detail)]
    try:
        parse_resources(resources)
    except QuantityError as error:
        return [FieldError(FieldErrorKind.INVALID, field, str(error), resources)]
    return []


def _status_errors(status: Any) -> list[FieldError]:
    if status is None:
        return []
    if not isinstance(status, dict):
        return [FieldError(FieldErrorKind.TYPE_INVALID, "status", "must be an object", status)]
    vm = status.get("virtualMachineStatus")
    errors = _list_errors(status.get("conditions"), "status.conditions")
    if vm is not None:
        errors += _actual_errors(vm, "status.virtualMachineStatus")
    for kind in _STATUS_LISTS:
        statuses = status.get(kind)
        listed = _list_errors(statuses, f"status.{kind}")
        errors += listed
        for index, one in enumerate([] if listed else statuses or []):
            errors += _actual_errors(one, f"status.{kind}[{index}]")
    return errors


def _actual_errors(status: Any, field: str) -> list[FieldError]:
    """The status of one container, or of the virtual machine."""
    detail = "must be an object"
    if not isinstance(status, dict):
        return [FieldError(FieldErrorKind.TYPE_INVALID, field, detail)]
    if not isinstance(status.get("resources", {}), dict):
        return [FieldError(FieldErrorKind.TYPE_INVALID, f"{field}.resources", detail)]
    return _quantity_errors(status.get("resources", {}), f"{field}.resources")


def _list_errors(items: Any, field: str) -> list[FieldError]:
    if items is None:
        return []
    if isinstance(items, list) and all(isinstance(item, dict) for item in items):
        return []
    return [FieldError(FieldErrorKind.TYPE_INVALID, field, "must be a list of objects")]
