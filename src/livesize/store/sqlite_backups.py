"""Backups and copies of SQLite files.

Whatever is restored or copied begins a new epoch (store/epochs.py): it may lack the last writes of
its original, so no revision of that one may mean anything in it. A backup is a whole SQLite file
that says it is one; a store that opens it begins a new epoch as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from livesize.store.commits import WRITES_LIMIT
from livesize.store.epochs import epoch_of_copy, first_revision
from livesize.store.interface import Change, ChangeKind, StoreEntry, StoreOpenError, StoreSnapshot
from livesize.store.sqlite_connection import (
    Transaction,
    connect_to_read,
    lock_store_file,
    require_known,
    sync_folder,
)
from livesize.store.sqlite_file import LogFile, read_snapshot

BACKUP_INODE = "backup"
_FILES = ("", "-wal", "-shm")


def backup_sqlite(source: Path, target: Path) -> StoreSnapshot:
    """Write a copy of the store, also while a server uses it. What it holds."""
    _require_file(source)
    made = _sibling(target, ".new")
    with _cleared(made):
        with (
            contextlib.closing(_open_known(source)) as reading,
            contextlib.closing(_create(made)) as writing,
        ):
            # In one step: one moment of the source, however much is written meanwhile.
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)
            _mark(writing)
            snapshot = read_snapshot(writing)
        _put_in_place(made, target)
    return snapshot


def read_sqlite(path: Path, *, exclusive: bool = False) -> StoreSnapshot:
    """What the file holds. ``exclusive``: refuse while a server uses it."""
    _require_file(path)
    lock = lock_store_file(path) if exclusive else None
    try:
        with contextlib.closing(_open_known(path)) as connection:
            problem = connection.pragma("quick_check")
            if problem != "ok":
                raise StoreOpenError(f"the store {path} is damaged: {problem}")
            return read_snapshot(connection)
    except apsw.Error as failure:
        raise StoreOpenError(f"cannot read the store {path}: {failure}") from failure
    finally:
        if lock is not None:
            os.close(lock)


def write_sqlite(path: Path, snapshot: StoreSnapshot, epoch: int) -> None:
    """Put a store with these values in the place of the file; what was there stays as
    PATH.replaced. Refuses while a server uses it."""
    lock = lock_store_file(path)
    try:
        known = [snapshot.revision, *_revision_if_readable(path)]
        made = _sibling(path, ".new")
        with _cleared(made):
            _write(made, snapshot, epoch_of_copy(epoch, *known))
            if path.exists():
                for ending in _FILES:
                    _move(_sibling(path, ending), _sibling(path, f".replaced{ending}"))
            _put_in_place(made, path)
    finally:
        os.close(lock)


def write_backup(path: Path, snapshot: StoreSnapshot) -> None:
    """As ``backup_sqlite``, of values from elsewhere."""
    made = _sibling(path, ".new")
    with _cleared(made):
        _write(made, snapshot, epoch_of_copy(0, snapshot.revision))
        with contextlib.closing(apsw.Connection(str(made))) as connection:
            _mark(connection)
        _put_in_place(made, path)


def _write(path: Path, snapshot: StoreSnapshot, epoch: int) -> None:
    file = LogFile(path, size_limit_bytes=1 << 62)
    try:
        file.load(epoch)
        revision = first_revision(epoch)
        for begin in range(0, len(snapshot.values), WRITES_LIMIT):
            revision += 1
            file.append(
                [
                    tuple(
                        Change(ChangeKind.PUT, revision, StoreEntry(*one, revision, revision), None)
                        for one in snapshot.values[begin : begin + WRITES_LIMIT]
                    )
                ]
            )
    finally:
        file.close()


def _open_known(path: Path) -> apsw.Connection:
    connection = connect_to_read(path)
    try:
        require_known(connection, path)
    except apsw.Error as failure:
        connection.close()
        raise StoreOpenError(f"cannot read the store {path}: {failure}") from failure
    except StoreOpenError:
        connection.close()
        raise
    return connection


def _create(path: Path) -> apsw.Connection:
    """Only this user may read what is in it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return apsw.Connection(str(path))
    except (OSError, apsw.Error) as failure:
        raise StoreOpenError(f"cannot write {path}: {failure}") from failure


def _mark(connection: apsw.Connection) -> None:
    """Say that this is a backup, and become one file that can be moved about."""
    connection.pragma("journal_mode", "delete")
    with Transaction(connection):
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('inode', ?)", (BACKUP_INODE,))


def _revision_if_readable(path: Path) -> list[int]:
    """A store that is replaced may be damaged: often that is why."""
    try:
        return [read_sqlite(path).revision] if path.exists() else []
    except StoreOpenError:
        return []


@contextlib.contextmanager
def _cleared(made: Path) -> Iterator[None]:
    """Without remains of an attempt, before and after."""
    remains = [_sibling(made, ending) for ending in (*_FILES, ".lock")]
    try:
        for path in remains:
            path.unlink(missing_ok=True)
        yield
    except OSError as failure:
        raise StoreOpenError(f"cannot write {made}: {failure.strerror}") from failure
    finally:
        for path in remains:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _put_in_place(made: Path, path: Path) -> None:
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(path)
    sync_folder(path.parent)


def _move(path: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    if path.exists():
        path.rename(target)


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise StoreOpenError(f"there is no store at {path}")
