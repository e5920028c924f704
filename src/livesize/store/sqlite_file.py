"""The SQLite file: every statement that is run on it once it is open.

One table holds everything: ``log`` has one row for each state a key ever had, in the order they
were committed. The newest row of a key is its current state, older ones are the history, until
they are swept. A commit is therefore a single INSERT at the end of one tree, and its cost is that
of the fsync. The view ``kv`` shows the current states to people with a SQLite shell.

A row's place is its number and its position in the commit. A row without a value says that the
key was deleted. ``previous_revision`` leads to the row it replaced (0: there was none). Numbers in
the file count from 0; outside, a revision is the first of the file's epoch plus that number. A
file that was copied, however it was done, begins a new epoch when it is opened: a backup says what
it is, and any other copy lies in another inode than it says.

Two connections: every write, sweep and checkpoint happens on ``_writing``, by the writer:
its thread, or the loop in the thread's stead, never both at once. ``_reading`` can only read, for
history that is no longer in memory, by the reader's thread.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from livesize.store.commits import WRITES_LIMIT, Commit
from livesize.store.epochs import epoch_of_copy, first_revision
from livesize.store.interface import Change, ChangeKind, CompactedError, StoreEntry, StoreSnapshot
from livesize.store.sqlite_connection import (
    BUSY_MILLISECONDS,
    PAGE_BYTES,
    Transaction,
    connect_to_read,
    connect_to_write,
    lock_store_file,
    sync_folder,
)

SWEEP_REVISIONS = 256
_PLACE_BITS = 16
_ROWS_AT_ONCE = 64

assert WRITES_LIMIT == 1 << _PLACE_BITS

# The plus keeps SQLite from building an index of all keys where the place says enough.
_REPLACED = """
  old.place BETWEEN new.previous_revision << 16 AND (new.previous_revision << 16) + 65535
  AND +old.key = new.key AND new.previous_revision > 0
"""

_CHANGES = f"""
SELECT new.place, new.key, new.create_revision, new.previous_revision, new.value,
       old.create_revision, old.value
