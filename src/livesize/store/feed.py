"""The newest commits, in memory, and the watchers that wait for the next one.

A watcher has no queue: it remembers the revision it has read up to and reads on from here. One
that is too slow falls off the old end, and has to read from wherever the store keeps more. So a
slow watcher can neither fill the memory nor hold up anybody.

Revisions have no gaps, so the commit of a revision is found by counting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from livesize.store.commits import Commit
from livesize.store.interface import Change, StoreClosedError, StoreEntry

BATCH_CHANGES = 1_000
"""About as many changes a watcher gets at once; a revision is never split."""


class Feed:
    """Holds every commit after ``floor`` up to ``revision``. Limits of None keep everything."""

    def __init__(
        self,
        revision: int,
        *,
        limit_commits: int | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        self.floor = revision
        self._commits: list[Commit] = []
        self._limit_commits = limit_commits
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._waiting: dict[str, set[asyncio.Future[int]]] = {}
        self._ended = ""

    @property
    def revision(self) -> int:
        return self.floor + len(self._commits)

    def publish(self, commit: Commit) -> None:
        assert commit
        assert commit[0].revision == self.revision + 1, "commits come in order, without gaps"
        self._commits.append(commit)
        self._bytes += _size(commit)
        self._trim()
        if self._waiting:
            self._wake(commit)

    def batch_after(self, revision: int, prefix: str) -> tuple[Sequence[Change], int]:
        """Changes under ``prefix`` after ``revision``, and the revision they reach up to."""
        assert revision >= self.floor
        batch: list[Change] = []
        for index in range(revision - self.floor, len(self._commits)):
            batch += [one for one in self._commits[index] if one.entry.key.startswith(prefix)]
            if len(batch) >= BATCH_CHANGES:
                return batch, self.floor + index + 1
        return batch, max(revision, self.revision)

    def states_at(self, revision: int, prefix: str) -> dict[str, StoreEntry | None]:
        """How keys that have changed since ``revision`` were then; None: not there."""
        assert self.floor <= revision <= self.revision
        states: dict[str, StoreEntry | None] = {}
        for commit in self._commits[revision - self.floor :]:
            for change in commit:
                if change.entry.key.startswith(prefix):
                    states.setdefault(change.entry.key, change.previous)
        return states

    async def wait(self, prefix: str) -> int:
        """Wait for the next commit that changes something under ``prefix``: its revision.

        Nothing that happens between the call and the waiting is missed: there is no await."""
        self._require_going_on()
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(prefix, set()).add(future)
        try:
            revision = await future
        finally:
            self._leave(prefix, future)
        self._require_going_on()
        return revision

    def forget(self, revision: int) -> None:
        """Drop the commits up to ``revision``."""
        if revision > self.floor:
            self._drop(revision - self.floor)

    def end(self, why: str) -> None:
        """Nothing more will come: watchers that wait, now or later, get StoreClosedError."""
        self._ended = why
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_result(self.revision)

    def _require_going_on(self) -> None:
        if self._ended:
            raise StoreClosedError(self._ended)

    def _wake(self, commit: Commit) -> None:
        """A watcher that an earlier commit woke has not taken itself out yet."""
        keys = [change.entry.key for change in commit]
        for prefix, futures in self._waiting.items():
            asleep = [future for future in futures if not future.done()]
            if asleep and any(key.startswith(prefix) for key in keys):
                for future in asleep:
                    future.set_result(commit[0].revision)

    def _leave(self, prefix: str, future: asyncio.Future[int]) -> None:
        futures = self._waiting[prefix]
        futures.discard(future)
        if not futures:
            del self._waiting[prefix]

    def _trim(self) -> None:
        """A quarter at a time, so that moving the rest up costs little per commit."""
        too_many = self._limit_commits is not None and len(self._commits) > self._limit_commits
        too_big = self._limit_bytes is not None and self._bytes > self._limit_bytes
        if too_many or too_big:
            self._drop((len(self._commits) + 3) // 4)

    def _drop(self, count: int) -> None:
        dropped = self._commits[:count]
        del self._commits[:count]
        self._bytes -= sum(_size(commit) for commit in dropped)
        self.floor += len(dropped)


def _size(commit: Commit) -> int:
    """The bytes only this feed may be holding: the values from before and the new ones."""
    size = 0
    for change in commit:
        size += len(change.entry.value)
        if change.previous is not None:
            size += len(change.previous.value)
    return size
