"""Paths to resources: which object, collection or subresource a path means. Pure."""

from __future__ import annotations

import functools

import msgspec

from livesize.api.errors import path_not_found
from livesize.api.kinds import NAMESPACES, RESOURCES, Resource

_BY_PLACE = {(resource.prefix, resource.plural): resource for resource in RESOURCES}
_PREFIXES = frozenset(resource.prefix for resource in RESOURCES)


class Route(msgspec.Struct, frozen=True):
    """A collection where ``name`` is empty, otherwise an object or its subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@functools.lru_cache(4096)
def parse_route(path: str) -> Route:
    """Raises 404 for a path that means nothing. Kept, because clients come back."""
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:length]), parts[length:]
    if prefix not in _PREFIXES or not rest or not all(rest):
        raise path_not_found()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (prefix, rest[2]) in _BY_PLACE:
        namespace, rest = rest[1], rest[2:]
    resource = _BY_PLACE.get((prefix, rest[0]))
    if resource is None or len(rest) > 3:
        raise path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    _check_scope(resource, namespace, name, subresource)
    return Route(resource, namespace, name, subresource)


def _check_scope(resource: Resource, namespace: str, name: str, subresource: str) -> None:
    if namespace and not resource.namespaced:
        raise path_not_found()
    if name and resource.namespaced and not namespace:
        raise path_not_found()
    if subresource and subresource not in resource.subresources:
        raise path_not_found()


def scope_path(resource: Resource) -> str:
    """The path of one object, as OpenAPI writes it."""
    if resource.namespaced:
        return f"{resource.prefix}/{NAMESPACES.plural}/{{namespace}}/{resource.plural}/{{name}}"
    return f"{resource.prefix}/{resource.plural}/{{name}}"
