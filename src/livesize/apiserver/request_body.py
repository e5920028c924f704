"""Reads the object in the body of a request: it is of the right kind, its values are of the right
types, and fields that no kind has are refused, or warned of. Pure.

A body that cannot be read as the kind it should be is 400; a patch that makes such a body is 422,
as a Kubernetes API server answers it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind, StatusError, bad_request, invalid
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.nulls import without_nulls
from livesize.api.objects import Object
from livesize.api.patch import PatchError, PatchType
from livesize.api.patch.json_patch import apply_json_patch
from livesize.api.patch.merge import merge_patch
from livesize.api.patch.strategic import strategic_merge
from livesize.api.plain_resize import NewSizes, parse_sizes
from livesize.api.schema.fields import Schema
from livesize.api.schema.shapes import check_shape, unknown_fields
from livesize.api.write_options import FieldValidation, WriteOptions
from livesize.apiserver.request_types import Target

_POLICY = "resizePolicy"


class ExpectedBody(msgspec.Struct, frozen=True):
    """What the body of a request has to be."""

    kind: str
    api_version: str
    schema: Schema


def take_in(
    body: Any,
    expected: ExpectedBody,
    options: WriteOptions,
    patch: Any = None,
    patched: Object | None = None,
) -> Object:
    """``body`` with kind and apiVersion, known to have the shape of its kind. Where it was made by
    a ``patch``, ``patched`` is what it was made from. Nothing after this looks at types again."""
    if not isinstance(body, dict):
        raise bad_request(f"the body of the request must be a {expected.kind}, an object")
    obj = _named(body, expected.kind, expected.api_version)
    if check_shape(expected.schema, obj, patched):
        obj = without_nulls(obj)
        if errors := check_shape(expected.schema, obj):
            listed = ", ".join(f"{error.field}: {error.detail}" for error in errors)
            raise _refused(expected, listed, patch)
    if options.field_validation is not FieldValidation.IGNORE:
        unknown = unknown_fields(expected.schema, obj, patched, patch)
        told = [f'unknown field "{field}"' for field in unknown]
        if told and options.field_validation is FieldValidation.STRICT:
            raise _refused(expected, f"strict decoding error: {', '.join(told)}", patch)
        options.warn(told)
    return obj


def take_object(
    resource: Resource,
    obj: Any,
    options: WriteOptions,
    patch: Any = None,
    patched: Object | None = None,
) -> Object:
    """The same for an object of a resource."""
    schema = kind_of(resource).schema
    expected = ExpectedBody(resource.kind, resource.api_version, schema)
    return take_in(obj, expected, options, patch, patched)


def take_sent(
    target: Target,
    body: Any,
    options: WriteOptions,
    patch: Any = None,
    patched: Object | None = None,
) -> Object:
    """The same for what is sent to an object or to one of its subresources."""
    sent = kind_of(target.resource).subresources.get(target.subresource)
    if sent is None or not sent.kind:
        return take_object(target.resource, body, options, patch, patched)
    expected = ExpectedBody(sent.kind, sent.api_version, sent.schema)
    return take_in(body, expected, options, patch, patched)


def apply_patch(resource: Resource, served: Object, patch: Any, patch_type: PatchType) -> Any:
    """``served`` with the patch applied; raises StatusError where it cannot be."""
    try:
        match patch_type:
            case PatchType.MERGE:
                return merge_patch(served, _object(patch))
            case PatchType.STRATEGIC:
                return strategic_merge(served, _object(patch), kind_of(resource).schema.root)
            case PatchType.JSON:
                return apply_json_patch(served, patch)
            case PatchType.APPLY:
                raise bad_request("what is applied is not a patch of what is there")
    except PatchError as error:
        match error.code:
            case 422:
                raise _patch_refused(patch, error.message) from None
            case 413:
                raise StatusError(413, "RequestEntityTooLarge", error.message) from None
            case _:
                raise bad_request(error.message) from None


def plain_sizes(
    target: Target, patch: Any, patch_type: PatchType, options: WriteOptions
) -> NewSizes | None:
    """What a patch asks, where it is a resize and a plain one; strictly, all of the object would
    have to be looked at."""
    if target.subresource != "resize" or patch_type is not PatchType.STRATEGIC:
        return None
    return None if options.field_validation is FieldValidation.STRICT else parse_sizes(patch)


def names_policy(patch: Any) -> bool:
    """Whether a patch of any kind speaks of a resizePolicy: as a field, or in a path. Without
    recursion: a patch may be deep."""
    left = [patch]
    while left:
        match left.pop():
            case dict() as part:
                path = part.get("path")
                if _POLICY in part or (isinstance(path, str) and _POLICY in path.split("/")):
                    return True
                left += part.values()
            case list() as items:
                left += items
            case _:
                pass
    return False


def take_part(target: Target, part: Any, options: WriteOptions) -> Object:
    """The part of an object that somebody applies: of the right shape, and theirs to say."""
    resource = target.resource
    if not isinstance(part, dict):
        raise bad_request(f"the applied body must be a {resource.kind}, an object")
    for field in ("apiVersion", "kind"):
        if not part.get(field):
            raise bad_request(f"the applied object must have {field} set")
    taken = take_object(resource, part, options, patch=part)
    metadata = taken.get("metadata") or {}
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.get("name", target.name) != target.name:
        raise bad_request(
            f"name in URL does not match name in the applied object ({metadata['name']})"
        )
    return without_nulls(taken)


def format_go(value: Any) -> str:
    """A value as Go prints it, because Kubernetes shows refused patches so."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{format_go(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(format_go(item) for item in value)}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _object(patch: Any) -> Object:
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    return patch


def _named(obj: Object, kind: str, api_version: str) -> Object:
    given_version, given_kind = obj.get("apiVersion"), obj.get("kind")
    if given_version and given_version != api_version:
        raise bad_request(
            f"the API version in the data ({given_version}) does not match the expected API"
            f" version ({api_version})"
        )
    if given_kind and given_kind != kind:
        raise bad_request(f'the kind in the data ("{given_kind}") is not the expected "{kind}"')
    if given_version and given_kind:
        return obj
    return without_nulls({**obj, "kind": kind, "apiVersion": api_version})


def _refused(expected: ExpectedBody, why: str, patch: Any) -> Exception:
    if patch is not None:
        return _patch_refused(patch, why)
    kind, version = expected.kind, expected.api_version
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def _patch_refused(patch: Any, why: str) -> Exception:
    error = FieldError(FieldErrorKind.INVALID, "patch", why, format_go(patch))
    return invalid("", "", "", [error])
