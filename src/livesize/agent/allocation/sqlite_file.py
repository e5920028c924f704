"""The checkpoint's file on a real disk: SQLite in WAL mode.

A commit goes into SQLite's log and waits for no disk. One thread syncs that log, and brings a long
one into the database by a connection of its own, so that no write waits for it. How long the disk
takes (machinery/disk_pace.py) says whether the event loop may sync by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import apsw

from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.checkpoint_file import Changes, CheckpointError, SyncMode
from livesize.machinery.disk_pace import DiskPace
from livesize.machinery.telemetry import get_logger

log = get_logger("agent.checkpoint")

SCHEMA_VERSION = 1
LOG_PAGES = 4000
"""SQLite's log may grow so long before the thread brings it into the database."""


async def open_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint in ``path``, which is made where it does not exist; raises CheckpointError."""
    return Checkpoint(await SqliteFile.open(path))


class SqliteFile:
    """``await SqliteFile.open(path)``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._connection: apsw.Connection | None = None
        self._log = -1  # a descriptor of SQLite's log
        self._log_pages = 0
        self._pace = DiskPace()

    @classmethod
    async def open(cls, path: Path) -> SqliteFile:
        """Open the file, making it where it does not exist; raises CheckpointError."""
        file = cls(path)
        await asyncio.get_running_loop().run_in_executor(file._thread, file._connect)
        return file

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def syncs_quickly(self) -> bool:
        return self._pace.is_quick and self._log_pages <= LOG_PAGES

    async def read(self) -> tuple[tuple[str, bytes], ...]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)

    def write(self, changes: Changes) -> None:
        assert self._connection is not None, "open comes first"
        try:
            if len(changes) == 1:
                self._put(self._connection, changes)
            else:
                with self._connection as connection:
                    self._put(connection, changes)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot write {self._path}: {failure}") from failure

    def _put(self, connection: apsw.Connection, changes: Changes) -> None:
        for uid, content in changes.items():
            if content is None:
                connection.execute("DELETE FROM allocations WHERE uid = ?", (uid,))
            else:
                connection.execute(
                    "INSERT OR REPLACE INTO allocations VALUES (?, ?)", (uid, content)
                )

    def sync_now(self) -> None:
        try:
            with self._pace.measured():
                os.fdatasync(self._log)
        except OSError as failure:
            raise CheckpointError(f"cannot sync {self._path}: {failure}") from failure

    def start_sync(self, mode: SyncMode) -> asyncio.Future[None]:
        sync = self.sync_now if mode is SyncMode.APPENDED else self._sync_rewritten
        return asyncio.get_running_loop().run_in_executor(self._thread, self._sync_and_trim, sync)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    # By the thread

    def _sync_and_trim(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        finally:
            if self._log_pages > LOG_PAGES:
                self._thread.submit(self._trim_log)

    def _sync_rewritten(self) -> None:
        """Each record of SQLite's log vouches for the next, and a lost one takes along all that
        follow. So all of the log goes into the database, and the log begins anew."""
        try:
            self._bring_in(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot sync {self._path}: {failure}") from failure
        self.sync_now()

    def _trim_log(self) -> None:
        try:
            self._bring_in(apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as failure:
            log.warning("checkpoint's log not trimmed", reason=str(failure))

    def _bring_in(self, mode: int) -> None:
        with contextlib.closing(apsw.Connection(str(self._path))) as connection:
            connection.pragma("schema_version")  # so that it looks for the log at all
            connection.wal_checkpoint(mode=mode)

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = apsw.Connection(str(self._path))
            connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            self._check_version(connection)
            with connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS allocations"
                    " (uid TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID"
                )
                connection.pragma("user_version", SCHEMA_VERSION)
            # From here on no commit syncs: the checkpoint does, a moment later.
            connection.pragma("synchronous", "normal")
            connection.set_wal_hook(self._logged)
            self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            os.fdatasync(self._log)  # what the last agent wrote, and may not have synced
        except (apsw.Error, OSError) as failure:
            raise CheckpointError(f"cannot open {self._path}: {failure}") from failure
        self._path.chmod(0o600)
        self._connection = connection

    def _logged(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _check_version(self, connection: apsw.Connection) -> None:
        version = connection.pragma("user_version")
        if version not in (0, SCHEMA_VERSION):
            raise CheckpointError(
                f"{self._path} has schema version {version}, this livesize knows"
                f" {SCHEMA_VERSION}: run the livesize that wrote it, or a newer one"
            )

    def _read(self) -> tuple[tuple[str, bytes], ...]:
        assert self._connection is not None, "open comes first"
        try:
            rows = self._connection.execute("SELECT uid, entry FROM allocations ORDER BY uid")
            return tuple((cast("str", uid), cast("bytes", content)) for uid, content in rows)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot read {self._path}: {failure}") from failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            os.close(self._log)
