"""Where objects lie in the store: one key per object, one prefix per resource and namespace."""

from __future__ import annotations

import functools

from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource

ROOT = "/registry/"


def prefix_of(resource: Resource, namespace: str = "") -> str:
    """What the keys of all objects of a resource (in one namespace) begin with."""
    prefix = _prefix(resource)
    return f"{prefix}{namespace}/" if namespace else prefix


@functools.cache
def _prefix(resource: Resource) -> str:
    return f"{ROOT}{resource.group or 'core'}/{resource.plural}/"


def key_of(resource: Resource, namespace: str, name: str) -> str:
    if resource.namespaced and namespace:
        return f"{_prefix(resource)}{namespace}/{name}"
    return _prefix(resource) + name


def resource_of(key: str) -> Resource | None:
    """The resource whose object lies at ``key``; None for a kind this version does not know."""
    group, plural, _ = key[len(ROOT) :].split("/", 2)
    return REGISTRY.find_plural("" if group == "core" else group, plural)
