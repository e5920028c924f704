"""``await next_turn()``: whatever else is ready in the event loop goes first, once."""

from __future__ import annotations

from collections.abc import Awaitable, Generator


class _NextTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield


_NEXT = _NextTurn()


def next_turn() -> Awaitable[None]:
    return _NEXT
