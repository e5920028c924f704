"""Makes the ledger durable before anything is touched; survives kill -9 and loss of power.

A small SQLite file (WAL, synchronous FULL) on a thread of its own. ``save`` and ``forget`` only
note what changed; ``durable`` waits until all that was noted so far is on disk. What was noted in
one turn of the event loop shares one commit, and so does what gathers while a commit runs, so
that many decisions cost one fsync. What is noted ``soon`` waits a moment for company: order is
kept, so nothing noted later can be durable before it. ``begin`` does not wait
for the end of the turn: the commit then runs beside whatever is planned meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

import apsw
import msgspec

from livesize.agent.allocation.ledger import Allocation

SCHEMA_VERSION = 1
SOON_SECONDS = 0.1

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
        self._noted: dict[str, bytes | None] = {}
        self._batch: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, path: Path) -> Checkpoint:
        """Open the file, making it where it does not exist; raises CheckpointError."""
        checkpoint = cls(path)
        await checkpoint._call(checkpoint._connect)
        return checkpoint

    async def load(self) -> tuple[Allocation, ...]:
        return await self._call(self._read)

    def save(self, entry: Allocation, *, soon: bool = False) -> None:
        """Note the new state of one pod; durable once ``durable`` returns. ``soon``: nobody waits
        for it, so it may go with the next commit."""
        self._note(entry.uid, _encoder.encode(entry), soon=soon)

    def begin(self, entry: Allocation) -> asyncio.Future[None]:
        """Note it, and do not wait for the end of the turn; done when it is durable."""
        self.save(entry)
        assert self._batch is not None, "something was noted"
        begun = self._batch
        self._flush()
        return begun

    def forget(self, uid: str) -> None:
        self._note(uid, None)

    async def durable(self) -> None:
        """Return when everything noted before the call survives kill -9."""
        if self._batch is not None:
            if self._later is not None:
                asyncio.get_running_loop().call_soon(self._flush)
            await asyncio.shield(self._batch)
        elif self._running is not None:
            await asyncio.shield(self._running)

    async def close(self) -> None:
        await self.durable()
        await self._call(self._close)
        self._thread.shutdown(wait=True)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _note(self, uid: str, value: bytes | None, *, soon: bool = False) -> None:
        self._noted[uid] = value
        loop = asyncio.get_running_loop()
        if self._batch is None:
            self._batch = loop.create_future()
        if soon and self._later is None:
            self._later = loop.call_later(SOON_SECONDS, self._flush)
        elif not soon:
            # At the end of this turn, so that its other decisions come along.
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._running is not None or self._batch is None:
            return
        noted, self._noted = self._noted, {}
        self._running, self._batch = self._batch, None
        loop = asyncio.get_running_loop()
        commit = loop.run_in_executor(self._thread, self._commit, noted)
        commit.add_done_callback(functools.partial(self._committed, noted))

    def _committed(self, noted: dict[str, bytes | None], commit: asyncio.Future[None]) -> None:
        assert self._running is not None
        waiters, self._running = self._running, None
        failure = commit.exception()
        if failure is None:
            waiters.set_result(None)
        else:
            # Still to be written: it goes with the next, unless there is something newer.
            self._noted = {**noted, **self._noted}
            waiters.set_exception(failure)
            waiters.exception()  # seen, even where nobody waits
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
        except apsw.Error as failure:
            raise CheckpointError(f"cannot open {self._path}: {failure}") from failure
        self._path.chmod(0o600)
        self._connection = connection

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

    def _commit(self, noted: dict[str, bytes | None]) -> None:
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
        except apsw.Error as failure:
            raise CheckpointError(f"cannot write {self._path}: {failure}") from failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SecuredEntry:
    """One pod's entry in the checkpoint, and which state of it is known to be durable."""

    def __init__(self, checkpoint: Checkpoint, secured: Allocation | None) -> None:
        self._checkpoint = checkpoint
        self._secured = secured
        self._begun: tuple[Allocation, asyncio.Future[None]] | None = None

    def holds(self, entry: Allocation) -> bool:
        return self._secured == entry

    def begin(self, entry: Allocation) -> None:
        """A promise was just made: it is written while its pod's worker still plans."""
        if not self.holds(entry):
            self._begun = entry, self._checkpoint.begin(entry)

    async def secure(self, entry: Allocation) -> None:
        if not self.holds(entry):
            begun, self._begun = self._begun, None  # once: what failed is noted anew
            if begun is not None and begun[0] == entry:
                await asyncio.shield(begun[1])
            else:
                self._checkpoint.save(entry)
                await self._checkpoint.durable()
            self._secured = entry

    def note_applied(self, entry: Allocation) -> None:
        """That it was applied, the machine says too, so nobody waits for the disk. The promise it
        holds is durable already, unless a newer one came meanwhile."""
        self._checkpoint.save(entry, soon=True)
        self._begun = None
        known = self._secured is not None and self._secured.generation == entry.generation
        self._secured = entry if known else None

    async def forget(self, uid: str) -> None:
        self._secured = self._begun = None
        self._checkpoint.forget(uid)
        await self._checkpoint.durable()
