"""OpenAPI v2, from the same paths and schemas as v3. Pure.

kubectl asks for it just with `explain --output plaintext-openapiv2`, and then takes nothing but
protobuf (openapi_v2_protobuf); everything else it does goes by v3.
"""

from __future__ import annotations

from typing import Any

from livesize.api.objects import Object

V2_PATH = "/openapi/v2"
_V3_PLACE, _V2_PLACE = "#/components/schemas/", "#/definitions/"
_METHODS = frozenset({"get", "put", "post", "patch", "delete"})


def to_v2(paths: Object, schemas: Object, version: str) -> Object:
    return {
        "swagger": "2.0",
        "info": {"title": "Livesize", "version": version},
        "paths": {path: _path(item) for path, item in paths.items()},
        "definitions": _schema(schemas),
    }


def _path(item: Object) -> Object:
    return {
        key: _operation(value) if key in _METHODS else [_parameter(one) for one in value]
        for key, value in item.items()
    }


def _operation(operation: Object) -> Object:
    written = {key: value for key, value in operation.items() if key != "requestBody"}
    written["parameters"] = [_parameter(one) for one in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body is not None:
        written["consumes"] = list(body["content"])
        schema = next(iter(body["content"].values()))["schema"]
        written["parameters"].append(
            {"name": "body", "in": "body", "required": True, "schema": _schema(schema)}
        )
    written["produces"] = ["application/json"]
    written["responses"] = {
        code: {
            "description": answer["description"],
            "schema": _schema(answer["content"]["application/json"]["schema"]),
        }
        for code, answer in operation["responses"].items()
    }
    return written


def _parameter(parameter: Object) -> Object:
    flat = {key: value for key, value in parameter.items() if key != "schema"}
    return {**flat, **parameter.get("schema", {})}


def _schema(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_schema(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "oneOf" in tree:  # a quantity; v2 has no choice of types
        return {"type": "string", **{key: tree[key] for key in ("description",) if key in tree}}
    if list(tree.get("allOf", ())) and len(tree["allOf"]) == 1:
        return {**_schema(tree["allOf"][0]), **{k: v for k, v in tree.items() if k != "allOf"}}
    return {
        key: value.replace(_V3_PLACE, _V2_PLACE) if key == "$ref" else _schema(value)
        for key, value in tree.items()
    }
