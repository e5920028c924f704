"""Opening the SQLite file: private, locked, known, and set up to lose nothing.

A file that cannot be used is refused with StoreOpenError before anything in it is changed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import apsw

from livesize.store.interface import StoreOpenError

SCHEMA_VERSION = 2
"""1: epochs were names, and no part of the revisions. 2: they are numbers."""
BUSY_MILLISECONDS = 5_000
PAGE_BYTES = 4_096
WAL_LIMIT_BYTES = 64 * 1024 * 1024
WAL_ROOM_BYTES = 12 * 1024 * 1024
"""About as far as the log grows before it is copied, while the server is busy."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE log (
  place INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  create_revision INTEGER NOT NULL,
  previous_revision INTEGER NOT NULL,
  value BLOB
) STRICT;
CREATE VIEW kv AS
  SELECT key, value, create_revision, place >> 16 AS mod_revision FROM log
  WHERE place IN (SELECT max(place) FROM log GROUP BY key) AND value IS NOT NULL;
"""


class Transaction:
    """BEGIN and COMMIT, or ROLLBACK where SQLite has not done so itself."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def connect_to_write(path: Path, size_limit_bytes: int) -> apsw.Connection:
    try:
        _make_private(path)
        connection = apsw.Connection(str(path))
    except (OSError, apsw.Error) as failure:
        raise StoreOpenError(f"cannot open the store {path}: {failure}") from failure
    try:
        require_known(connection, path)
        _set_up(connection, size_limit_bytes)
    except apsw.Error as failure:
        connection.close()
        raise StoreOpenError(f"cannot open the store {path}: {failure}") from failure
    except StoreOpenError:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as failure:
        raise StoreOpenError(f"cannot open the store {path}: {failure}") from failure
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    return connection


def lock_store_file(path: Path) -> int:
    """A file of its own: closing any descriptor of the store's file drops SQLite's locks."""
    try:
        lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as failure:
        raise StoreOpenError(f"cannot open the store {path}: {failure}") from failure
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        os.close(lock)
        raise StoreOpenError(
            f"the store {path} is in use by another process; stop that one first"
        ) from failure
    return lock


def sync_folder(folder: Path) -> None:
    """The file's name must survive a power failure as well as its contents."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_private(path: Path) -> None:
    """Only this user reads the secrets in it; SQLite gives its other files the same mode."""
    if path.exists():
        path.chmod(0o600)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def require_known(connection: apsw.Connection, path: Path) -> None:
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    if not connection.pragma("schema_version"):
        return
    found = None
    if connection.table_exists(None, "meta"):
        found = connection.execute("SELECT value FROM meta WHERE name = 'schema'").get
    if found is None or not str(found).isdecimal():
        raise StoreOpenError(f"{path} is a SQLite file, but not a Livesize store")
    if int(found) > SCHEMA_VERSION:
        raise StoreOpenError(
            f"the store {path} was written by a newer Livesize (schema {found}, this one knows"
            f" {SCHEMA_VERSION}): use that version, or another file"
        )


def _set_up(connection: apsw.Connection, size_limit_bytes: int) -> None:
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    # Checkpoints are ours to time: after the answers, not before them.
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("journal_size_limit", WAL_LIMIT_BYTES)
    connection.pragma("max_page_count", max(1, size_limit_bytes // PAGE_BYTES))
    if not connection.pragma("schema_version"):
        with Transaction(connection):
            connection.execute(_SCHEMA)
            connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
    elif connection.execute("SELECT value FROM meta WHERE name = 'schema'").get == "1":
        with Transaction(connection):
            connection.execute("UPDATE meta SET value = '0' WHERE name = 'epoch'")
            connection.execute("UPDATE meta SET value = '2' WHERE name = 'schema'")
    _make_room(connection.filename_wal)


def _make_room(log: str) -> None:
    """Zeros at the end of the log. To sync what was written over concerns the disk alone; what was
    appended also has to wait for a thread of the kernel, which enters it in the file system's
    journal. SQLite reads a log up to the first record that is not one, and zeros are none."""
    zeros = bytes(1024 * 1024)
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # SQLite keeps no log in a file here
    try:
        length = os.fstat(descriptor).st_size
        try:
            for start in range(length, WAL_ROOM_BYTES, len(zeros)):
                os.pwrite(descriptor, zeros[: WAL_ROOM_BYTES - start], start)
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, length)  # the disk is full: leave what is free to others
    finally:
        os.close(descriptor)
