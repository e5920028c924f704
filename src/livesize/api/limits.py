"""What the LimitRanges of a namespace give a pod and demand of it, in Kubernetes' words.

``with_limit_defaults`` fills in what containers do not say; ``limit_problems`` says what is outside
the bounds, on create and on every resize alike (F18); ``claim_problems`` the same of a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.quantity import (
    NANO,
    QuantityStyle,
    canonical,
    format_quantity,
    parse_quantity,
    style_of,
)
from livesize.api.resources import containers_of, init_containers_of, moments, stays

Quantities: TypeAlias = dict[str, int]

_CLAIM = "PersistentVolumeClaim"


class _Size(msgspec.Struct, frozen=True):
    """Requests and limits of one container, or of the whole pod, in nano-units."""

    what: str
    requests: Quantities
    limits: Quantities


def with_limit_defaults(pod: Object, limit_ranges: Iterable[Object]) -> Object:
    """The pod whose containers have the defaults where they say nothing. A virtual machine always
    says its size."""
    items = [item for item in _items(limit_ranges) if item.get("type") == "Container"]
    spec = dict(pod.get("spec") or {})
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_filled(container, items) for container in spec[kind]]
    return pod if spec == pod.get("spec") else {**pod, "spec": spec}


def limit_problems(pod: Object, limit_ranges: Iterable[Object]) -> list[str]:
    """Each bound the pod or one of its containers does not keep, as a sentence."""
    starting: list[Object] = lookup(pod, "spec", "initContainers", default=[])
    containers = [_size_of(container) for container in [*containers_of(pod), *starting]]
    whole = _whole(pod)
    problems: list[str] = []
    for item in _items(limit_ranges):
        sizes = {"Container": containers, "Pod": [whole]}.get(item.get("type", ""), [])
        for size in sizes:
            problems += _problems(item, size)
    return list(dict.fromkeys(problems))


def claim_problems(claim: Object, limit_ranges: Iterable[Object]) -> list[str]:
    """Each bound a PersistentVolumeClaim does not keep; a claim has requests only."""
    asked = _parsed(lookup(claim, "spec", "resources", "requests", default={}))
    problems: list[str] = []
    for item in _items(limit_ranges):
        if item.get("type") != _CLAIM:
            continue
        for name, least in sorted((item.get("min") or {}).items()):
            if asked.get(name, 0) < parse_quantity(least):
                problems.append(_of_claim("minimum", name, least, asked))
        for name, most in sorted((item.get("max") or {}).items()):
            if asked.get(name, 0) > parse_quantity(most):
                problems.append(_of_claim("maximum", name, most, asked))
    return problems


def _of_claim(word: str, name: str, limit: str, requested: Quantities) -> str:
    shown = _shown(requested.get(name, 0), limit)
    return f"{word} {name} usage per {_CLAIM} is {canonical(limit)}, but request is {shown}"


def _items(limit_ranges: Iterable[Object]) -> Iterator[Object]:
    for limit_range in limit_ranges:
        yield from lookup(limit_range, "spec", "limits", default=[])


def _filled(container: Object, items: Iterable[Object]) -> Object:
    resources = dict(container.get("resources") or {})
    for item in items:
        for side, given in (("limits", "default"), ("requests", "defaultRequest")):
            defaults = item.get(given) or {}
            if defaults:
                resources[side] = {**defaults, **(resources.get(side) or {})}
    if resources == (container.get("resources") or {}):
        return container
    return {**container, "resources": resources}


def _size_of(container: Object) -> _Size:
    resources = container.get("resources") or {}
    sides = (resources.get(side) or {} for side in ("requests", "limits"))
    requests, limits = (_parsed(side) for side in sides)
    return _Size("Container", requests, limits)


def _parsed(quantities: Object) -> Quantities:
    return {name: parse_quantity(quantity) for name, quantity in quantities.items()}


def _whole(pod: Object) -> _Size:
    """The most that containers need together at any moment."""
    running = [_size_of(container) for container in containers_of(pod)]
    starting = [(_size_of(one), stays(one)) for one in init_containers_of(pod)]
    together = moments(running, starting)
    requests = _most([_sum(one.requests for one in sizes) for sizes in together])
    limits = _most([_sum(one.limits for one in sizes) for sizes in together])
    return _Size("Pod", requests, limits)


def _sum(many: Iterable[Quantities]) -> Quantities:
    summed: Quantities = {}
    for one in many:
        for name, amount in one.items():
            summed[name] = summed.get(name, 0) + amount
    return summed


def _most(many: Iterable[Quantities]) -> Quantities:
    most: Quantities = {}
    for one in many:
        for name, amount in one.items():
            most[name] = max(most.get(name, 0), amount)
    return most


def _problems(item: Object, size: _Size) -> Iterator[str]:
    for name, least in sorted((item.get("min") or {}).items()):
        yield from _below(name, least, size)
    for name, most in sorted((item.get("max") or {}).items()):
        yield from _above(name, most, size)
    for name, ratio in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        yield from _ratio_problems(name, ratio, size)


def _below(name: str, least: str, size: _Size) -> Iterator[str]:
    bound = f"minimum {name} usage per {size.what} is {canonical(least)}"
    if name not in size.requests:
        yield f"{bound}.  No request is specified"
        return
    for side, amounts in (("request", size.requests), ("limit", size.limits)):
        if name in amounts and amounts[name] < parse_quantity(least):
            yield f"{bound}, but {side} is {_shown(amounts[name], least)}"
            return


def _above(name: str, most: str, size: _Size) -> Iterator[str]:
    bound = f"maximum {name} usage per {size.what} is {canonical(most)}"
    if name not in size.limits:
        yield f"{bound}.  No limit is specified"
        return
    for side, amounts in (("limit", size.limits), ("request", size.requests)):
        if name in amounts and amounts[name] > parse_quantity(most):
            yield f"{bound}, but {side} is {_shown(amounts[name], most)}"
            return


def _ratio_problems(name: str, ratio: str, size: _Size) -> Iterator[str]:
    bound = f"{name} max limit to request ratio per {size.what} is {canonical(ratio)}"
    request, limit = size.requests.get(name, 0), size.limits.get(name, 0)
    if not request:
        yield f"{bound}, but no request is specified or request is 0"
    elif not limit:
        yield f"{bound}, but no limit is specified or limit is 0"
    elif limit * NANO > parse_quantity(ratio) * request:
        yield f"{bound}, but provided ratio is {limit / request:f}"


def _shown(nano: int, like: str) -> str:
    """In the units of the bound, as far as it is whole in them."""
    binary = style_of(like) is QuantityStyle.BINARY_SI and nano % NANO == 0
    style = QuantityStyle.BINARY_SI if binary else QuantityStyle.DECIMAL_SI
    return format_quantity(nano, style)
