"""Says of an amount that a virtual machine cannot have which nearest ones it can. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.quantity import NANO, format_memory, parse_quantity
from livesize.api.vm_size import MEMORY_BLOCK_BYTES

LARGEST_BYTES = 2**63 - 1


class SizeSteps(msgspec.Struct, frozen=True):
    """The steps in which a VM has one resource, in CPUs or bytes."""

    step: int
    rule: str
    format: Callable[[int], str]


class Limit(msgspec.Struct, frozen=True):
    amount: int
    why: str = ""


CPUS = SizeSteps(1, "a virtual machine has whole CPUs", str)
BLOCKS = SizeSteps(MEMORY_BLOCK_BYTES, "must be a multiple of 2Mi", format_memory)


def bounds(low: int, high: int) -> tuple[Limit, Limit]:
    return Limit(low), Limit(high)


def check_amount(
    quantity: Any, field: str, scale: SizeSteps, limits: tuple[Limit, Limit]
) -> list[FieldError]:
    nano = parse_quantity(quantity)
    low, high = limits
    if nano % (scale.step * NANO):
        wrong = scale.rule
    elif nano < low.amount * NANO:
        wrong = _beyond("at least", low, scale)
    elif nano > high.amount * NANO:
        wrong = _beyond("at most", high, scale)
    else:
        return []
    detail = f"{wrong}: {_nearest(nano, scale, low.amount, high.amount)}"
    return [FieldError(FieldErrorKind.INVALID, field, detail, str(quantity))]


def nearest_sizes(reachable: Iterable[int], scale: SizeSteps) -> str:
    sizes = sorted(set(reachable))
    words = "the nearest size is" if len(sizes) == 1 else "the nearest sizes are"
    return f"{words} {' and '.join(scale.format(size) for size in sizes)}"


def _beyond(words: str, limit: Limit, scale: SizeSteps) -> str:
    why = f", {limit.why}" if limit.why else ""
    return f"must be {words} {scale.format(limit.amount)}{why}"


def _nearest(nano: int, scale: SizeSteps, low: int, high: int) -> str:
    """``low`` and ``high`` are whole steps, or not to be had: then what is between them."""
    below = nano // (scale.step * NANO) * scale.step
    return nearest_sizes((max(low, min(size, high)) for size in (below, below + scale.step)), scale)
