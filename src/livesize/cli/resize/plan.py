"""Which requests and limits a person means. Pure.

``--cpu X`` keeps the shape of the container: the limit becomes X where there is one; the request
follows it if it was equal (Guaranteed stays Guaranteed) or would exceed it; a container with only
a request gets X as its request. ``--cpu A:B`` names request and limit. ``+X`` and ``-X`` change
what is desired now, on the side that X alone would set. Memory below a megabyte is taken for a
forgotten unit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livesize.api.objects import Object, version_of
from livesize.api.quantity import QuantityError, canonical, format_memory
from livesize.api.resources import (
    ResourceName,
    Resources,
    containers_of,
    is_vm,
    parse_amounts,
    resizable_of,
    resources_of,
    sidecars_of,
)
from livesize.cli.sizes import format_amount

SMALLEST_MEMORY_BYTES = 1_000_000
_LIKELY_GIBIBYTES = 64  # up to here a number without a unit is rather meant in Gi than in Mi
_LIKELY_MEBIBYTES = 65536


class RequestedSize(msgspec.Struct, frozen=True):
    """Of one resource, as the options say: X for both in its shape, or request and limit by name.
    With a sign in front it is a change of what is there."""

    both: str = ""
    request: str = ""
    limit: str = ""


class ResizePatch(msgspec.Struct, frozen=True):
    """The strategic merge patch for pods/resize, and the container it is for, which may be the
    pod's virtual machine."""

    container: str
    resources: Object
    of_vm: bool = False
    of_sidecar: bool = False
    version: str = ""  # it is a change of just this version of the pod; empty: of any
    cells: tuple[Object, ...] = ()  # NUMA cells of the virtual machine that change
    cells_before: Mapping[int, int] = {}  # bytes of each of them

    def body(self) -> Object:
        metadata = {"metadata": {"resourceVersion": self.version}} if self.version else {}
        if self.of_vm:
            numa = {"numa": {"cells": list(self.cells)}} if self.cells else {}
            return {**metadata, "spec": {"virtualMachine": {"resources": self.resources, **numa}}}
        entry = {"name": self.container, "resources": self.resources}
        kind = "initContainers" if self.of_sidecar else "containers"
        return {**metadata, "spec": {kind: [entry]}}


class ResizeRefusal(msgspec.Struct, frozen=True):
    """Nothing to send, and why."""

    sentence: str


def parse_requested_size(word: str, request: str, limit: str) -> RequestedSize | ResizeRefusal:
    """``word`` is X, A:B, A: or :B. Both forms at once contradict each other."""
    if word and (request or limit):
        return ResizeRefusal("give one size, or request and limit apart, not both")
    if ":" in word:
        request, _, limit = word.partition(":")
        word = ""
        if not request and not limit:
            return ResizeRefusal("':' needs a request before it or a limit after it")
    return _canonical(RequestedSize(word, request, limit))


def plan_patch(
    pod: Object, container: str, sizes: Mapping[ResourceName, RequestedSize], what: str = "pod"
) -> ResizePatch | ResizeRefusal:
    """The patch that gives ``container`` these sizes; empty: the only one that is no sidecar.
    ``what``: a pod, or the template of one."""
    chosen = choose_container(pod, container, what)
    if isinstance(chosen, ResizeRefusal):
        return chosen
    requests: Object = {}
    limits: Object = {}
    for resource, size in sizes.items():
        sides = _forgotten_unit(resource, size) or _wanted_sides(chosen, resource, size)
        if isinstance(sides, ResizeRefusal):
            return sides
        if sides.request:
            requests[resource.value] = sides.request
        if sides.limit:
            limits[resource.value] = sides.limit
    if not requests and not limits:
        return ResizeRefusal("say what to change: --cpu, --memory, or one of their sides")
    resources = {"requests": requests, "limits": limits}
    given = {side: want for side, want in resources.items() if want}
    of_sidecar = chosen["name"] in sidecars_of(pod)
    version = version_of(pod) if any(_is_change(size) for size in sizes.values()) else ""
    return ResizePatch(chosen["name"], given, is_vm(pod), of_sidecar, version)


def choose_container(pod: Object, name: str, what: str) -> Object | ResizeRefusal:
    containers = resizable_of(pod) if name else containers_of(pod)
    names = ", ".join(str(container.get("name")) for container in containers)
    if not name:
        if len(containers) == 1:
            return containers[0]
        return ResizeRefusal(f"the {what} has several containers: say which with -c ({names})")
    for container in containers:
        if container.get("name") == name:
            return container
    return ResizeRefusal(f"the {what} has no container {name!r}; it has {names}")


def _is_change(size: RequestedSize) -> bool:
    return any(sign_of(text) for text in (size.both, size.request, size.limit))


def sign_of(text: str) -> str:
    """Of a change of what is there; empty: it is a size."""
    return text[:1] if text[:1] in ("+", "-") else ""


