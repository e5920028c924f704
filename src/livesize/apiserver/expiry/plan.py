"""Decides which events have lived long enough, and when to look again. Pure.

An event lives ``life_seconds`` from when it was last said (Kubernetes: one hour). Of more than
``maximum`` the oldest go before their time, a few more than needed, so that a flood of events does
not cost a round for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

ROOM_FRACTION = 0.1  # of the maximum, made free when it is exceeded


class EventTerms(msgspec.Struct, frozen=True):
    life_seconds: float = 3600.0
    maximum: int = 5000


class StoredEvent(msgspec.Struct, frozen=True):
    key: str
    said_at: float


class Expiry(msgspec.Struct, frozen=True):
    """Keys to remove, oldest first; the next one is due in so many seconds, None: there is none."""

    keys: tuple[str, ...]
    due_seconds: float | None


def plan_expiry(events: Iterable[StoredEvent], now: float, terms: EventTerms) -> Expiry:
    oldest_first = sorted(events, key=lambda event: (event.said_at, event.key))
    going = sum(event.said_at + terms.life_seconds <= now for event in oldest_first)
    if len(oldest_first) - going > terms.maximum:
        left = terms.maximum - math.floor(terms.maximum * ROOM_FRACTION)
        going = len(oldest_first) - left
    keys = tuple(event.key for event in oldest_first[:going])
    staying = oldest_first[going:]
    due_seconds = staying[0].said_at + terms.life_seconds - now if staying else None
    return Expiry(keys, due_seconds)
