"""Keeps the ledger in a file: written before the machine is touched, on disk before it is told.

What is written survives the end of every process; it is on disk a moment later, and from then on
survives a loss of power as well. The machine may be touched in between, because it loses whatever
was done to it with its power; the API server may not be told, because it does not.

A small SQLite file (WAL) on a thread of its own. ``save`` and ``forget`` only note what changed;
``durable`` waits until all that was noted so far is on disk. What was noted in one turn of the
event loop shares one commit, and so does what gathers while a commit runs, so that many decisions
cost one fsync. What is noted ``soon`` waits a moment for company: order is kept, so nothing noted
later can be durable before it. ``begin`` does not wait for the end of the turn: the commit then
runs beside whatever is planned meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

import apsw
import msgspec

from livesize.agent.allocation.ledger import Allocation

SCHEMA_VERSION = 1
SOON_SECONDS = 0.1
LOG_PAGES = 1000
"""So long SQLite's log may grow before it is brought into the file."""

T = TypeVar("T")

_decoder = msgspec.json.Decoder(Allocation)
_encoder = msgspec.json.Encoder()


class CheckpointError(Exception):
    """The file cannot be used: it was written by a newer livesize, or the disk failed."""


class Saving:
    """What goes into the file together. Whoever waits for a part shields it: others wait too."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.written: asyncio.Future[None] = loop.create_future()
        self.durable: asyncio.Future[None] = loop.create_future()

    def succeeded(self, part: asyncio.Future[None]) -> None:
        if not part.done():
            part.set_result(None)

    def failed(self, failure: BaseException) -> None:
        for part in (self.written, self.durable):
            if not part.done():
                part.set_exception(failure)
                part.exception()  # seen, even where nobody waits


class Checkpoint:
    """``await Checkpoint.open(path)``, then ``load``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._connection: apsw.Connection | None = None
        self._log = -1  # SQLite's, beside the file
        self._log_pages = 0
        self._noted: dict[str, bytes | None] = {}
        self._batch: Saving | None = None
        self._running: Saving | None = None
        self._later: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, path: Path) -> Checkpoint:
        """Open the file, making it where it does not exist; raises CheckpointError."""
        checkpoint = cls(path)
        await checkpoint._call(checkpoint._connect)
        return checkpoint

    async def load(self) -> tuple[Allocation, ...]:
        return await self._call(self._read)

    def save(self, entry: Allocation, *, soon: bool = False) -> Saving:
        """Note the new state of one pod. ``soon``: nobody waits for it, so it may go with the next
        commit."""
        return self._note(entry.uid, _encoder.encode(entry), soon=soon)

    def begin(self, entry: Allocation) -> Saving:
        """Note it, and do not wait for the end of the turn."""
        begun = self.save(entry)
        self._flush()
        return begun

    def forget(self, uid: str) -> None:
        self._note(uid, None)

    async def durable(self) -> None:
        """Return when everything noted before the call is on disk."""
        if self._batch is not None:
            if self._later is not None:
                asyncio.get_running_loop().call_soon(self._flush)
            await asyncio.shield(self._batch.durable)
        elif self._running is not None:
            await asyncio.shield(self._running.durable)

    async def close(self) -> None:
        await self.durable()
        await self._call(self._close)
        self._thread.shutdown(wait=True)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _note(self, uid: str, value: bytes | None, *, soon: bool = False) -> Saving:
        self._noted[uid] = value
        loop = asyncio.get_running_loop()
        if self._batch is None:
            self._batch = Saving()
        if soon and self._later is None:
            self._later = loop.call_later(SOON_SECONDS, self._flush)
        elif not soon:
            # At the end of this turn, so that its other decisions come along.
            loop.call_soon(self._flush)
        return self._batch

    def _flush(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._running is not None or self._batch is None:
            return
        noted, self._noted = self._noted, {}
        saving, self._running, self._batch = self._batch, self._batch, None
        loop = asyncio.get_running_loop()
        tell = functools.partial(loop.call_soon_threadsafe, saving.succeeded, saving.written)
        commit = loop.run_in_executor(self._thread, self._commit, noted, tell)
        commit.add_done_callback(functools.partial(self._committed, noted))

    def _committed(self, noted: dict[str, bytes | None], commit: asyncio.Future[None]) -> None:
        assert self._running is not None
        saving, self._running = self._running, None
        failure = commit.exception()
        if failure is None:
            saving.succeeded(saving.written)
            saving.succeeded(saving.durable)
        else:
            # Still to be written: it goes with the next, unless there is something newer.
            self._noted = {**noted, **self._noted}
            saving.failed(failure)
        self._flush()

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
            return _decoder.decode(entry)
        except msgspec.DecodeError as failure:
            raise CheckpointError(
                f"{self._path}: what was promised to pod {uid} cannot be read ({failure}): run the"
                " livesize that wrote it; or stop this machine's pods and remove the file"
            ) from failure

    def _commit(self, noted: dict[str, bytes | None], tell_written: Callable[[], object]) -> None:
        assert self._connection is not None, "open comes first"
        try:
            with self._connection as connection:
                for uid, entry in noted.items():
                    if entry is None:
                        connection.execute("DELETE FROM allocations WHERE uid = ?", (uid,))
                    else:
                        connection.execute(
                            "INSERT OR REPLACE INTO allocations VALUES (?, ?)", (uid, entry)
                        )
            tell_written()
            os.fdatasync(self._log)
            if self._log_pages > LOG_PAGES:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, OSError) as failure:
            raise CheckpointError(f"cannot write {self._path}: {failure}") from failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            os.close(self._log)


class SecuredEntry:
    """One pod's entry in the checkpoint, and which state of it is known to be written."""

    def __init__(self, checkpoint: Checkpoint, secured: Allocation | None) -> None:
        self._checkpoint = checkpoint
        self._secured = secured
        self._begun: tuple[Allocation, Saving] | None = None
        self._saving: Saving | None = None  # of the promise that was written last

    def holds(self, entry: Allocation) -> bool:
        return self._secured == entry

    def begin(self, entry: Allocation) -> None:
        """A promise was just made: it is written while its pod's worker still plans."""
        if not self.holds(entry):
            self._begun = entry, self._checkpoint.begin(entry)

    async def secure(self, entry: Allocation) -> None:
        """Return when it is written."""
        if not self.holds(entry):
            begun, self._begun = self._begun, None  # once: what failed is noted anew
            is_begun = begun is not None and begun[0] == entry
            saving = begun[1] if begun is not None and is_begun else self._checkpoint.save(entry)
            self._saving = saving
            await asyncio.shield(saving.written)
            self._secured = entry

    async def durable(self) -> None:
        """Return when what was secured is on disk, so that others may hear of it."""
        saving = self._saving
        if saving is None:
            return
        try:
            await asyncio.shield(saving.durable)
        except CheckpointError:
            if self._saving is saving:
                self._secured = None  # to be secured anew
            raise
        if self._saving is saving:
            self._saving = None

    def note_applied(self, entry: Allocation) -> None:
        """That it was applied, the machine says too, so nobody waits for the disk. The promise it
        holds is durable already, unless a newer one came meanwhile."""
        self._checkpoint.save(entry, soon=True)
        self._begun = None
        known = self._secured is not None and self._secured.generation == entry.generation
        self._secured = entry if known else None

    async def forget(self, uid: str) -> None:
        self._secured = self._begun = self._saving = None
        self._checkpoint.forget(uid)
        await self._checkpoint.durable()
