"""Keeps the ledger in a file: written before the machine is touched, on disk soon after.

What is written survives the end of every process; it is on disk a moment later, and from then on
survives a loss of power as well. The machine may be touched in between, because it loses whatever
was done to it with its power. The API server does not, so it is told of most promises only once
they are on disk; that a resize is Done it may be told before, because from that the next agent
knows what was promised (``Judge.recall``).

A small SQLite file (WAL). ``save`` and ``forget`` write at once, which waits for no disk. Who needs
one promise on a quick disk syncs it on the spot (machinery/disk_pace.py); otherwise a thread syncs
what was written, and what gathers while it syncs, together. What is ``noted`` is written with the
next, or soon by itself: order is kept, so nothing that comes later can be in the file without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

import apsw
import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.machinery.disk_pace import DiskPace
from livesize.machinery.telemetry import get_logger

log = get_logger("agent.checkpoint")

SCHEMA_VERSION = 1
SOON_SECONDS = 0.1
SYNC_SECONDS = 0.01
"""So long the disk is left alone: whoever needs it sooner says so, and what is Done was told."""
AGAIN_SECONDS = 1.0
"""After a failure, where nobody else writes before."""
LOG_PAGES = 4000
"""So long SQLite's log may grow before it is brought into the file."""

T = TypeVar("T")

_decoder = msgspec.json.Decoder(Allocation)
_encoder = msgspec.json.Encoder()


class CheckpointError(Exception):
    """The file cannot be used: it was written by a newer livesize, or the disk failed."""


