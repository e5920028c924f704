"""What a store promises; memory, SQLite and etcd pass the same contract suite.

- A revision is an integer that grows by one with every commit that wrote something. It carries the
  epoch of the store's history (store/epochs.py), so that it never goes back, not even in a copy.
- ``commit`` is atomic over all its keys: every check holds and every write happens, at one new
  revision, or nothing happens. It returns only when the writes would survive kill -9.
- Commits are delivered to watchers in revision order, without gaps or repeats, and are in the
  watchers' queues before ``commit`` returns (etcd: soon after; ask ``revision`` to know).
- Only what is durable can be seen: get, list and watch never show a write that could be lost, and
  a refusal because of another write comes when that write is durable.
- Values are opaque bytes. Keys are text, in the order of their code points; prefixes select by
  plain string prefix.
- A request that is wrong for good (a key written twice in one commit, a revision that has not
  happened yet, a value over the limit) raises ValueError and changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeAlias

import msgspec


class StoreEntry(msgspec.Struct, frozen=True):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Check(msgspec.Struct, frozen=True):
    """The key was last changed at ``mod_revision``; 0 means it does not exist."""

    key: str
    mod_revision: int


class Put(msgspec.Struct, frozen=True, tag=True):
    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True, tag=True):
    key: str


Write: TypeAlias = Put | Delete


class Listing(msgspec.Struct, frozen=True):
    """Entries in key order, as they were at ``revision``."""

    entries: tuple[StoreEntry, ...]
    revision: int
    more: bool = False


class StoreSnapshot(msgspec.Struct, frozen=True):
    """The current values, by key, and the newest revision: what backups and copies are made of."""

    revision: int
    values: tuple[tuple[str, bytes], ...]


class ChangeKind(enum.StrEnum):
    PUT = "put"
    DELETE = "delete"


class Change(msgspec.Struct, frozen=True):
    """One key changed at ``revision``. ``entry`` is the new state (of a delete: the last one),
    ``previous`` the state before, None where the key is new."""

    kind: ChangeKind
    revision: int
    entry: StoreEntry
    previous: StoreEntry | None


class ConflictError(Exception):
    """A check did not hold; nothing was written."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by somebody else")
        self.key = key


class CompactedError(Exception):
    """The store no longer has this revision."""

    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"revisions up to {compact_revision} are no longer kept")
        self.compact_revision = compact_revision


class StoreClosedError(Exception):
    """The store was closed, or its medium failed; nothing more can be written."""


class StoreUnavailableError(StoreClosedError):
    """The store cannot be reached just now; a write may or may not have happened. Ask again."""


class StoreOpenError(Exception):
    """The store cannot be used; the sentence says why and what to do."""


class Store(Protocol):
    async def revision(self) -> int:
        """The newest committed revision; for an empty store the one its epoch counts from."""
        ...

    async def get(self, key: str) -> StoreEntry | None: ...

    async def list(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> Listing:
        """Entries under ``prefix`` as of ``revision`` (None: now). Raises CompactedError."""
        ...

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        """Write atomically and durably; return the revision. Raises ConflictError.

        Deleting a key that is not there writes nothing; a commit that writes nothing returns the
        newest revision. Cancelling the caller does not take the write back.
        """
        ...

    async def commit_in_turn(
        self, checks: Sequence[Check], first: Sequence[Write], second: Sequence[Write]
    ) -> int:
        """Two commits in a row that cost as much as one: ``first``, then ``second`` on top of it,
        both under ``checks``; return the revision of the second. Each writes something.

        Watchers see two revisions; where the second is written, the keys of ``first`` were not
        changed in between. Memory and SQLite write both or neither. etcd may write the first
        alone: when the process dies, or another changes what was checked (ConflictError)."""
        ...

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        """Every change under ``prefix`` after that revision, in batches that never split a
        revision. Raises CompactedError when it cannot; closing the iterator ends the watch.

        A slow reader holds up no other and costs no memory: what it has not taken is read again
        from what the store keeps, as long as that is not compacted."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget states that were already replaced at ``revision``; current values stay.

        Listing at ``revision`` and watching after it still work; anything older does not."""
        ...

    async def close(self) -> None:
        """Finish what is under way, then let go. Later calls, and watches that wait, get
        StoreClosedError; closing again does nothing."""
        ...
