"""Paths to resources: which object, collection or subresource a path means. Pure."""

from __future__ import annotations

import msgspec

from livesize.api.errors import path_not_found
from livesize.api.kept import kept
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.reviews import REVIEWS


class Route(msgspec.Struct, frozen=True):
    """A collection where ``name`` is empty, otherwise an object or its subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_route(path: str) -> Route:
    """Raises 404 for a path that means nothing."""
    route = find_route(path)
    if route is None:
        raise path_not_found()
    return route


def find_route(path: str) -> Route | None:
    """None for a path that means nothing."""
    return _read_route(path)


@kept(4096, longest=512)
def _read_route(path: str) -> Route | None:
    """Kept, because clients come back."""
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:length]), parts[length:]
    if not rest or not all(rest):
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and _find(prefix, rest[2]) is not None:
        namespace, rest = rest[1], rest[2:]
    resource = _find(prefix, rest[0])
    if resource is None or len(rest) > 3:
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    route = Route(resource, namespace, name, subresource)
    return route if _is_served(route) else None


def _find(prefix: str, plural: str) -> Resource | None:
    """Reviews have a path of their own (livesize.apiserver.http.reviews)."""
    resource = REGISTRY.find_path(prefix, plural)
    return None if resource in REVIEWS else resource


def _is_served(route: Route) -> bool:
    resource = route.resource
    if route.namespace and not resource.namespaced:
        return False
    if route.name and resource.namespaced and not route.namespace:
        return False
    return not route.subresource or route.subresource in kind_of(resource).subresources


def scope_path(resource: Resource) -> str:
    """The path of one object, as OpenAPI writes it."""
    if resource.namespaced:
        return f"{resource.prefix}/{NAMESPACES.plural}/{{namespace}}/{resource.plural}/{{name}}"
    return f"{resource.prefix}/{resource.plural}/{{name}}"
