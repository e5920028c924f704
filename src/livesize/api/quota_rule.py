"""How quotas count the objects of a kind: each kind says it in one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object
from livesize.api.quantity import NANO

QuotaUsage: TypeAlias = dict[str, int]
"""Amounts in nano-units by the quota's own names: requests.cpu, limits.memory, count/secrets."""


def nothing_more(_obj: Object, _names: Iterable[str]) -> QuotaUsage:
    return {}


class QuotaRule(msgspec.Struct, frozen=True):
    """``usage``: what an object takes of the named amounts, besides counting as an object.
    ``in_scope``: whether a scope of a quota covers it; a quota with scopes counts no kind without.
    ``unspecified``: which of the named amounts a new object has to say and does not."""

    usage: Callable[[Object, Iterable[str]], QuotaUsage] = nothing_more
    in_scope: Callable[[Object, Object], bool] | None = None
    unspecified: Callable[[Object, Iterable[str]], list[str]] | None = None


COUNTED = QuotaRule()


def counted_as(plural: str) -> QuotaRule:
    """Of a kind whose objects quotas also count under its plural alone."""
    return QuotaRule(lambda _obj, _names: {plural: NANO})


def side_of(name: str) -> tuple[str, str]:
    """``requests.cpu`` and ``cpu`` are the same."""
    side, _, rest = name.partition(".")
    return (side, rest) if side in ("requests", "limits") and rest else ("requests", name)
