"""Declared messages as OpenAPI schemas, with how lists and objects are merged. Pure.

kubectl's apply and edit take the merge keys of lists from them; explain reads the descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livesize.api.objects import Object
from livesize.api.schema.fields import SET, Cardinality, Field, Schema, Type


def definitions(roots: Iterable[Schema]) -> Object:
    """These messages and all that they refer to, by full name, as OpenAPI components."""
    found: Object = {}
    left = list(roots)
    while left:
        schema = left.pop()
        if schema.full_name not in found:
            found[schema.full_name] = _definition(schema)
            left += [one.type for one in schema.fields.values() if isinstance(one.type, Schema)]
    return dict(sorted(found.items()))


def reference(schema: Schema) -> Object:
    return {"$ref": f"#/components/schemas/{schema.full_name}"}


def _definition(schema: Schema) -> Object:
    properties = {name: _property(field) for name, field in schema.fields.items()}
    definition: Object = {"type": "object", "properties": properties}
    if schema.description:
        definition["description"] = schema.description
    if schema.is_atomic:
        definition["x-kubernetes-map-type"] = "atomic"
    return definition


def _property(field: Field) -> Object:
    siblings = _annotations(field)
    if field.description:
        siblings["description"] = field.description
    if field.choices:
        siblings["enum"] = list(field.choices)
    written = _written(field)
    # Beside a reference nothing else counts, so it is wrapped.
    return (
        {"allOf": [written], **siblings}
        if siblings and "$ref" in written
        else {**written, **siblings}
    )


def _written(field: Field) -> Object:
    one = reference(field.type) if isinstance(field.type, Schema) else _PLAIN[field.type]
    match field.cardinality:
        case Cardinality.ONE:
            return one
        case Cardinality.LIST:
            return {"type": "array", "items": one}
        case Cardinality.MAP:
            return {"type": "object", "additionalProperties": one}


def _annotations(field: Field) -> Object:
    """How a strategic merge patch and server-side apply treat it."""
    if field.cardinality is not Cardinality.LIST:
        if field.retains_keys:
            return {"x-kubernetes-patch-strategy": "retainKeys"}
        whole = field.is_atomic and not isinstance(field.type, Schema)
        return {"x-kubernetes-map-type": "atomic"} if whole else {}
    notes: Object = {"x-kubernetes-list-type": "atomic"}
    if field.merge_key is not None:
        notes["x-kubernetes-patch-strategy"] = "merge"
        if field.merge_key != SET:
            notes["x-kubernetes-patch-merge-key"] = field.merge_key
    if not field.is_atomic and field.merge_key == SET:
        notes["x-kubernetes-list-type"] = "set"
    elif not field.is_atomic and field.list_keys:
        notes["x-kubernetes-list-type"] = "map"
        notes["x-kubernetes-list-map-keys"] = list(field.list_keys)
    return notes


_PLAIN: Mapping[Type, Object] = {
    Type.STRING: {"type": "string"},
    Type.INTEGER: {"type": "integer", "format": "int64"},
    Type.NUMBER: {"type": "number", "format": "double"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.BYTES: {"type": "string", "format": "byte"},
    Type.TIME: {"type": "string"},
    Type.MICRO_TIME: {"type": "string"},
    Type.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    Type.INT_OR_STRING: {
        "oneOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
    Type.FIELDS: {"type": "object"},
    Type.ANYTHING: {"x-kubernetes-preserve-unknown-fields": True},
}