def _wanted_sides(
    container: Object, resource: ResourceName, size: RequestedSize
) -> RequestedSize | ResizeRefusal:
    """Request and limit by name, changes added to what is there."""
    now = resources_of(container)
    request, limit = now.requests.amount(resource), now.limits.amount(resource)
    amounts: list[str] = []
    for text, base, side in (
        (size.both, request if limit is None else limit, "size"),
        (size.request, request, "request"),
        (size.limit, limit, "limit"),
    ):
        changed = _changed(resource, text, base, f"{resource.value} {side}")
        if isinstance(changed, ResizeRefusal):
            return changed
        amounts.append(changed)
    return _sides(container, resource, RequestedSize(*amounts))


def _changed(resource: ResourceName, text: str, base: int | None, what: str) -> str | ResizeRefusal:
    """``base`` with the change that ``text`` is; ``text`` itself where it is none."""
    sign = sign_of(text)
    if not sign:
        return text
    if base is None:
        return ResizeRefusal(f"there is no {what} that {text} could change; say how large it is")
    change = _amount(resource, text.removeprefix(sign))
    after = base + change if sign == "+" else base - change
    if after <= 0:
        shown = format_amount(resource, base)
        return ResizeRefusal(f"the {what} is {shown}, and {text} would leave nothing of it")
    return format_amount(resource, after)


def _sides(
    container: Object, resource: ResourceName, size: RequestedSize
) -> RequestedSize | ResizeRefusal:
    """The same size, with request and limit by name."""
    if not size.both:
        return size
    now = resources_of(container)
    request, limit = now.requests.amount(resource), now.limits.amount(resource)
    if limit is None and request is None:
        return ResizeRefusal(
            f"container {container['name']!r} has neither a {resource.value} request nor a limit;"
            f" name the one to add with --request-{resource.value} or --limit-{resource.value}"
        )
    if limit is None:
        return RequestedSize(request=size.both)
    wanted = _amount(resource, size.both)
    if request is not None and (request == limit or request > wanted):
        return RequestedSize(request=size.both, limit=size.both)
    return RequestedSize(limit=size.both)


def _forgotten_unit(resource: ResourceName, size: RequestedSize) -> ResizeRefusal | None:
    if resource is not ResourceName.MEMORY:
        return None
    for text in (size.both, size.request, size.limit):
        sign = sign_of(text)
        amount = _amount(resource, text.removeprefix(sign)) if text else 0
        if 0 < amount < SMALLEST_MEMORY_BYTES:
            if text.endswith("m"):
                return ResizeRefusal("memory of a fraction of a byte; write it like 512Mi or 4Gi")
            what = "1 byte" if amount == 1 else f"{amount} bytes"
            return ResizeRefusal(f"memory of {what}; did you mean {sign}{likely_memory(amount)}?")
    return None


def likely_memory(amount: int) -> str:
    if amount <= _LIKELY_GIBIBYTES:
        return f"{amount}Gi"
    if amount <= _LIKELY_MEBIBYTES:
        return f"{amount}Mi"
    return f"{amount // (1000 if amount % 1024 else 1024)}Mi"  # k or Ki was written for M or Mi


def _amount(resource: ResourceName, text: str) -> int:
    amount = parse_amounts({resource.value: text}).amount(resource)
    assert amount is not None
    return amount


def _canonical(size: RequestedSize) -> RequestedSize | ResizeRefusal:
    sides = []
    for text in (size.both, size.request, size.limit):
        sign = sign_of(text)
        amount = text.removeprefix(sign)
        try:
            sides.append(sign + canonical(amount) if text else "")
        except QuantityError:
            return ResizeRefusal(f"{text!r} is not a quantity such as 500m, 2, 512Mi or 4Gi")
        if sign_of(amount):
            return ResizeRefusal(f"{text!r} has two signs; a change is one, such as +512Mi")
    return RequestedSize(*sides)


def describe(patch: ResizePatch) -> str:
    """The patch in words: cpu request 2, cpu limit 2."""
    parts = [
        f"{resource} {side.removesuffix('s')} {'none' if quantity is None else quantity}"
        for side in ("requests", "limits")
        for resource, quantity in patch.resources.get(side, {}).items()
    ]
    return ", ".join([*parts, *(f"cell {cell['id']} {cell['memory']}" for cell in patch.cells)])


def undo_options(patch: ResizePatch, before: Resources) -> str:
    """The options of `livesize resize` that ask for the old size again."""
    words = [] if patch.of_vm else [f"-c {patch.container}"]
    words += [f"--numa {cell}={format_memory(old)}" for cell, old in patch.cells_before.items()]
    for side, amounts in (("request", before.requests), ("limit", before.limits)):
        for name in patch.resources.get(f"{side}s", {}):
            if patch.cells and name == ResourceName.MEMORY:
                continue  # follows from the cells
            old = format_amount(ResourceName(name), amounts.amount(ResourceName(name)))
            words.append(f"--{side}-{name} {old}")
    return " ".join(words)
