"""Names the resize policies that a manifest no longer has, so that applying it removes them. Pure.

A strategic merge patch removes only what it names with null. `kubectl apply` finds out what to name
by what was applied last; here managedFields tell: a policy that this program wrote, and that the
manifest does not have, goes. One that another user has written since is theirs, and stays.
"""

from __future__ import annotations

from typing import Any

from livesize.api.apply.list_keys import element_name
from livesize.api.objects import Object, lookup

_POLICY = "resizePolicy"


def name_dropped_policies(manifest: Object, before: Object, manager: str) -> Object:
    """``manifest`` of a pod with null for each such policy. ``before``: the pod that is there."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return manifest
    for fields in _written_by(manager, before):
        for kind in ("containers", "initContainers"):
            if isinstance(spec.get(kind), list):
                elements = fields.get(f"f:{kind}") or {}
                spec = {**spec, kind: [_named_in_list(one, elements) for one in spec[kind]]}
        if isinstance(spec.get("virtualMachine"), dict):
            vm = _named(spec["virtualMachine"], fields.get("f:virtualMachine") or {})
            spec = {**spec, "virtualMachine": vm}
    return {**manifest, "spec": spec}


def _written_by(manager: str, pod: Object) -> list[Object]:
    """The fields of its spec, by entry of managedFields; resizes have entries of their own."""
    return [
        lookup(entry, "fieldsV1", "f:spec", default={})
        for entry in lookup(pod, "metadata", "managedFields", default=[])
        if entry.get("manager") == manager and not entry.get("subresource")
    ]


def _named_in_list(container: Any, elements: Object) -> Any:
    if not isinstance(container, dict) or not isinstance(container.get("name"), str):
        return container
    return _named(container, elements.get(element_name(container["name"])) or {})


def _named(container: Object, fields: Object) -> Object:
    named = _with_null(container, fields)
    resources = container.get("resources") or {}
    if isinstance(resources, dict):  # IBM's map
        within = _with_null(resources, fields.get("f:resources") or {})
        named = named if within is resources else {**named, "resources": within}
    return named


def _with_null(parent: Object, fields: Object) -> Object:
    """``parent`` itself where there is nothing to name."""
    return (
        {**parent, _POLICY: None} if f"f:{_POLICY}" in fields and _POLICY not in parent else parent
    )
