"""One watch of etcd, which goes on after any lost connection where it had been.

A commit's last event is the head's, so everything up to a head is whole revisions. It begins one
revision early and throws that one away: so etcd notices when what comes next was compacted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from livesize.store.etcd.layout import Epoch, Layout, change_of
from livesize.store.etcd.link import EtcdLink, is_connection_trouble
from livesize.store.etcd.messages import ProtobufMessage, WatchCreateRequest, WatchRequest
from livesize.store.interface import (
    Change,
    CompactedError,
    StoreClosedError,
    StoreUnavailableError,
)

REPLACED = "the store was replaced by a copy; start again to go on with that"
CLOSED = "the store is closed"

WatchCall: TypeAlias = grpc.aio.StreamStreamCall[ProtobufMessage, ProtobufMessage]


class Watches:
    """All watches of one store. ``end`` ends those that wait."""

    def __init__(self, link: EtcdLink, layout: Layout, epoch: Epoch) -> None:
        self._link = link
        self._layout = layout
        self._epoch = epoch
        self._calls: set[WatchCall] = set()
        self._ended = asyncio.Event()

    async def changes(self, prefix: str, reached: int) -> AsyncGenerator[Sequence[Change], None]:
        """Everything under ``prefix`` after etcd's revision ``reached``."""
        raw_prefix = self._layout.key(prefix)
        while True:
            async with contextlib.aclosing(self._events(reached)) as groups:
                async for events in groups:
                    batch, reached = self._whole(events, reached, raw_prefix)
                    if batch:
                        yield batch
            self._link.leave()
            await self._link.pause()

    async def find_compacted(self) -> int:
        """The revision of the last compaction; etcd says it only in refusing a revision."""
        try:
            async with contextlib.aclosing(self._events(1)) as groups:
                await anext(groups, None)
        except CompactedError as refusal:
            return refusal.compact_revision
        raise StoreUnavailableError("etcd does not say what it has compacted")

    def end(self) -> None:
        self._ended.set()
        for call in self._calls:
            call.cancel()

    async def _events(self, start: int) -> AsyncGenerator[list[ProtobufMessage], None]:
        """Groups of events that end with a head; returns when the connection is lost."""
        if self._ended.is_set():
            raise StoreClosedError(CLOSED)
        first, end = self._layout.everything
        create = WatchCreateRequest(key=first, range_end=end, start_revision=start, prev_kv=True)
        call = self._link.open_watch(self._requests(WatchRequest(create_request=create)))
        self._calls.add(call)
        waiting: list[ProtobufMessage] = []
        try:
            while True:
                response: ProtobufMessage = await call.read()
                if response is grpc.aio.EOF or self._is_cancelled(response):
                    return
                waiting.extend(response.events)
                whole = self._heads_end(waiting)
                if whole:
                    yield waiting[:whole]
                    del waiting[:whole]
        except grpc.aio.AioRpcError as error:
            if not is_connection_trouble(error):
                raise StoreUnavailableError(f"etcd ended the watch: {error.details()}") from error
        except asyncio.CancelledError:
            if self._ended.is_set() and not _is_cancelled():
                raise StoreClosedError(CLOSED) from None
            raise
        finally:
            self._calls.discard(call)
            call.cancel()

    async def _requests(self, only: ProtobufMessage) -> AsyncGenerator[ProtobufMessage, None]:
        """etcd ends a watch whose requests have ended, so these do not."""
        yield only
        await self._ended.wait()

    def _is_cancelled(self, response: ProtobufMessage) -> bool:
        if response.canceled and response.compact_revision:
            raise CompactedError(self._epoch.ours(response.compact_revision))
        return bool(response.canceled)

    def _heads_end(self, events: Sequence[ProtobufMessage]) -> int:
        """How many events there are up to the last head."""
        for count in range(len(events), 0, -1):
            if events[count - 1].kv.key == self._layout.head:
                return count
        return 0

    def _whole(
        self, events: Sequence[ProtobufMessage], reached: int, prefix: bytes
    ) -> tuple[list[Change], int]:
        batch: list[Change] = []
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            if revision <= reached:
                continue
            if key == self._layout.epoch:
                raise StoreClosedError(REPLACED)
            if key.startswith(prefix):
                batch.append(change_of(event, self._layout, self._epoch))
        return batch, max(reached, events[-1].kv.mod_revision)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() > 0
