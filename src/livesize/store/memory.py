"""A store that lives as long as its process: for tests, simulations and trying things out.

It keeps the whole history until it is compacted. Nothing is durable; otherwise it keeps every
promise of the interface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from livesize.store.commits import plan_commit, plan_two_commits, require_past
from livesize.store.entries import StoreEntries
from livesize.store.epochs import first_revision
from livesize.store.feed import Feed
from livesize.store.interface import (
    Change,
    Check,
    CompactedError,
    Listing,
    StoreClosedError,
    StoreEntry,
    Write,
)


class MemoryStore:
    def __init__(self, *, epoch: int = 0) -> None:
        self.epoch = epoch
        self._entries = StoreEntries()
        self._feed = Feed(first_revision(epoch))
        self._closed = False

    async def revision(self) -> int:
        return self._feed.revision

    async def get(self, key: str) -> StoreEntry | None:
        self._require_open()
        return self._entries.get(key)

    async def list(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> Listing:
        self._require_open()
        newest = self._feed.revision
        at = newest if revision is None else revision
        require_past(at, newest)
        if at < self._feed.floor:
            raise CompactedError(self._feed.floor)
        instead = self._feed.states_at(at, prefix)
        return self._entries.page(prefix, start_after, limit, revision=at, instead=instead)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        self._require_open()
        commit = plan_commit(self._entries.get, checks, writes, self._feed.revision + 1)
        if commit:
            for change in commit:
                self._entries.apply(change)
            self._feed.publish(commit)
        return self._feed.revision

    async def commit_in_turn(
        self, checks: Sequence[Check], first: Sequence[Write], second: Sequence[Write]
    ) -> int:
        self._require_open()
        revision = self._feed.revision + 1
        for commit in plan_two_commits(self._entries.get, checks, first, second, revision):
            for change in commit:
                self._entries.apply(change)
            self._feed.publish(commit)
        return self._feed.revision

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        reached = after_revision
        while True:
            self._require_open()
            if reached < self._feed.floor:
                raise CompactedError(self._feed.floor)
            batch, reached = self._feed.batch_after(reached, prefix)
            if batch:
                yield batch
            else:
                reached = max(reached, await self._feed.wait(prefix) - 1)

    async def compact(self, revision: int) -> None:
        self._require_open()
        require_past(revision, self._feed.revision)
        self._feed.forget(revision)

    async def close(self) -> None:
        self._closed = True
        self._feed.end("the store is closed")

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")
