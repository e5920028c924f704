"""Refusals in the shape Kubernetes answers them: a Status with code, reason and causes."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object


class FieldErrorKind(enum.StrEnum):
    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    FORBIDDEN = "FieldValueForbidden"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_FOUND = "FieldValueNotFound"


_WORDS = {
    FieldErrorKind.INVALID: "Invalid value",
    FieldErrorKind.REQUIRED: "Required value",
    FieldErrorKind.FORBIDDEN: "Forbidden",
    FieldErrorKind.NOT_SUPPORTED: "Unsupported value",
    FieldErrorKind.DUPLICATE: "Duplicate value",
    FieldErrorKind.TOO_LONG: "Too long",
    FieldErrorKind.TOO_MANY: "Too many",
    FieldErrorKind.TYPE_INVALID: "Invalid value",
    FieldErrorKind.NOT_FOUND: "Not found",
}
# Clients look into these without asking whether they are there.
_ALWAYS_DETAILED = frozenset({404, 405})
_WITHOUT_VALUE = {FieldErrorKind.REQUIRED, FieldErrorKind.FORBIDDEN, FieldErrorKind.TOO_LONG}


class FieldError(msgspec.Struct, frozen=True):
    """One thing wrong with one field, and what to do about it."""

    kind: FieldErrorKind
    field: str
    detail: str
    value: Any = None

    def body(self) -> str:
        """The sentence without the field: what stands in a cause's message."""
        words = _WORDS[self.kind]
        if self.kind in _WITHOUT_VALUE:
            return f"{words}: {self.detail}" if self.detail else words
        shown = json.dumps(self.value)
        return f"{words}: {shown}: {self.detail}" if self.detail else f"{words}: {shown}"

    def sentence(self) -> str:
        return f"{self.field}: {self.body()}"


def nested(errors: Sequence[FieldError], field: str) -> list[FieldError]:
    """What is wrong with an object that stands at ``field`` of another one."""
    return [msgspec.structs.replace(one, field=f"{field}.{one.field}") for one in errors]


class Cause(msgspec.Struct, frozen=True):
    reason: str
    message: str = ""
    field: str = ""


class StatusError(Exception):
    """A request was refused, for good; nothing was changed."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        causes: Sequence[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Object = dict(details or {})
        self.causes = tuple(causes)

    def to_status(self) -> Object:
        details = dict(self.details)
        if self.causes:
            details["causes"] = [
                {
                    "reason": cause.reason,
                    **({"message": cause.message} if cause.message else {}),
                    **({"field": cause.field} if cause.field else {}),
                }
                for cause in self.causes
            ]
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if details or self.code in _ALWAYS_DETAILED:
            status["details"] = details
        return {**status, "code": self.code}

    @classmethod
    def from_status(cls, status: Object, code: int) -> StatusError:
        """Read back what a server answered."""
        details = dict(status.get("details") or {})
        causes = [
            Cause(item.get("reason", ""), item.get("message", ""), item.get("field", ""))
            for item in details.pop("causes", None) or []
        ]
        return cls(
            int(status.get("code") or code),
            str(status.get("reason") or "Unknown"),
            str(status.get("message") or f"the server answered {code}"),
            details=details,
            causes=causes,
        )


def _details(resource: Resource, name: str) -> Object:
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural}


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> StatusError:
    message = f'{_qualified(resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(resource, name))


def path_not_found(path: str = "") -> StatusError:
    """Clients know the first words; kubectl shows all of them for a manifest of a kind that is not
    served, because it looks for a custom resource then."""
    message = "the server could not find the requested resource"
    if path.startswith("/apis/"):
        message += (
            "; `kubectl api-resources` lists the kinds that it serves, and there are no others"
        )
    return StatusError(404, "NotFound", message)


def already_exists(resource: Resource, name: str) -> StatusError:
    message = f'{_qualified(resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> StatusError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    message = f'Operation cannot be fulfilled on {_qualified(resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(resource, name))


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 with every field error in one answer."""
    assert errors
    sentences = [error.sentence() for error in errors]
    listed = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    full_kind = f"{kind}.{group}" if group else kind
    details: Object = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    return StatusError(
        422,
        "Invalid",
        f'{full_kind} "{name}" is invalid: {listed}',
        details=details,
        causes=[Cause(error.kind.value, error.body(), error.field) for error in errors],
    )


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    message = f'{_qualified(resource)} "{name}" is forbidden: {why}'
    details = _details(resource, name)
    return StatusError(403, "Forbidden", message, details=details, causes=causes)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def unsupported_media_type(given: str, accepted: Sequence[str]) -> StatusError:
    message = (
        f"the body of the request was in an unknown format ({given})"
        f" - accepted media types include: {', '.join(accepted)}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit_bytes: int) -> StatusError:
    message = f"Request entity is too large: limit is {limit_bytes}"
    return StatusError(413, "RequestEntityTooLarge", message)


def expired(message: str) -> StatusError:
    """410: the resourceVersion is too old; list again."""
    return StatusError(410, "Expired", message)


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
