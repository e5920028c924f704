"""How much one identity may have under way: requests in flight, open watches, and large answers
that it has not read yet, which are held in memory for it.

Over the limit is 429 with Retry-After, at once and before the body is read, so that one client that
runs away costs the others nothing. Every identity has a budget of its own; a machine that joins has
none yet and is known by its address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from livesize.api.errors import StatusError

RETRY_AFTER_SECONDS = 1
STREAM = "connect"
"""As Kubernetes' metrics call what goes on for as long as both sides like."""
JOIN = "join"
"""The verb of a request to become a node, which Kubernetes has none for."""


class Budget(msgspec.Struct, frozen=True):
    """Of each identity, and of each address that nodes join from. Nodes watch a few resources each
    under names of their own; each join waits for a disk and a lock that others need too."""

    requests: int = 512
    watches: int = 4096
    joins: int = 16
    unread_bytes: int = 256 * 1024 * 1024


class RequestLimits:
    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._requests: dict[str, int] = {}
        self._watches: dict[str, int] = {}
        self._joins: dict[str, int] = {}
        self._unread: dict[str, int] = {}

    def enter(self, identity: str, verb: str) -> Callable[[], None]:
        """Take a place; the caller gives it back by calling what is returned, once."""
        if verb in ("watch", STREAM):
            return _take(self._watches, identity, self._budget.watches, "open watches")
        if verb == JOIN:
            return _take(self._joins, identity, self._budget.joins, "joins in flight")
        return _take(self._requests, identity, self._budget.requests, "requests in flight")

    def hold(self, identity: str, size: int, leave: Callable[[], None]) -> Callable[[], None]:
        """Also hold the bytes of an answer, until what is returned is called instead of ``leave``.
        One answer is held in any case, however large."""
        held, limit = self._unread.get(identity, 0), self._budget.unread_bytes
        if held and held + size > limit:
            raise _too_many(identity, limit, "bytes of answers that were not read")
        self._unread[identity] = held + size

        def leave_both() -> None:
            leave()
            _give_back(self._unread, identity, size)

        return leave_both

    def in_flight(self) -> int:
        return sum(self._requests.values()) + sum(self._joins.values())


def _take(places: dict[str, int], identity: str, limit: int, what: str) -> Callable[[], None]:
    taken = places.get(identity, 0)
    if taken >= limit:
        raise _too_many(identity, limit, what)
    places[identity] = taken + 1
    return functools.partial(_give_back, places, identity, 1)


def _give_back(places: dict[str, int], identity: str, count: int) -> None:
    if places[identity] > count:
        places[identity] -= count
    else:
        del places[identity]  # names come and go; the table must not grow with them


def _too_many(identity: str, limit: int, what: str) -> StatusError:
    message = (
        f"Too many requests, please try again later: {identity} has {limit} {what}, which is"
        " the limit"
    )
    details = {"retryAfterSeconds": RETRY_AFTER_SECONDS}
    return StatusError(429, "TooManyRequests", message, details=details)
