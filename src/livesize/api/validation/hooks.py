"""Checks of the annotations that name a resize's hooks."""

from __future__ import annotations

from livesize.api.duration import parse_duration
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.resize_hooks import HOOK_TIMEOUT, Hook, parse_command

_LONGEST_SECONDS = 600.0


def validate_hooks(pod: Object) -> list[FieldError]:
    annotations = lookup(pod, "metadata", "annotations", default={})
    errors: list[FieldError] = []
    for name in sorted(key for key in annotations if key.startswith("livesize.dev/")):
        if any(name == one.annotation or name.startswith(f"{one.annotation}.") for one in Hook):
            errors += _validate_command(name, annotations[name])
    timeout = annotations.get(HOOK_TIMEOUT)
    if timeout is not None:
        seconds = parse_duration(timeout)
        if seconds is None or not 0 < seconds <= _LONGEST_SECONDS:
            field = f"metadata.annotations[{HOOK_TIMEOUT}]"
            detail = "must be a duration up to 10m, for instance 30s"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, timeout))
    return errors


def _validate_command(name: str, text: str) -> list[FieldError]:
    if parse_command(text) is not None:
        return []
    detail = 'must be a line for /bin/sh, or a JSON list of words, for instance ["kill", "-HUP"]'
    return [FieldError(FieldErrorKind.INVALID, f"metadata.annotations[{name}]", detail, text)]
