"""A resize as nearly everybody writes it: other amounts for sizes that are there. Pure.

    {"spec": {"containers": [{"name": "db", "resources": {"requests": {"cpu": "2"}}}]}}

as a strategic merge patch of pods/X/resize. It can touch nothing but those amounts, so nothing else
has to be merged, filled in, checked or compared. None means that something about it is not
plain: a null, a number, a name or a side that is not there, an amount that is refused. Then the
patch goes the way of all others, which has a rule and a complaint for everything, and of what is
plain makes the same (ADR 0057).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from livesize.api.bounded_cache import bounded_cache
from livesize.api.objects import Object
from livesize.api.qos import qos_class
from livesize.api.quantity import MAXIMUM_CHARACTERS, canonical, parse_quantity
from livesize.api.resources import ResourceName, same_size
from livesize.api.validation.resize import unsupported
from livesize.api.validation.resources import validate_quantity

NewSizes: TypeAlias = dict[str, Object]
"""New amounts, canonical, by the name of the container; what they do not name stays."""


class PlainResize(msgspec.Struct, frozen=True):
    """``changed``: the containers that have another size than before."""

    spec: Object
    changed: list[str]


_CONTAINER = frozenset({"name", "resources"})
_SIDES = frozenset({"requests", "limits"})
_RESIZABLE = frozenset(name.value for name in ResourceName)
_TEXT = frozenset({str})
_NOTHING: Object = {}


def parse_sizes(patch: Any) -> NewSizes | None:
    """What the patch asks, where it is plain."""
    containers = _only(_only(patch, "spec"), "containers")
    if not isinstance(containers, list):
        return None
    sizes: NewSizes = {}
    for one in containers:
        if not isinstance(one, dict) or one.keys() != _CONTAINER:
            return None
        name, resources = one["name"], _parse_resources(one["resources"])
        if not isinstance(name, str) or name in sizes or resources is None:
            return None
        sizes[name] = resources
    return sizes or None


def resize_plainly(stored: Object, sizes: NewSizes) -> PlainResize | None:
    """The spec of ``stored`` with these sizes."""
    spec: Object = stored["spec"]
    if "virtualMachine" in spec or spec.get("resources") or unsupported(stored):
        return None
    containers = list(spec["containers"])
    found: list[str] = []
    changed: list[str] = []
    for at, container in enumerate(containers):
        name = container["name"]
        given = sizes.get(name)
        if given is None:
            continue
        found.append(name)
        before = container.get("resources") or _NOTHING
        resources = _resized(before, given)
        if resources is None:
            return None
        if resources is not before:
            containers[at] = {**container, "resources": resources}
            changed.append(name)
    if found != list(sizes):
        return None  # not all are there, or the patch would move them
    resized = PlainResize({**spec, "containers": containers} if changed else spec, changed)
    return resized if _keeps_class(stored, resized.spec) else None


def _only(obj: Any, field: str) -> Any:
    """The field of an object that has no other."""
    return obj.get(field) if isinstance(obj, dict) and len(obj) == 1 else None


def _parse_resources(resources: Any) -> Object | None:
    """The sides, with canonical amounts."""
    if not isinstance(resources, dict) or not resources or not resources.keys() <= _SIDES:
        return None
    parsed: Object = {}
    for side, amounts in resources.items():
        if not isinstance(amounts, dict) or not amounts.keys() <= _RESIZABLE:
            return None
        if not _TEXT.issuperset(map(type, amounts.values())):
            return None
        parsed[side] = dict(zip(amounts, map(_amount, amounts.values()), strict=True))
        if not all(parsed[side].values()):
            return None
    return parsed


@bounded_cache(4096, longest=MAXIMUM_CHARACTERS)
def _amount(text: str) -> str:
    """As it is stored; empty for one that is refused. Kept, because sizes repeat."""
    return "" if validate_quantity(text, "") else canonical(text)


def _resized(before: Object, given: Object) -> Object | None:
    """``before`` with other amounts, for resources it has on that side already."""
    if not before.keys() <= _SIDES:
        return None  # it says more than sizes
    after = dict(before)
    for side, amounts in given.items():
        here = before.get(side)
        if here is None or not amounts.keys() <= here.keys() <= _RESIZABLE:
            return None
        after[side] = {**here, **amounts}
    if after == before:
        return before
    # The same in other words is no resize, and yet a change.
    return None if same_size(after, before) or not _fits(after) else after


def _fits(resources: Object) -> bool:
    """No request is above its limit."""
    requests, limits = resources.get("requests"), resources.get("limits")
    if not requests or not limits or requests == limits:
        return True
    return all(
        parse_quantity(request) <= parse_quantity(limits[name])
        for name, request in requests.items()
        if name in limits
    )


def _keeps_class(stored: Object, spec: Object) -> bool:
    """A resize does not change the quality of service."""
    before = (stored.get("status") or _NOTHING).get("qosClass") or qos_class(stored)
    return before == qos_class({"spec": spec})
