"""OpenAPI: v3 as an index and one document for each group and version, v2 as one document; both
made from the declarations that also check what comes in.

kubectl's apply and edit look for the PATCH operations and their parameters.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence

import orjson

from livesize.api.errors import StatusError
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import Subresource, Transfer
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.schema.fields import Schema
from livesize.apiserver.http.documents import Document, make_document
from livesize.apiserver.http.openapi_schemas import definitions, reference
from livesize.apiserver.http.openapi_v2 import V2_PATH, to_v2
from livesize.apiserver.http.openapi_v2_protobuf import V2_ANSWERED, V2_PROTOBUF, encode_v2
from livesize.apiserver.http.requests import Request
from livesize.apiserver.http.router import scope_path

_ROOT = "/openapi/v3"
_GVK = "x-kubernetes-group-version-kind"


class OpenApi:
    def __init__(self, version: str) -> None:
        prefixes = sorted({resource.prefix for resource in REGISTRY.stored()})
        self._documents = {
            f"{_ROOT}{prefix}": make_document(_document(prefix, version)) for prefix in prefixes
        }
        paths = {
            path.removeprefix(_ROOT + "/"): {
                "serverRelativeURL": f"{path}?hash={document.etag}",
            }
            for path, document in self._documents.items()
        }
        self._documents[_ROOT] = make_document({"paths": paths})
        every_path = {path: item for one in REGISTRY.stored() for path, item in _paths(one).items()}
        self._documents[V2_PATH] = make_document(
            to_v2(every_path, _schemas(REGISTRY.stored()), version)
        )

    def find(self, head: Request) -> Document | None:
        """Raises 406 where v2 is wanted in a form that there is not."""
        if head.path == V2_PATH and not head.accepts_json:
            if V2_PROTOBUF in head.headers.get("accept", ""):
                return self._v2_protobuf
            forms = f"application/json, {V2_PROTOBUF}"
            message = f"only the following media types are accepted: {forms}"
            raise StatusError(406, "NotAcceptable", message)
        return self._documents.get(head.path)

    @functools.cached_property
    def _v2_protobuf(self) -> Document:
        """Made at the first request: few clients send one."""
        body = encode_v2(orjson.loads(self._documents[V2_PATH].body))
        return Document(body, hashlib.sha256(body).hexdigest().upper(), V2_ANSWERED)


def _document(prefix: str, version: str) -> Object:
    resources = [resource for resource in REGISTRY.stored() if resource.prefix == prefix]
    paths: Object = {}
    for resource in resources:
        paths |= _paths(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Livesize", "version": version},
        "paths": paths,
        "components": {"schemas": _schemas(resources)},
    }


def _paths(resource: Resource) -> Object:
    item = scope_path(resource)
    collection = item.removesuffix("/{name}")
    paths: Object = {
        item: {
            "get": _operation(resource, "get"),
            "put": _operation(resource, "put", _queries(_WRITING)),
            "patch": _patch_operation(resource),
            "delete": _operation(resource, "delete", _queries(_DELETING)),
            "parameters": _place(resource, with_name=True),
        },
        collection: {
            "get": _operation(resource, "list", _queries(_LISTING)),
            "post": _operation(resource, "post", _queries(_WRITING)),
            "delete": _operation(resource, "deletecollection", _queries(_DELETING | _SELECTING)),
            "parameters": _place(resource, with_name=False),
        },
    }
    for name, subresource in kind_of(resource).subresources.items():
        if subresource.transfer is Transfer.STREAM:
            continue  # streams are no objects
        if subresource.transfer is Transfer.POST:
            paths[f"{item}/{name}"] = {
                "post": _post_operation(resource, subresource),
                "parameters": _place(resource, with_name=True),
            }
        else:
            paths[f"{item}/{name}"] = {
                "get": _operation(resource, "get", view=subresource),
                "put": _operation(resource, "put", _queries(_WRITING), view=subresource),
                "patch": _patch_operation(resource, view=subresource),
                "parameters": _place(resource, with_name=True),
            }
    return paths


def _operation(
    resource: Resource,
    action: str,
    parameters: list[Object] | None = None,
    view: Subresource | None = None,
) -> Object:
    """``view``: the subresource, which may show something else than the object."""
    shown: Resource | Subresource = view if view is not None and view.kind else resource
    schema = reference(shown.schema if isinstance(shown, Subresource) else kind_of(shown).schema)
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    operation: Object = {
        "x-kubernetes-action": action,
        _GVK: _gvk(shown),
        "parameters": parameters or [],
        "responses": {"200": answer},
    }
    if action in ("post", "put"):
        operation["requestBody"] = {"content": {"*/*": {"schema": schema}}, "required": True}
    return operation


def _patch_operation(resource: Resource, view: Subresource | None = None) -> Object:
    operation = _operation(resource, "patch", _queries(_WRITING | {"force": "boolean"}), view)
    content = {kind.value: {"schema": _patch_schema(kind)} for kind in PatchType}
    return {**operation, "requestBody": {"content": content, "required": True}}


def _patch_schema(kind: PatchType) -> Object:
    if kind is PatchType.JSON:
        return {"type": "array", "items": {"type": "object"}}
    return {"type": "object"}


def _post_operation(resource: Resource, posted: Subresource) -> Object:
    operation = _operation(resource, "post", _queries(_WRITING))
    body = {"content": {"*/*": {"schema": {"type": "object"}}}, "required": True}
    return {**operation, _GVK: _gvk(posted), "requestBody": body}


_WRITING = {"dryRun": "string", "fieldManager": "string", "fieldValidation": "string"}
_DELETING = {"dryRun": "string", "gracePeriodSeconds": "integer", "propagationPolicy": "string"}
_SELECTING = {
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
}
_LISTING = {
    **_SELECTING,
    "allowWatchBookmarks": "boolean",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}


def _queries(kinds: Mapping[str, str]) -> list[Object]:
    return [
        {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
        for name, kind in sorted(kinds.items())
    ]


def _place(resource: Resource, *, with_name: bool) -> list[Object]:
    names = ["namespace"] if resource.namespaced else []
    names += ["name"] if with_name else []
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _gvk(sent: Resource | Subresource) -> Object:
    return {"group": sent.group, "version": sent.version, "kind": sent.kind}


def _schemas(resources: Sequence[Resource]) -> Object:
    """What these resources need, each kind with its group and version."""
    sent: list[tuple[Resource | Subresource, Schema]] = []
    for resource in resources:
        sent.append((resource, kind_of(resource).schema))
        sent += [
            (one, one.schema)
            for one in kind_of(resource).subresources.values()
            if one.kind and one.transfer is Transfer.CHANGE
        ]
    schemas = definitions(schema for _, schema in sent)
    for of, schema in sent:
        schemas[schema.full_name][_GVK] = [_gvk(of)]
    return schemas