FROM log AS new LEFT JOIN log AS old ON {_REPLACED}
WHERE new.place BETWEEN :first AND :last AND substr(new.key, 1, :width) = :prefix
ORDER BY new.place
"""  # noqa: S608 - put together from constants only

_STATES = f"""
WITH new AS (
  SELECT key, previous_revision, min(place) FROM log
  WHERE place BETWEEN :first AND :last AND substr(key, 1, :width) = :prefix GROUP BY key
)
SELECT new.key, new.previous_revision, old.create_revision, old.value
FROM new LEFT JOIN log AS old ON {_REPLACED}
"""  # noqa: S608 - put together from constants only

_SWEEP = f"""
DELETE FROM log WHERE place IN (
  SELECT old.place FROM log AS new CROSS JOIN log AS old
  WHERE new.place BETWEEN :first AND :last AND {_REPLACED}
  UNION ALL
  SELECT place FROM log WHERE place BETWEEN :first AND :last AND value IS NULL
)
"""  # noqa: S608 - put together from constants only


class SqliteContents(msgspec.Struct, frozen=True):
    """What an opened file holds."""

    epoch: int
    revision: int
    compacted: int
    swept: int
    entries: tuple[StoreEntry, ...]


def read_snapshot(connection: apsw.Connection) -> StoreSnapshot:
    """What the file holds now, in one reading."""
    with connection:
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        newest = connection.execute("SELECT max(place) FROM log").get or 0
        values = tuple(connection.execute("SELECT key, value FROM kv ORDER BY key"))
    revision = max(newest >> _PLACE_BITS, int(meta.get("compacted", "0")))
    epoch = int(meta["epoch"]) if meta.get("epoch", "").isdecimal() else 0
    return StoreSnapshot(first_revision(epoch) + revision, values)


class LogFile:
    """Blocking; each method says whose thread may call it."""

    def __init__(self, path: Path, *, size_limit_bytes: int) -> None:
        """Any thread, before the others. Raises StoreOpenError."""
        self.path = path
        with contextlib.ExitStack() as undo:
            self._lock = lock_store_file(path)
            undo.callback(os.close, self._lock)
            self._writing = connect_to_write(path, size_limit_bytes)
            undo.callback(self._writing.close)
            self._reading = connect_to_read(path)
            undo.pop_all()
        self._is_patient = True
        self._bytes_in_wal = 0
        self._first = 0  # of the epoch

    def load(self, epoch: int) -> SqliteContents:
        """Any thread, before the others. ``epoch`` begins if the file is new, or a copy; that of
        a copy is later than that of its original."""
        meta = dict(self._writing.execute("SELECT name, value FROM meta"))
        compacted = int(meta.get("compacted", "0"))
        newest = self._writing.execute("SELECT max(place) FROM log").get or 0
        revision = max(newest >> _PLACE_BITS, compacted)
        meta |= self._begin_epoch(meta, epoch, revision)
        first = self._first = first_revision(int(meta["epoch"]))
        rows = self._writing.execute("SELECT key, value, create_revision, mod_revision FROM kv")
        return SqliteContents(
            epoch=int(meta["epoch"]),
            revision=first + revision,
            compacted=first + compacted,
            swept=first + int(meta["swept"]),
            entries=tuple(
                StoreEntry(key, value, first + created, first + changed)
                for key, value, created, changed in rows
            ),
        )

    def _begin_epoch(self, meta: dict[str, str], epoch: int, revision: int) -> dict[str, str]:
        """What is new in ``meta`` now that the file is opened here."""
        here = {"inode": str(self.path.stat().st_ino)}
        if "epoch" not in meta:
            here |= {"epoch": str(epoch), "compacted": "0", "swept": "0"}
        elif meta.get("inode", here["inode"]) != here["inode"]:
            known = first_revision(int(meta["epoch"])) + revision
            here |= {"epoch": str(epoch_of_copy(epoch, known))}
        if not here.items() <= meta.items():
            self._set_meta(**here)
            sync_folder(self.path.parent)
        return here

    def append(self, commits: Sequence[Commit], *, patient: bool = True) -> None:
        """The writer. All or nothing; durable when it returns."""
        self._set_patience(patient=patient)
        rows = [row for commit in commits for row in _rows(commit, self._first)]
        # One statement is its own transaction: the common case costs a single call, and after
        # each call the thread may have to wait for the interpreter's lock when the loop is busy.
        if 1 <= len(rows) <= _ROWS_AT_ONCE:
            self._insert(rows)
        elif rows:
            with Transaction(self._writing):
                for start in range(0, len(rows), _ROWS_AT_ONCE):
                    self._insert(rows[start : start + _ROWS_AT_ONCE])
        self._bytes_in_wal += sum(PAGE_BYTES + len(row[4] or b"") for row in rows)

    def is_log_over(self, limit_bytes: int) -> bool:
        """The writer."""
        return self._bytes_in_wal > limit_bytes

    def checkpoint_if_over(self, limit_bytes: int) -> None:
        """The writer. Copies the write-ahead log into the file once it has grown."""
        if self.is_log_over(limit_bytes):
            self._writing.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._bytes_in_wal = 0

    def set_compacted(self, revision: int) -> None:
        """The writer. From now on, also after a crash, older history may be gone."""
        self._set_patience(patient=True)
        self._set_meta(compacted=str(revision - self._first))

    def sweep(self, swept: int, goal: int) -> int:
        """The writer. Delete a little of what was replaced by revisions after ``swept``
        up to ``goal``; return how far it got. Interrupted, it goes on from there."""
        self._set_patience(patient=True)
        reached = min(swept + SWEEP_REVISIONS, goal)
        with Transaction(self._writing):
            self._writing.execute(_SWEEP, self._places(swept, reached))
            self._set_meta(swept=str(reached - self._first))
        self._bytes_in_wal += PAGE_BYTES * (reached - swept)
        return reached

    def changes(
        self, prefix: str, after: int, until: int, limit: int
    ) -> tuple[Sequence[Change], int]:
        """The reader's thread. Changes under ``prefix`` after one revision up to another, about
        ``limit`` of them but never half a revision; and the revision they reach up to."""
        changes: list[Change] = []
        for row in self._reading.execute(_CHANGES, self._between(prefix, after, until)):
            revision = self._first + (row[0] >> _PLACE_BITS)
            if len(changes) >= limit and revision != changes[-1].revision:
                return changes, changes[-1].revision
            changes.append(_change(row, self._first))
        return changes, until

    def states(self, prefix: str, after: int, until: int) -> dict[str, StoreEntry | None]:
        """The reader's thread. How the keys under ``prefix`` that changed after one revision up
        to another were before; None: not there."""
        rows = self._reading.execute(_STATES, self._between(prefix, after, until))
        return {row[0]: _previous(row, self._first) for row in rows}

    def close(self) -> None:
        """The reader's thread, after the writer's has ended."""
        self._reading.close()
        # What is not checkpointed stays in the write-ahead log, and is found there next time.
        with contextlib.suppress(apsw.Error):
            self._set_patience(patient=True)
            self._writing.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._writing.close()
        os.close(self._lock)

    def _set_patience(self, *, patient: bool) -> None:
        """Whether to wait for another process that holds the file."""
        if patient != self._is_patient:
            self._writing.set_busy_timeout(BUSY_MILLISECONDS if patient else 0)
            self._is_patient = patient

    def _places(self, after: int, until: int) -> dict[str, int]:
        return {
            "first": _place(after + 1 - self._first),
            "last": _place(until + 1 - self._first) - 1,
        }

    def _between(self, prefix: str, after: int, until: int) -> dict[str, int | str]:
        return {**self._places(after, until), "prefix": prefix, "width": len(prefix)}

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        values = [value for row in rows for value in row]
        self._writing.execute(_insertion(len(rows)), values)

    def _set_meta(self, **values: str) -> None:
        marks = ",".join(["(?,?)"] * len(values))
        words = [word for item in values.items() for word in item]
        self._writing.execute(f"INSERT OR REPLACE INTO meta VALUES {marks}", words)  # noqa: S608


def _place(revision: int, position: int = 0) -> int:
    return (revision << _PLACE_BITS) + position


def _rows(commit: Commit, first: int) -> Iterator[tuple[int, str, int, int, bytes | None]]:
    for position, change in enumerate(commit):
        entry = change.entry
        yield (
            _place(change.revision - first, position),
            entry.key,
            entry.create_revision - first,
            change.previous.mod_revision - first if change.previous is not None else 0,
            entry.value if change.kind is ChangeKind.PUT else None,
        )


@functools.cache
def _insertion(rows: int) -> str:
    """The statement for so many rows: at most _ROWS_AT_ONCE different ones, which all stay
    prepared (apsw keeps a hundred)."""
    return f"INSERT INTO log VALUES {','.join(['(?,?,?,?,?)'] * rows)}"  # noqa: S608


def _change(row: tuple[Any, ...], first: int) -> Change:
    place, key, created, previous_revision, value, *before = row
    revision = first + (place >> _PLACE_BITS)
    previous = _previous((key, previous_revision, *before), first)
    if value is not None:
        entry = StoreEntry(key, value, first + created, revision)
        return Change(ChangeKind.PUT, revision, entry, previous)
    if previous is None:
        raise CompactedError(revision)
    return Change(ChangeKind.DELETE, revision, previous, previous)


def _previous(row: tuple[Any, ...], first: int) -> StoreEntry | None:
    key, revision, created, value = row
    if not revision:
        return None
    if created is None or value is None:
        raise CompactedError(first + revision)
    return StoreEntry(key, value, first + created, first + revision)
