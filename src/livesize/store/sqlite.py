"""The embedded store: one SQLite file, made durable by one writer with group commit.

    commit ─► judged here, in the loop, against everything judged before
           ─► writer's thread: one transaction for all that is queued, fsync; or, for one that
              comes alone, the loop itself, where the disk is quick
           ─► settled here: entries, then watchers, then the answers

The current entries are held in memory; get and list never touch the file, so they never wait for
a disk and never show what is not yet durable. Older history is read from the file by a second
thread. The file is locked: a second process is refused.

The writer needs the interpreter's lock a few times per transaction. A loop that is never idle
gives it up so briefly that the writer can starve for seconds; ``settle_interpreter``, which every
process that serves calls, brings that down to a few milliseconds.

    store = await SqliteStore.open(path, epoch=epoch_at(clock.now()))
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import msgspec

from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.store.commits import Commit, plan_commit, plan_two_commits, require_past
from livesize.store.entries import StoreEntries
from livesize.store.feed import BATCH_CHANGES, Feed
from livesize.store.interface import (
    Change,
    ChangeKind,
    Check,
    CompactedError,
    ConflictError,
    Listing,
    StoreClosedError,
    StoreEntry,
    StoreOpenError,
    Write,
)
from livesize.store.sqlite_file import LogFile, SqliteContents
from livesize.store.sqlite_writer import CommitRequest, CompactionRequest, WriteFailure, Writer

__all__ = ["SqliteLimits", "SqliteStore", "StoreOpenError"]

_CLOSED = "the store is closed"


class SqliteLimits(msgspec.Struct, frozen=True):
    """The file's size, and how much history is kept in memory for watchers; what is older is read
    from the file."""

    file_bytes: int = 8 * 1024**3
    recent_commits: int = 1_024
    recent_bytes: int = 1024**2


class SqliteStore:
    """Use ``open``. ``epoch`` is that of the file's history, and part of every revision."""

    def __init__(
        self,
        file: LogFile,
        contents: SqliteContents,
        reader: concurrent.futures.ThreadPoolExecutor,
        *,
        points: CrashPoints,
        limits: SqliteLimits,
    ) -> None:
        self.epoch = contents.epoch
        self._file = file
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._entries = StoreEntries(contents.entries)
        self._feed = Feed(
            contents.revision,
            limit_commits=limits.recent_commits,
            limit_bytes=limits.recent_bytes,
        )
        self._compacted = contents.compacted
        # What was judged but is not durable yet: the newest change of each key, and the requests.
        self._head_revision = contents.revision
        self._head: dict[str, Change] = {}
        self._in_flight: collections.deque[CommitRequest] = collections.deque()
        self._submitted: list[CommitRequest] = []  # of those in flight, not yet with the writer
        self._term = 0
        self._closed = False
        self._failed = ""
        self._writer = Writer(
            file,
            swept=contents.swept,
            goal=contents.compacted,
            points=points,
            listener=self,
        )

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        epoch: int = 0,
        points: CrashPoints = NO_CRASH_POINTS,
        limits: SqliteLimits = SqliteLimits(),  # noqa: B008 - it is frozen
    ) -> SqliteStore:
        """Open or make the file; in a new one, or a copy, ``epoch`` begins. StoreOpenError."""
        reader = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        loop = asyncio.get_running_loop()
        try:
            file, contents = await loop.run_in_executor(reader, _load, path, epoch, limits)
        except BaseException:
            reader.shutdown(wait=False)
            raise
        return cls(file, contents, reader, points=points, limits=limits)

    async def revision(self) -> int:
        return self._feed.revision

    async def get(self, key: str) -> StoreEntry | None:
        self._require_open()
        return self._entries.get(key)

    async def list(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> Listing:
        self._require_open()
        at = self._feed.revision if revision is None else revision
        require_past(at, self._feed.revision)
        instead = await self._states_at(at, prefix)
        return self._entries.page(prefix, start_after, limit, revision=at, instead=instead)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        self._require_writable()
        try:
            commit = plan_commit(self._latest, checks, writes, self._head_revision + 1)
        except ConflictError as conflict:
            if not self._in_flight:
                raise
            # What contradicts it may not be durable yet: answer when it is.
            return await self._submit((), conflict)
        if not commit and not self._in_flight:
            return self._head_revision
        return await self._submit_judged((commit,) if commit else ())

    async def commit_in_turn(
        self, checks: Sequence[Check], first: Sequence[Write], second: Sequence[Write]
    ) -> int:
        self._require_writable()
        revision = self._head_revision + 1
        try:
            commits = plan_two_commits(self._latest, checks, first, second, revision)
        except ConflictError as conflict:
            if not self._in_flight:
                raise
            return await self._submit((), conflict)
        return await self._submit_judged(commits)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        reached = after_revision
        while True:
            self._require_open()
            self._require_history(reached)
            if reached < self._feed.floor:
                batch, reached = await self._read_changes(prefix, reached)
            else:
                batch, reached = self._feed.batch_after(reached, prefix)
                if not batch:
                    reached = max(reached, await self._feed.wait(prefix) - 1)
            if batch:
                yield batch

    async def compact(self, revision: int) -> None:
        """Returns when the history is gone from the file; writers wait for little of it."""
        self._require_writable()
        require_past(revision, self._feed.revision)
        if revision <= self._compacted:
            return
        # Before anything is deleted, so that a reader can tell that it read too late.
        self._compacted = revision
        task = CompactionRequest(revision, self._loop.create_future())
        self._writer.put([task])
        await task.future

    async def close(self) -> None:
        """Write what is queued, checkpoint, and let go of the file. Again: does nothing."""
        if self._closed:
            return
        self._closed = True
        self._feed.end(_CLOSED)
        try:
            self._pass_to_writer()
        finally:
            await self._writer.stop()
            await self._loop.run_in_executor(self._reader, self._file.close)
            self._reader.shutdown(wait=False)

    def _latest(self, key: str) -> StoreEntry | None:
        change = self._head.get(key)
        if change is None:
            return self._entries.get(key)
        return change.entry if change.kind is ChangeKind.PUT else None

    async def _submit_judged(self, commits: Sequence[Commit]) -> int:
        for commit in commits:
            self._head_revision += 1
            for change in commit:
                self._head[change.entry.key] = change
        return await self._submit(commits, self._head_revision)

    async def _submit(self, commits: Sequence[Commit], answer: int | ConflictError) -> int:
        request = CommitRequest(self._term, commits, answer, self._loop.create_future())
        self._in_flight.append(request)
        if not self._submitted:
            self._loop.call_soon(self._pass_to_writer)
        self._submitted.append(request)
        return await request.future

    def _pass_to_writer(self) -> None:
        """At the end of this turn of the loop, so that all it commits is one transaction, and the
        writer's thread does not fight with the rest of the turn for the interpreter's lock."""
        if self._submitted:
            submitted, self._submitted = self._submitted, []
            alone = len(self._in_flight) == 1 == len(submitted)
            if not (alone and self._writer.write_here(submitted[0])):
                self._writer.put(submitted)

    def settle(self, requests: Sequence[CommitRequest], failure: WriteFailure | None) -> None:
        """Called by the writer, in the loop."""
        for request in requests:
            oldest = self._in_flight.popleft()
            assert oldest is request, "transactions settle in order"
        if failure is not None:
            self._settle_failed(requests, failure)
            return
        for request in requests:
            for commit in request.commits:
                self._publish(commit)
        for request in requests:
            _answer(request)

    def writer_ended(self) -> None:
        """The writer calls it, in the loop. Before ``close`` it is a bug: no caller may wait on."""
        left, self._in_flight = self._in_flight, collections.deque()
        self._failed = self._failed or "the store's writer has ended"
        for request in left:
            _refuse(request, self._failed)

    def _publish(self, commit: Commit) -> None:
        for change in commit:
            self._entries.apply(change)
            if self._head.get(change.entry.key) is change:
                del self._head[change.entry.key]
        self._feed.publish(commit)

    def _settle_failed(self, requests: Sequence[CommitRequest], failure: WriteFailure) -> None:
        """Nothing of it was written; what was judged on top of it will fail as well."""
        if requests[-1].term == self._term:
            self._term += 1
            self._head.clear()
            self._head_revision = self._feed.revision
        if failure.final:
            self._failed = failure.message
        for request in requests:
            _refuse(request, failure.message)

    async def _read_changes(self, prefix: str, after: int) -> tuple[Sequence[Change], int]:
        until = self._feed.revision
        batch, reached = await self._loop.run_in_executor(
            self._reader, self._file.changes, prefix, after, until, BATCH_CHANGES
        )
        self._require_history(after)
        return batch, reached

    async def _states_at(self, revision: int, prefix: str) -> dict[str, StoreEntry | None]:
        """How keys that have changed since were at ``revision``: from memory, what memory no
        longer has from the file. Memory may move on while the file is read."""
        older: dict[str, StoreEntry | None] = {}
        reached = revision
        while reached < self._feed.floor:
            self._require_open()
            self._require_history(revision)
            until = self._feed.revision
            states = await self._loop.run_in_executor(
                self._reader, self._file.states, prefix, reached, until
            )
            older = states | older
            reached = until
        self._require_history(revision)
        return self._feed.states_at(reached, prefix) | older

    def _require_history(self, revision: int) -> None:
        if revision < self._compacted:
            raise CompactedError(self._compacted)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError(_CLOSED)

    def _require_writable(self) -> None:
        self._require_open()
        if self._failed:
            raise StoreClosedError(self._failed)


def _load(path: Path, epoch: int, limits: SqliteLimits) -> tuple[LogFile, SqliteContents]:
    file = LogFile(path, size_limit_bytes=limits.file_bytes)
    try:
        return file, file.load(epoch)
    except apsw.Error as failure:
        file.close()
        raise StoreOpenError(f"cannot read the store {path}: {failure}") from failure


def _answer(request: CommitRequest) -> None:
    if request.future.done():  # the caller has gone
        return
    match request.answer:
        case int(revision):
            request.future.set_result(revision)
        case ConflictError() as conflict:
            request.future.set_exception(conflict)


def _refuse(request: CommitRequest, why: str) -> None:
    if not request.future.done():
        request.future.set_exception(StoreClosedError(why))
