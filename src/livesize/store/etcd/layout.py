"""Where our keys lie in etcd, and how its revisions become ours. Pure.

    ROOT k/KEY     the entries
    ROOT m/head    put by every commit: its revision is that of our newest commit
    ROOT m/epoch   which epoch it is, and by its own revision where that began

etcd counts the writes of everybody who uses it. The head tells ours from theirs: what it says is
reached by every watch of ours, so the store need not trust etcd's progress notifications, which
are wrong before 3.4.31 and 3.5.13. It is one read of one key, and linearizable.
"""

from __future__ import annotations

import msgspec

from livesize.store.epochs import first_revision
from livesize.store.etcd.messages import DELETE_EVENT, ProtobufMessage
from livesize.store.interface import Change, ChangeKind, CompactedError, StoreEntry

SCHEMA_VERSION = 1


class Layout(msgspec.Struct, frozen=True):
    root: bytes

    @property
    def head(self) -> bytes:
        return self.root + b"m/head"

    @property
    def epoch(self) -> bytes:
        return self.root + b"m/epoch"

    @property
    def everything(self) -> tuple[bytes, bytes]:
        return self.root, end_of(self.root)

    def key(self, key: str) -> bytes:
        return self.root + b"k/" + key.encode()

    def text(self, raw: bytes) -> str:
        return raw[len(self.root) + 2 :].decode()

    def range(self, prefix: str, start_after: str | None) -> tuple[bytes, bytes]:
        """The first key and the end of all keys under ``prefix`` after another."""
        first = self.key(prefix)
        end = end_of(first)
        if start_after is not None:
            first = max(first, self.key(start_after) + b"\0")
        return first, max(first, end)


class Epoch(msgspec.Struct, frozen=True):
    """``zero`` is etcd's revision where it began. ``loading``: it is being copied into."""

    number: int
    cluster: str
    schema: int = SCHEMA_VERSION
    loading: bool = False
    zero: int = 0

    @property
    def first(self) -> int:
        return first_revision(self.number)

    def ours(self, revision: int) -> int:
        return self.first + revision - self.zero

    def theirs(self, revision: int) -> int:
        return revision - self.first + self.zero


def end_of(prefix: bytes) -> bytes:
    """The first key that is after all that begin with ``prefix``, which ends below 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def entry_of(kv: ProtobufMessage, layout: Layout, epoch: Epoch) -> StoreEntry:
    return StoreEntry(
        layout.text(kv.key), kv.value, epoch.ours(kv.create_revision), epoch.ours(kv.mod_revision)
    )


def change_of(event: ProtobufMessage, layout: Layout, epoch: Epoch) -> Change:
    """Raises CompactedError where etcd no longer has the state before."""
    kv, revision = event.kv, epoch.ours(event.kv.mod_revision)
    previous = entry_of(event.prev_kv, layout, epoch) if event.HasField("prev_kv") else None
    if event.type == DELETE_EVENT:
        if previous is None:
            raise CompactedError(revision)
        return Change(ChangeKind.DELETE, revision, previous, previous)
    if previous is None and kv.create_revision != kv.mod_revision:
        raise CompactedError(revision)
    return Change(ChangeKind.PUT, revision, entry_of(kv, layout, epoch), previous)
