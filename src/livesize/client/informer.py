"""Keeps a local copy of one selection of objects true, and tells every change once, in order.

It reads the present state, then watches from there; resumes where it stopped, and after 410 reads
the state again and tells the difference, so that no delete is lost. It never polls: between changes
it only waits. The state comes as the first events of the watch, or in pages from a server that does
not offer that: neither side holds all of it in one piece.

    state ──ok──► watch ──ended or connection lost──► watch from the last version seen
      ▲             └──410──┐
      └─────────────────────┘        failures in a row wait longer and longer, with jitter

``on_change(Delta(old, new))`` is called in the loop turn in which the change arrived, in the order
of the watch; it must not wait. An exception from it is a bug and ends ``run``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import (
    EVERYTHING,
    Selection,
    WatchEvent,
    WatchEventType,
    ends_initial_events,
)
from livesize.api.objects import Object, version_of
from livesize.client.interface import Client
from livesize.client.pages import list_all
from livesize.machinery.context import Context
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger

log = get_logger("client.informer")

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 5.0
_GOOD_WATCH_SECONDS = 1.0
_INITIAL_EVENTS_SECONDS = 60.0
_UNKNOWN_OPTIONS = 422


class Delta(msgspec.Struct, frozen=True):
    """One change: old None means new here, new None means gone. Never both."""

    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """The newest state known."""
        newest = self.new if self.new is not None else self.old
        assert newest is not None
        return newest


class Informer:
    """``await run()`` until cancelled; ``synced`` is set when the first list has been told."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        context: Context,
        on_change: Callable[[Delta], None],
        order: Callable[[Object], int] | None = None,
    ) -> None:
        """``order``: of the changes that one list shows; by default as the server lists them."""
        self._client = client
        self._resource = resource
        self._selection = selection
        self._clock = context.clock
        self._on_change = on_change
        self._order = order
        self._backoff = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, context.random)
        self._failures = 0
        self._version = ""
        self._asks_initial_events = True
        self._objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def items(self) -> tuple[Object, ...]:
        return tuple(self._objects.values())

    async def run(self) -> None:
        while True:
            try:
                if not self._version and not self._asks_initial_events:
                    await self._list()
                await self._watch()
            except StatusError as refusal:
                if refusal.code == _UNKNOWN_OPTIONS and not self._version:
                    self._asks_initial_events = False
                    continue
                if refusal.code == 410:
                    self._version = ""
                await self._wait(refusal.message)
            except ConnectionError as failure:
                await self._wait(str(failure))
            except TimeoutError:
                # It took the options for others', and will never say where its state ends.
                self._asks_initial_events = False

    async def _list(self) -> None:
        listing = await list_all(self._client, self._resource, self._selection)
        self._replace({_key(obj): obj for obj in listing.items}, listing.resource_version)

    def _replace(self, state: dict[tuple[str, str], Object], version: str) -> None:
        """``state`` is all there was at ``version``."""
        for key in [key for key in self._objects if key not in state]:
            self._forget(key)
        for obj in sorted(state.values(), key=self._order) if self._order else state.values():
            self._keep(obj)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        began = self._clock.monotonic()
        stream = self._client.watch(
            self._resource,
            self._selection,
            resource_version=self._version,
            initial_events=not self._version,
        )
        try:
            async with aclosing(stream):
                if not self._version:
                    async with asyncio.timeout(_INITIAL_EVENTS_SECONDS):
                        await self._take_initial_events(stream)
                async for event in stream:
                    self._failures = 0
                    self._take(event)
        finally:
            lasted = self._clock.monotonic() - began >= _GOOD_WATCH_SECONDS
            if lasted:
                self._failures = 0
        # A server may end a watch whenever it likes, but one that ends them all at once is ill.
        if not lasted:
            await self._wait("the watch ended at once")

    async def _take_initial_events(self, stream: AsyncIterator[WatchEvent]) -> None:
        state: dict[tuple[str, str], Object] = {}
        async for event in stream:
            if ends_initial_events(event):
                self._replace(state, version_of(event.object))
                return
            if event.type is WatchEventType.DELETED:
                state.pop(_key(event.object), None)
            elif event.type is not WatchEventType.BOOKMARK:
                state[_key(event.object)] = event.object
        raise ConnectionError("the watch ended before the state was whole")

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case WatchEventType.ADDED | WatchEventType.MODIFIED:
                self._keep(event.object)
            case WatchEventType.DELETED:
                self._forget(_key(event.object))
            case WatchEventType.BOOKMARK:
                pass
        self._version = version_of(event.object) or self._version

    def _keep(self, obj: Object) -> None:
        key = _key(obj)
        old = self._objects.get(key)
        if old is not None:
            before, after = old["metadata"], obj["metadata"]
            if before.get("uid") != after.get("uid"):
                # Deleted and made again while we were not looking: two changes, not one.
                self._forget(key)
                old = None
            elif before.get("resourceVersion") == after.get("resourceVersion"):
                return
        self._objects[key] = obj
        self._on_change(Delta(old, obj))

    def _forget(self, key: tuple[str, str]) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._on_change(Delta(old, None))

    async def _wait(self, why: str) -> None:
        self._failures += 1
        seconds = self._backoff.seconds(self._failures)
        # One interruption is ordinary; several in a row are worth a person's eyes.
        say = log.debug if self._failures == 1 else log.warning
        say(
            "watching again soon",
            resource=self._resource.plural,
            seconds=seconds,
            failures=self._failures,
            reason=why,
        )
        await self._clock.sleep(seconds)


def _key(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")
