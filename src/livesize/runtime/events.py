"""Passes what happens by itself on a machine on to its listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from livesize.runtime.interface import RuntimeEvent


class EventFeed:
    """Events wait at most once per container for each listener, so nothing grows without bound:
    an event only says "look again"."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()

    def publish(self, event: RuntimeEvent) -> None:
        for listener in self._listeners:
            listener.put(event)

    def listen(self) -> AsyncIterator[RuntimeEvent]:
        """Counts from this call on, not from the first wait; ends with ``close``."""
        listener = _Listener()
        self._listeners.add(listener)
        return self._drain(listener)

    def close(self) -> None:
        for listener in self._listeners:
            listener.finish()

    async def _drain(self, listener: _Listener) -> AsyncIterator[RuntimeEvent]:
        try:
            while (event := await listener.get()) is not None:
                yield event
        finally:
            self._listeners.discard(listener)


class _Listener:
    def __init__(self) -> None:
        self._waiting: dict[RuntimeEvent, None] = {}
        self._changed = asyncio.Event()
        self._finished = False

    def put(self, event: RuntimeEvent) -> None:
        self._waiting[event] = None
        self._changed.set()

    def finish(self) -> None:
        self._finished = True
        self._changed.set()

    async def get(self) -> RuntimeEvent | None:
        while not self._waiting:
            if self._finished:
                return None
            self._changed.clear()
            await self._changed.wait()
        event = next(iter(self._waiting))
        del self._waiting[event]
        return event