class Checkpoint:
    """``await Checkpoint.open(path)``, then ``load``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._connection: apsw.Connection | None = None
        self._log = -1  # SQLite's, beside the file
        self._log_pages = 0
        self._noted: dict[str, bytes | None] = {}
        self._later: asyncio.TimerHandle | None = None
        self._written = self._synced = 0  # how often, and of those
        self._unsynced: dict[str, bytes | None] = {}
        self._lost = range(0)  # writings that a failed sync may have lost, until one succeeds
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._syncing = False
        self._sync_later: asyncio.Handle | None = None
        self._pace = DiskPace()

    @classmethod
    async def open(cls, path: Path) -> Checkpoint:
        """Open the file, making it where it does not exist; raises CheckpointError."""
        checkpoint = cls(path)
        await checkpoint._call(checkpoint._connect)
        return checkpoint

    async def load(self) -> tuple[Allocation, ...]:
        return await self._call(self._read)

    def save(self, entry: Allocation) -> int:
        """Write the new state of one pod. The number is for ``durable``; raises CheckpointError."""
        self._noted[entry.uid] = _encoder.encode(entry)
        return self._write()

    def note(self, entry: Allocation) -> None:
        """Nobody waits for it."""
        self._noted[entry.uid] = _encoder.encode(entry)
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(SOON_SECONDS, self._write_noted)

    def forget(self, uid: str) -> int:
        self._noted[uid] = None
        return self._write()

    async def durable(self, number: int | None = None) -> None:
        """Return when what was written up to ``number``, or all of it, is on disk; raises
        CheckpointError where the disk has lost it, until it has been written anew."""
        number = self._written if number is None else number
        if self._may_sync_here(number):
            self._sync_here()
        if number in self._lost:
            raise CheckpointError(f"the disk has lost what was written to {self._path}")
        if number > self._synced:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((number, waiter))
            self.sync()
            await waiter

    async def close(self) -> None:
        self._write_noted()
        try:
            await self.durable()
        except CheckpointError as failure:
            log.warning("promises not on disk", reason=str(failure))
        for handle in (self._later, self._sync_later):
            if handle is not None:
                handle.cancel()
        await self._call(self._close)
        self._thread.shutdown(wait=True)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    # Writing

    def _write_noted(self) -> None:
        if self._noted:
            try:
                self._write()
            except CheckpointError as failure:
                log.warning("promises not written", reason=str(failure))
                self._write_again()

    def _write_again(self) -> None:
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(AGAIN_SECONDS, self._write_noted)

    def _write(self) -> int:
        """What cannot be written stays noted, and goes with the next."""
        assert self._connection is not None, "open comes first"
        if self._later is not None:
            self._later.cancel()
            self._later = None
        try:
            if len(self._noted) == 1:
                self._put(self._connection)
            else:
                with self._connection as connection:
                    self._put(connection)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot write {self._path}: {failure}") from failure
        self._unsynced |= self._noted
        self._noted = {}
        self._written += 1
        if self._sync_later is None:
            loop = asyncio.get_running_loop()
            self._sync_later = loop.call_later(SYNC_SECONDS, self.sync)
        return self._written

    def _put(self, connection: apsw.Connection) -> None:
        for uid, entry in self._noted.items():
            if entry is None:
                connection.execute("DELETE FROM allocations WHERE uid = ?", (uid,))
            else:
                connection.execute("INSERT OR REPLACE INTO allocations VALUES (?, ?)", (uid, entry))

    # Syncing

    @property
    def is_sound(self) -> bool:
        """The disk has not lost anything that is not there anew by now."""
        return not self._lost

    def sync(self) -> None:
        """By the thread, from now on."""
        if self._sync_later is not None:
            self._sync_later.cancel()
            self._sync_later = None
        if self._syncing or self._synced == self._written:
            return
        self._syncing = True
        number, synced = self._written, self._take_unsynced()
        loop = asyncio.get_running_loop()
        sync = self._sync_anew if self._lost else self._sync_log
        syncing = loop.run_in_executor(self._thread, sync)
        syncing.add_done_callback(lambda done: self._is_synced(number, synced, done.exception()))

    def _may_sync_here(self, number: int) -> bool:
        """Where more is to be synced than this one, others are at work, and need not wait."""
        alone = number == self._written == self._synced + 1
        threads_turn = self._syncing or self._lost or self._log_pages > LOG_PAGES
        return alone and self._pace.is_quick and not threads_turn

    def _sync_here(self) -> None:
        number, synced = self._written, self._take_unsynced()
        failure: CheckpointError | None = None
        try:
            self._sync_log()
        except CheckpointError as error:
            failure = error
        self._is_synced(number, synced, failure)
        if failure is not None:
            raise failure

    def _take_unsynced(self) -> dict[str, bytes | None]:
        unsynced, self._unsynced = self._unsynced, {}
        return unsynced

    def _is_synced(
        self, number: int, synced: dict[str, bytes | None], failure: BaseException | None
    ) -> None:
        self._syncing = False
        if failure is None:
            self._lost = range(0)
        else:
            # All of it once more: a disk that failed once may say later that all is well, and not
            # have it. So it is with what was written while it failed.
            number = self._written
            self._lost = range(self._lost.start or self._synced + 1, number + 1)
            self._noted = {**synced, **self._take_unsynced(), **self._noted}
            self._write_again()
        self._synced = number
        waiting, self._waiting = self._waiting, []
        for wanted, waiter in waiting:
            if wanted > number:
                self._waiting.append((wanted, waiter))
            elif waiter.done():  # cancelled
                continue
            elif failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)
        self.sync()
        if self._log_pages > LOG_PAGES:
            asyncio.get_running_loop().run_in_executor(self._thread, self._empty_log)

    def _sync_log(self) -> None:
        try:
            with self._pace.measured():
                os.fdatasync(self._log)
        except OSError as failure:
            raise CheckpointError(f"cannot sync {self._path}: {failure}") from failure

    def _sync_anew(self) -> None:
        """After a failure. Each record of SQLite's log vouches for the next, and one that is lost
        takes along what follows: all of it goes into the file, and the log begins anew."""
        try:
            self._bring_in(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot sync {self._path}: {failure}") from failure
        self._sync_log()

    def _empty_log(self) -> None:
        try:
            self._bring_in(apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as failure:
            log.warning("checkpoint's log not emptied", reason=str(failure))

    def _bring_in(self, mode: int) -> None:
        """The log into the file, by a connection of its own: nobody who writes waits for it."""
        with contextlib.closing(apsw.Connection(str(self._path))) as connection:
            connection.pragma("schema_version")  # so that it looks for the log at all
            connection.wal_checkpoint(mode=mode)

    # Opening

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
            # From here on nothing is synced by a commit: that is ours to do, a moment later.
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

    def _read(self) -> tuple[Allocation, ...]:
        assert self._connection is not None, "open comes first"
        try:
            rows = self._connection.execute("SELECT uid, entry FROM allocations ORDER BY uid")
            return tuple(self._decoded(uid, cast("bytes", entry)) for uid, entry in rows)
        except apsw.Error as failure:
            raise CheckpointError(f"cannot read {self._path}: {failure}") from failure

    def _decoded(self, uid: object, entry: bytes) -> Allocation:
        """Nothing is passed over: what is not counted would be given to somebody else."""
        try:
            return _decoder.decode(entry).completed()
        except msgspec.DecodeError as failure:
            raise CheckpointError(
                f"{self._path}: what was promised to pod {uid} cannot be read ({failure}): run the"
                " livesize that wrote it; or stop this machine's pods and remove the file"
            ) from failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            os.close(self._log)


class SecuredEntry:
    """One pod's entry in the checkpoint, and which state of it is known to be there."""

    def __init__(self, checkpoint: Checkpoint, secured: Allocation | None) -> None:
        self._checkpoint = checkpoint
        self._secured = secured
        self._written = secured
        self._number = 0  # of the writing
        self._unwritten: Allocation | None = None  # which could not be written

    def holds(self, entry: Allocation) -> bool:
        return self._secured == entry

    def begin(self, entry: Allocation) -> None:
        """A promise was just made. Where it cannot be written, ``secure`` says so."""
        with contextlib.suppress(CheckpointError):
            self._write(entry)

    def secure(self, entry: Allocation) -> None:
        """It is written; raises CheckpointError."""
        self._write(entry)
        self._secured = entry

    async def kept(self) -> None:
        """Return when it is written, so that others may hear that it is done; on a disk that has
        failed, when it is there. Raises CheckpointError."""
        if not self._checkpoint.is_sound:
            await self.durable()
        elif self._unwritten is not None:
            self._write(self._unwritten)

    async def durable(self) -> None:
        """Return when it is on disk, so that others may hear of it; raises CheckpointError."""
        if self._unwritten is not None:
            self._write(self._unwritten)
        try:
            await self._checkpoint.durable(self._number)
        except CheckpointError:
            self._secured = self._written = None  # to be written anew
            raise

    def note_applied(self, entry: Allocation) -> None:
        """That it was applied, the machine says too, so nobody waits for the disk. The promise it
        holds is written already, unless a newer one came meanwhile."""
        self._checkpoint.note(entry)
        before = self._secured
        known = before is not None and before.promises_the_same(entry)
        self._secured = self._written = entry if known else None
        self._unwritten = None

    async def forget(self, uid: str) -> None:
        self._secured = self._written = self._unwritten = None
        await self._checkpoint.durable(self._checkpoint.forget(uid))

    def _write(self, entry: Allocation) -> None:
        if self._written != entry:
            self._unwritten = entry
            self._number = self._checkpoint.save(entry)
            self._written, self._unwritten = entry, None
