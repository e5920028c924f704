"""The shared store: etcd, which several API servers use at once.

One commit is one transaction of etcd, with the checks as its comparisons. A list is read at one
revision, page by page. Every request also checks the epoch: a server that has not noticed that
the store was replaced by a copy can neither read from it nor write to it.

    store = await EtcdStore.open(EtcdSettings(("https://10.0.0.1:2379",)), epoch=epoch_at(now),
                                 clock=clock)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import grpc

from livesize.machinery.clock import Clock
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.store.commits import require_past, require_writable
from livesize.store.etcd.epochs import layout_of, open_epoch
from livesize.store.etcd.layout import Epoch, Layout, entry_of
from livesize.store.etcd.link import CallKind, EtcdLink, EtcdRefusedError, UncertainError
from livesize.store.etcd.messages import CompactionRequest, ProtobufMessage
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.txn import RawCheck, delete, failed_check, put, read, txn_request
from livesize.store.etcd.watches import CLOSED, REPLACED, Watches
from livesize.store.interface import (
    Change,
    Check,
    CompactedError,
    ConflictError,
    Delete,
    Listing,
    Put,
    StoreClosedError,
    StoreEntry,
    StoreUnavailableError,
    Write,
)

PAGE_ENTRIES = 500


class EtcdStore:
    """Use ``open``."""

    def __init__(self, link: EtcdLink, layout: Layout, epoch: Epoch, points: CrashPoints) -> None:
        self.epoch = epoch.number
        self._link = link
        self._layout = layout
        self._epoch = epoch
        self._points = points
        self._watches = Watches(link, layout, epoch)
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    async def open(
        cls,
        settings: EtcdSettings,
        *,
        epoch: int,
        clock: Clock,
        points: CrashPoints = NO_CRASH_POINTS,
    ) -> EtcdStore:
        """``epoch`` begins if our part of etcd is empty, or was restored from a snapshot of
        another cluster. Raises StoreOpenError."""
        layout = layout_of(settings)
        link = EtcdLink(settings, clock)
        try:
            return cls(link, layout, await open_epoch(link, layout, epoch), points)
        except BaseException:
            await link.close()
            raise

    async def revision(self) -> int:
        with self._asking():
            [head] = await self._txn((), [read(self._layout.head, keys_only=True)])
            return self._newest(head)

    async def get(self, key: str) -> StoreEntry | None:
        with self._asking():
            [answer] = await self._txn((), [read(self._layout.key(key))])
            found = answer.response_range.kvs
            return entry_of(found[0], self._layout, self._epoch) if found else None

    async def list(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> Listing:
        with self._asking():
            size = PAGE_ENTRIES if limit is None else min(PAGE_ENTRIES, limit)
            page = await self._page(prefix, revision, size, start_after)
            entries = page.entries
            while page.more and (limit is None or len(entries) < limit):
                size = PAGE_ENTRIES if limit is None else min(PAGE_ENTRIES, limit - len(entries))
                page = await self._page(prefix, page.revision, size, entries[-1].key)
                entries += page.entries
            return Listing(entries, page.revision, page.more)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        require_writable(writes)
        self._begin_asking()
        # The caller may go away; its commit goes on.
        return await asyncio.shield(self._commit_to_the_end(checks, writes))

    async def commit_in_turn(
        self, checks: Sequence[Check], first: Sequence[Write], second: Sequence[Write]
    ) -> int:
        """Two transactions: etcd takes no key twice in one."""
        require_writable(second)
        revision = await self.commit(checks, first)
        written = {write.key for write in first}
        standing = [check for check in checks if check.key not in written]
        made = [Check(write.key, revision) for write in first if isinstance(write, Put)]
        return await self.commit([*standing, *made], second)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        self._require_open()
        if after_revision < self._epoch.first:
            raise CompactedError(self._epoch.first)
        changes = self._watches.changes(prefix, self._epoch.theirs(after_revision))
        async with contextlib.aclosing(changes):
            async for batch in changes:
                yield batch

    async def compact(self, revision: int) -> None:
        with self._asking():
            [head] = await self._txn((), [read(self._layout.head, keys_only=True)])
            require_past(revision, self._newest(head))
            if revision <= self._epoch.first:
                return
            self._points.reach("store/compact/during")
            request = CompactionRequest(revision=self._epoch.theirs(revision), physical=True)
            with contextlib.suppress(CompactedError), self._refusals(0):
                await self._link.compact(request)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.end()
        await self._idle.wait()
        await self._link.close()

    async def _commit_to_the_end(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        try:
            while not _surely_writes(checks, writes):
                # Deleting what is not there must not make a revision: see what is there first.
                guards, needed = await self._present(writes)
                try:
                    return await self._commit([*checks, *guards], needed)
                except ConflictError as conflict:
                    if any(conflict.key == check.key for check in checks):
                        raise
            return await self._commit(checks, writes)
        finally:
            self._end_asking()

    async def _commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        raw = [
            RawCheck(
                self._layout.key(check.key),
                self._epoch.theirs(check.mod_revision) if check.mod_revision else 0,
            )
            for check in checks
        ]
        if not writes:
            [head] = await self._txn(raw, [read(self._layout.head, keys_only=True)])
            return self._newest(head)
        operations = [self._operation(write) for write in writes]
        operations.append(put(self._layout.head, b""))
        self._points.reach("store/commit/before")
        try:
            answers = await self._txn(raw, operations, CallKind.WRITE)
        except UncertainError as lost:
            return await self._find_out(raw, writes, lost)
        self._points.reach("store/commit/after")
        return self._epoch.ours(_revision_of(answers[-1]))

    async def _find_out(
        self, checks: Sequence[RawCheck], writes: Sequence[Write], lost: UncertainError
    ) -> int:
        """Whether the commit whose answer was lost has happened: then all is as it wrote it.
        Where it is not certain, the caller finds out; the store must not write twice."""
        known = {check.key: check.mod_revision for check in checks}
        operations = [read(self._layout.key(write.key)) for write in writes]
        answers = await self._txn((), operations)
        revisions: set[int] = set()
        for write, answer in zip(writes, answers, strict=True):
            kv = answer.response_range.kvs[0] if answer.response_range.kvs else None
            if not _is_as_written(write, kv) or (kv and known.get(kv.key) == kv.mod_revision):
                revisions.clear()
                break
            if kv is not None:
                revisions.add(kv.mod_revision)
        if len(revisions) == 1:
            return self._epoch.ours(revisions.pop())
        raise StoreUnavailableError(f"the answer of etcd was lost: {lost}") from lost

    def _operation(self, write: Write) -> ProtobufMessage:
        match write:
            case Put(key=key, value=value):
                return put(self._layout.key(key), value)
            case Delete(key=key):
                return delete(self._layout.key(key))

    async def _present(self, writes: Sequence[Write]) -> tuple[Sequence[Check], Sequence[Write]]:
        """Which of the keys are there, as checks for all of them, and the writes of those."""
        keys = [read(self._layout.key(write.key), keys_only=True) for write in writes]
        answers = await self._txn((), keys)
        guards: list[Check] = []
        needed: list[Write] = []
        for write, answer in zip(writes, answers, strict=True):
            kvs = answer.response_range.kvs
            guards.append(Check(write.key, self._epoch.ours(kvs[0].mod_revision) if kvs else 0))
            if kvs:
                needed.append(write)
        return guards, needed

    async def _page(
        self, prefix: str, revision: int | None, limit: int, start_after: str | None
    ) -> Listing:
        """``revision`` None: that of the newest commit, read in the same moment as the page."""
        if revision is not None and revision < self._epoch.first:
            raise CompactedError(self._epoch.first)
        at = self._epoch.theirs(revision) if revision is not None else 0
        first, end = self._layout.range(prefix, start_after)
        operations = [read(self._layout.head, keys_only=True)]
        if first < end:
            operations.append(read(first, end, revision=at, limit=limit))
        head, *pages = await self._txn((), operations, at=revision or 0)
        newest = self._newest(head)
        if revision is not None:
            require_past(revision, newest)
        entries = tuple(
            entry_of(kv, self._layout, self._epoch)
            for page in pages
            for kv in page.response_range.kvs
        )
        more = any(page.response_range.more for page in pages)
        return Listing(entries, newest if revision is None else revision, more)

    async def _txn(
        self,
        checks: Sequence[RawCheck],
        operations: Sequence[ProtobufMessage],
        kind: CallKind = CallKind.READ,
        *,
        at: int = 0,
    ) -> Sequence[ProtobufMessage]:
        """The answers to the operations. ``at`` is the revision to read, for the refusal."""
        all_checks = [RawCheck(self._layout.epoch, self._epoch.zero), *checks]
        try:
            with self._refusals(at):
                response = await self._link.txn(txn_request(all_checks, operations), kind)
        except CompactedError:
            raise CompactedError(await self._watches.find_compacted()) from None
        failed = failed_check(all_checks, response)
        if failed is None:
            answers: Sequence[ProtobufMessage] = response.responses
            return answers
        if failed.key == self._layout.epoch:
            raise StoreClosedError(REPLACED)
        raise ConflictError(self._layout.text(failed.key))

    @contextlib.contextmanager
    def _refusals(self, at: int) -> Iterator[None]:
        """etcd's refusals in our words."""
        try:
            yield
        except EtcdRefusedError as refusal:
            if "compacted" in refusal.details:
                raise CompactedError(at) from refusal
            if "future revision" in refusal.details:
                raise ValueError(f"revision {at} has not happened yet") from refusal
            if refusal.code in (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            ):
                raise ValueError(f"the commit's keys or value: {refusal.details}") from refusal
            raise StoreUnavailableError(f"etcd: {refusal.details}") from refusal

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._begin_asking()
        try:
            yield
        finally:
            self._end_asking()

    def _begin_asking(self) -> None:
        """While a call is under way, ``close`` waits."""
        self._require_open()
        self._under_way += 1
        self._idle.clear()

    def _end_asking(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def _newest(self, head: ProtobufMessage) -> int:
        return self._epoch.ours(head.response_range.kvs[0].mod_revision)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError(CLOSED)


def _surely_writes(checks: Sequence[Check], writes: Sequence[Write]) -> bool:
    """Something is put, or deleted that the checks say is there; or there is nothing to write."""
    there = {check.key for check in checks if check.mod_revision}
    return not writes or any(isinstance(one, Put) or one.key in there for one in writes)


def _is_as_written(write: Write, kv: ProtobufMessage | None) -> bool:
    match write:
        case Put(value=value):
            return kv is not None and kv.value == value
        case Delete():
            return kv is None


def _revision_of(answer: ProtobufMessage) -> int:
    """The head's put says it, however deep it lies."""
    while answer.WhichOneof("kind") == "response_txn":
        answer = answer.response_txn.responses[-1]
    return int(answer.response_put.header.revision)
