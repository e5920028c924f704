"""Makes the ledger durable: written before the machine is touched, on disk soon after.

What the checkpoint has written survives the end of every process. A sync follows a moment later,
and from then on it survives a loss of power as well. The agent may touch the machine in between,
because the machine loses whatever was done to it with its power. The API server does not, so the
agent reports most promises only once they are on disk. That a resize is Done it may report before,
because the next agent knows from that what was promised (``Judge.restore_promise``; ADR 0083).

``Checkpoint`` connects three parts: the tracker decides what to write and sync (durability.py), a
file does it (checkpoint_file.py), and the event loop's timers say when. A task that needs one
promise syncs it on the spot where the disk is quick. Otherwise the file syncs without holding up
the loop, and what is written meanwhile goes together into the next sync. What is only ``noted``
goes with the next write, or soon by itself.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from livesize.agent.allocation.checkpoint_file import CheckpointError, CheckpointFile
from livesize.agent.allocation.durability import DurabilityTracker, WriteState
from livesize.agent.allocation.ledger import Allocation
from livesize.machinery.telemetry import get_logger

log = get_logger("agent.checkpoint")

SOON_SECONDS = 0.1
"""A noted entry waits so long for another write to go with."""
SYNC_SECONDS = 0.01
"""The disk is left alone so long: a task that needs it sooner calls ``durable``."""
AGAIN_SECONDS = 1.0
"""After a failure, unless another write comes before."""

_decoder = msgspec.json.Decoder(Allocation)
_encoder = msgspec.json.Encoder()


class Checkpoint:
    """Over an open file, which ``close`` closes. Call ``load`` first."""

    def __init__(self, file: CheckpointFile) -> None:
        self._file = file
        self._tracker = DurabilityTracker()
        self._write_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def load(self) -> tuple[Allocation, ...]:
        """Of all pods; raises CheckpointError."""
        return tuple(self._decoded(uid, content) for uid, content in await self._file.read())

    def save(self, entry: Allocation) -> int:
        """Write the new state of one pod. The number is for ``durable``; raises CheckpointError."""
        self._tracker.add(entry.uid, _encoder.encode(entry))
        return self._write()

    def note(self, entry: Allocation) -> None:
        """Write it soon: no caller waits for it."""
        self._tracker.add(entry.uid, _encoder.encode(entry))
        self._write_after(SOON_SECONDS)

    def forget(self, uid: str) -> int:
        self._tracker.add(uid, None)
        return self._write()

    @property
    def is_sound(self) -> bool:
        """The disk has lost no write, or has all of it anew."""
        return self._tracker.is_sound

    async def durable(self, number: int | None = None) -> None:
        """Return when what was written up to ``number``, or all of it, is on disk; raises
        CheckpointError where the disk has lost it, until it has been written anew."""
        number = self._tracker.written if number is None else number
        if self._tracker.is_alone(number) and self._file.syncs_quickly:
            self._sync_here()
        state = self._tracker.state_of(number)
        if state is WriteState.LOST:
            raise CheckpointError(f"the disk has lost what was written to {self._file.name}")
        if state is WriteState.IN_FILE:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((number, waiter))
            self.sync()
            await waiter

    def sync(self) -> None:
        """Begin a sync, unless one runs or all is on disk."""
        self._cancel_sync_timer()
        mode = self._tracker.begin_sync()
        if mode is not None:
            syncing = self._file.start_sync(mode)
            syncing.add_done_callback(lambda done: self._sync_ended(done.exception()))

    async def close(self) -> None:
        self._write_pending()
        try:
            await self.durable()
        except CheckpointError as failure:
            log.warning("promises not on disk", reason=str(failure))
        self._cancel_write_timer()
        self._cancel_sync_timer()
        await self._file.close()

    # Writing

    def _write(self) -> int:
        """What cannot be written stays pending, and goes with the next write."""
        self._cancel_write_timer()
        self._file.write(self._tracker.pending)
        number = self._tracker.wrote()
        if self._sync_timer is None:
            loop = asyncio.get_running_loop()
            self._sync_timer = loop.call_later(SYNC_SECONDS, self.sync)
        return number

    def _write_after(self, seconds: float) -> None:
        if self._write_timer is None:
            loop = asyncio.get_running_loop()
            self._write_timer = loop.call_later(seconds, self._write_pending)

    def _write_pending(self) -> None:
        if self._tracker.pending:
            try:
                self._write()
            except CheckpointError as failure:
                log.warning("promises not written", reason=str(failure))
                self._write_after(AGAIN_SECONDS)

    # Syncing

    def _sync_here(self) -> None:
        self._tracker.begin_sync()
        try:
            self._file.sync_now()
        except CheckpointError as failure:
            self._sync_ended(failure)
            raise
        self._sync_ended(None)

    def _sync_ended(self, failure: BaseException | None) -> None:
        if failure is None:
            decided = self._tracker.synced()
        else:
            decided = self._tracker.sync_failed()
            self._write_after(AGAIN_SECONDS)
        waiting, self._waiting = self._waiting, []
        for number, waiter in waiting:
            if number > decided:
                self._waiting.append((number, waiter))
            elif waiter.done():  # cancelled
                continue
            elif failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)
        self.sync()

    # Timers

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _decoded(self, uid: str, content: bytes) -> Allocation:
        """No entry is skipped: the agent would give what it does not count to another pod."""
        try:
            return _decoder.decode(content).completed()
        except msgspec.DecodeError as failure:
            raise CheckpointError(
                f"{self._file.name}: what was promised to pod {uid} cannot be read ({failure}):"
                " run the livesize that wrote it; or stop this machine's pods and remove the file"
            ) from failure


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

    async def reportable_as_done(self) -> None:
        """Return when the agent may report the promise as Done: when it is written, or, after the
        disk has failed, when it is on disk. Raises CheckpointError."""
        if not self._checkpoint.is_sound:
            await self.durable()
        elif self._unwritten is not None:
            self._write(self._unwritten)

    async def durable(self) -> None:
        """Return when it is on disk, so that the agent may report it; raises CheckpointError."""
        if self._unwritten is not None:
            self._write(self._unwritten)
        try:
            await self._checkpoint.durable(self._number)
        except CheckpointError:
            self._secured = self._written = None  # to be written anew
            raise

    def note_applied(self, entry: Allocation) -> None:
        """No caller waits for the disk: the machine, too, says that it was applied. The promise it
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
