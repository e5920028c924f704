"""The writer of the SQLite file: a thread, and its queue.

Whatever has been queued while it wrote becomes its next transaction: one fsync for all. An idle
thread is woken once and takes everything; but a commit that comes alone, on a quick disk, is
written by the loop itself (machinery/disk_pace.py). Between transactions the thread sweeps
compacted history, a little at a time. It copies the write-ahead log into the file when nothing was
asked for a while: that takes longer than many commits, and the next one would have to wait for it.

A transaction that fails takes with it every request that was judged on top of it: requests carry
a term, and a term ends with its first failure. Where the medium itself has failed, nothing more
is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import apsw
import msgspec

from livesize.machinery.disk_pace import DiskPace
from livesize.machinery.steps import CrashPoints
from livesize.store.commits import Commit
from livesize.store.interface import ConflictError, StoreClosedError
from livesize.store.sqlite_file import LogFile

BATCH_REQUESTS = 1_024
CHECKPOINT_QUIET_BYTES = 1024 * 1024
CHECKPOINT_BUSY_BYTES = 10 * 1024 * 1024
QUIET_SECONDS = 0.05
"""Commits wait while the log is copied, so it is done early, in a pause, and quickly; the
whole of a long log takes 15 ms."""
HERE_BYTES = 64 * 1024
"""What is larger takes longer than a sync, whatever the disk. Deleted keys count with their last
value."""


class CommitRequest(msgspec.Struct, frozen=True, tag=True, eq=False):
    """One judged commit, or two in a row; none where it is only answered. ``answer`` is given
    once everything before it is durable."""

    term: int
    commits: Sequence[Commit]
    answer: int | ConflictError
    future: asyncio.Future[int]


class CompactionRequest(msgspec.Struct, frozen=True, tag=True, eq=False):
    revision: int
    future: asyncio.Future[None]


class LogGrown(msgspec.Struct, frozen=True, tag=True):
    """By what the loop has written: it will have to be copied."""


class StopRequest(msgspec.Struct, frozen=True, tag=True):
    pass


Task: TypeAlias = CommitRequest | CompactionRequest | LogGrown | StopRequest


class WriteFailure(msgspec.Struct, frozen=True):
    """Why a transaction was not written. ``final``: nothing more ever will be."""

    message: str
    final: bool


Settled: TypeAlias = tuple[Sequence[CommitRequest], WriteFailure | None]


class WriterListener(Protocol):
    """What the writer calls, in the loop."""

    def settle(self, requests: Sequence[CommitRequest], failure: WriteFailure | None) -> None:
        """One transaction was written, or not. Requests come in the order they were put."""
        ...

    def writer_ended(self) -> None:
        """Nothing more will be settled."""
        ...


class _WriterState(enum.Enum):
    ON = enum.auto()
    STOPPED = enum.auto()


class Writer:
    def __init__(
        self,
        file: LogFile,
        *,
        swept: int,
        goal: int,
        points: CrashPoints,
        listener: WriterListener,
    ) -> None:
        self._file = file
        self._swept = swept
        self._goal = goal
        self._points = points
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Sequence[Task]] = queue.SimpleQueue()
        self._compactions: list[CompactionRequest] = []
        self._failed_term = -1
        self._final: WriteFailure | None = None
        self._pace = DiskPace()
        self._file_lock = threading.Lock()  # its holder, and no other, may write
        self._written_here = self._seen_here = 0  # commits by the loop; of which the thread knows
        self._will_copy = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, tasks: Sequence[CommitRequest | CompactionRequest]) -> None:
        """Together, because each call wakes the thread, which then wants the interpreter."""
        self._queue.put(tasks)

    def write_here(self, request: CommitRequest) -> bool:
        """Write it, and settle it, before this returns; where the disk is quick and no other
        thread is at the file. False: it is left to the thread."""
        if not self._pace.is_quick or self._file.is_log_over(CHECKPOINT_BUSY_BYTES):
            return False
        changes = itertools.chain.from_iterable(request.commits)
        if sum(len(change.entry.value) for change in changes) > HERE_BYTES:
            return False
        if not self._file_lock.acquire(blocking=False):
            return False
        try:
            settled = self._write_all([request], patient=False)
            self._written_here += 1
        except apsw.BusyError:
            return False
        except BaseException:
            self._listener.writer_ended()  # a bug: no caller may wait for ever
            raise
        finally:
            self._file_lock.release()
        if self._file.is_log_over(CHECKPOINT_QUIET_BYTES) and not self._will_copy:
            self._queue.put([LogGrown()])
        for requests, failure in settled:
            self._listener.settle(requests, failure)
        return True

    async def stop(self) -> None:
        """Write what is queued, then end."""
        self._queue.put([StopRequest()])
        await asyncio.shield(self._ended)
        self._thread.join()

    # Everything below runs in the writer's thread, or under the lock.

    def _run(self) -> None:
        try:
            while self._turn() is _WriterState.ON:
                pass
            # What is left to sweep is swept when the file is opened next.
            self._finish_compactions(self._final)
        finally:
            self._finish_compactions(_ENDED)
            self._tell(self._listener.writer_ended)
            self._tell(_resolve, self._ended)

    def _turn(self) -> _WriterState:
        tasks = self._take(wait=self._swept >= self._goal or self._final is not None)
        requests = [task for task in tasks if isinstance(task, CommitRequest)]
        with self._file_lock:
            settled = self._write_all(requests, patient=True)
        for some, failure in settled:
            self._tell(self._listener.settle, some, failure)
        self._compactions += [task for task in tasks if isinstance(task, CompactionRequest)]
        with self._file_lock:
            self._compact_some()
            busy = self._is_busy(tasks)
            self._checkpoint(CHECKPOINT_BUSY_BYTES if busy else CHECKPOINT_QUIET_BYTES)
        return (
            _WriterState.STOPPED
            if any(isinstance(task, StopRequest) for task in tasks)
            else _WriterState.ON
        )

    def _take(self, *, wait: bool) -> list[Task]:
        """Nothing, where nothing came: at once if it is not to wait, or after a while if there is
        a log to copy."""
        self._will_copy = False  # before looking, so that the loop tells of what grows after
        if self._final is None and self._file.is_log_over(CHECKPOINT_QUIET_BYTES):
            self._will_copy = True
        tasks: list[Task] = []
        try:
            tasks += self._queue.get(wait, QUIET_SECONDS if self._will_copy else None)
            while len(tasks) < BATCH_REQUESTS and not isinstance(tasks[-1], StopRequest):
                tasks += self._queue.get_nowait()
        except queue.Empty:
            pass
        return tasks

    def _is_busy(self, tasks: Sequence[Task]) -> bool:
        """Something was queued since the last turn."""
        known, self._seen_here = self._seen_here, self._written_here
        return bool(tasks) or known != self._written_here

    def _write_all(self, requests: Sequence[CommitRequest], *, patient: bool) -> list[Settled]:
        """Where another process holds the file, the patient wait for a while; for others it is an
        apsw.BusyError, with nothing done."""
        settled: list[Settled] = []
        late = [request for request in requests if request.term <= self._failed_term]
        if late:
            settled.append((late, self._final or _FOLLOWED))
        alive = [request for request in requests if request.term > self._failed_term]
        if alive:
            failure = self._final or self._append(alive, patient=patient)
            if failure is not None:
                self._failed_term = alive[-1].term
            settled.append((alive, failure))
        return settled

    def _append(self, requests: Sequence[CommitRequest], *, patient: bool) -> WriteFailure | None:
        self._points.reach("store/commit/before")
        commits = [commit for request in requests for commit in request.commits]
        try:
            if commits:
                with self._pace.measured():
                    self._file.append(commits, patient=patient)
        except apsw.Error as failure:
            if isinstance(failure, apsw.BusyError) and not patient:
                raise
            return self._judge(failure)
        self._points.reach("store/commit/after")
        return None

    def _compact_some(self) -> None:
        if not self._compactions and self._swept >= self._goal:
            return
        failure = self._final
        try:
            if failure is None:
                self._sweep()
        except apsw.Error as error:
            failure = self._judge(error)
        if failure is not None:
            self._goal = self._swept
            self._finish_compactions(failure)
        elif self._swept >= self._goal:
            self._finish_compactions(None)

    def _sweep(self) -> None:
        goal = max([self._goal, *(task.revision for task in self._compactions)])
        if goal > self._goal:
            self._file.set_compacted(goal)
            self._goal = goal
        if self._swept < self._goal:
            self._points.reach("store/compact/during")
            self._swept = self._file.sweep(self._swept, self._goal)

    def _finish_compactions(self, failure: WriteFailure | None) -> None:
        for task in self._compactions:
            if failure is None:
                self._tell(_resolve, task.future)
            else:
                self._tell(_refuse, task.future, failure.message)
        self._compactions = []

    def _checkpoint(self, limit_bytes: int) -> None:
        if self._final is None:
            try:
                self._file.checkpoint_if_over(limit_bytes)
            except apsw.Error as failure:
                self._judge(failure)

    def _judge(self, error: apsw.Error) -> WriteFailure:
        """No room, or somebody else's lock: the next may work. Anything else is the medium."""
        what = f"cannot write to the store {self._file.path}: {error}"
        if isinstance(error, apsw.FullError):
            return WriteFailure(f"{what}; make room, then try again", final=False)
        if isinstance(error, apsw.BusyError):
            return WriteFailure(f"{what}; somebody else holds the file", final=False)
        self._final = WriteFailure(f"{what}; restart Livesize once the disk is well", final=True)
        return self._final

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it all callers
            self._loop.call_soon_threadsafe(callback, *args)


_ENDED = WriteFailure("the store's writer has ended", final=True)
_FOLLOWED = WriteFailure("a write before this one failed, so this one was not tried", final=False)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse(future: asyncio.Future[None], message: str) -> None:
    if not future.done():
        future.set_exception(StoreClosedError(message))
