"""What only the SQLite store has: a file, a writer thread, and ways for both to fail."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from livesize.machinery.steps import CrashPoints
from livesize.store.interface import (
    Check,
    CompactedError,
    ConflictError,
    Delete,
    Put,
    StoreClosedError,
    StoreEntry,
)
from livesize.store.sqlite import SqliteLimits, SqliteStore, StoreOpenError
from livesize.store.sqlite_connection import WAL_ROOM_BYTES


class Gate(CrashPoints):
    """Holds the writer's thread before a commit until the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.opened = threading.Event()

    def reach(self, name: str) -> None:
        if name == "store/commit/before":
            self.reached.set()
            assert self.opened.wait(10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextlib.asynccontextmanager
async def opened(path: Path, **options: object) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, **options)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return connection.execute(statement).fetchall()


async def fill(store: SqliteStore) -> None:
    await store.commit([], [Put("a", b"1"), Put("b", b"1")])
    await store.commit([], [Put("a", b"2")])
    await store.commit([], [Delete("b")])


# The file


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
    async with await_other_epoch(path) as store:
        assert store.epoch == 0
        assert await store.revision() == 3
        assert await store.get("a") == StoreEntry("a", b"2", 1, 2)
        assert await store.get("b") is None
        at_one = await store.list("", revision=1)
        assert at_one.entries == (StoreEntry("a", b"1", 1, 1), StoreEntry("b", b"1", 1, 1))
        assert await store.commit([Check("a", 2)], [Put("a", b"3")]) == 4


@contextlib.asynccontextmanager
async def await_other_epoch(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, epoch=7)
    yield store
    await store.close()


async def test_the_revision_survives_when_all_is_deleted_and_compacted(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
        await store.commit([], [Delete("a")])
        await store.compact(4)
    assert rows(path, "SELECT * FROM log") == []
    async with opened(path) as store:
        assert await store.revision() == 4
        with pytest.raises(CompactedError):
            await store.list("", revision=3)
        assert await store.commit([], [Put("a", b"")]) == 5


async def test_nobody_else_may_read_the_files(path: Path) -> None:
    path.touch(0o666)
    async with opened(path) as store:
        await fill(store)
        files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert len(files) == 4
    assert set(files.values()) == {0o600}


async def test_closing_leaves_everything_in_one_file(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db.lock"]


async def test_a_shell_can_see_the_current_values(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
    assert rows(path, "SELECT key, value, mod_revision FROM kv") == [("a", b"2", 2)]


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
    rows(path, "UPDATE meta SET value = '3' WHERE name = 'schema'")
    before = path.read_bytes()
    with pytest.raises(StoreOpenError, match="newer Livesize"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_somebody_elses_file_is_refused(path: Path) -> None:
    rows(path, "CREATE TABLE theirs (x)")
    with pytest.raises(StoreOpenError, match="not a Livesize store"):
        await SqliteStore.open(path)
    path.write_bytes(b"no database at all, but long enough" * 100)
    with pytest.raises(StoreOpenError, match="cannot open the store"):
        await SqliteStore.open(path)
    with pytest.raises(StoreOpenError, match="cannot open the store"):
        await SqliteStore.open(path.parent / "no folder" / "store.db")


async def test_a_second_owner_is_refused_until_the_first_has_closed(path: Path) -> None:
    async with opened(path):
        with pytest.raises(StoreOpenError, match="in use by another process"):
            await SqliteStore.open(path)
    async with opened(path) as store:
        assert await store.revision() == 0


async def test_the_write_ahead_log_is_emptied_while_the_store_is_open(path: Path) -> None:
    async with opened(path) as store:
        for number in range(60):
            await store.commit([], [Put("a", bytes([number]) * 500_000)])
        await store.compact(60)
        wal = path.with_name("store.db-wal")
        assert wal.stat().st_size < 15_000_000, "of 30 million that were written"
        assert path.stat().st_size > 10_000_000


async def test_the_write_ahead_log_is_copied_when_nothing_is_asked(path: Path) -> None:
    async with opened(path) as store:
        for number in range(12):
            await store.commit([], [Put("a", bytes([number]) * 500_000)])
        assert path.stat().st_size < 1_000_000, "nobody waits for the copying"
        async with asyncio.timeout(20):
            while path.stat().st_size < 5_000_000:
                await asyncio.sleep(0.02)


async def test_the_log_has_its_length_from_the_beginning(path: Path) -> None:
    log = path.with_name("store.db-wal")
    async with opened(path) as store:
        length = log.stat().st_size
        for number in range(20):
            await store.commit([], [Put(f"a/{number}", b"v" * 10_000)])
        assert log.stat().st_size == length == WAL_ROOM_BYTES, "written over, not appended to"
    async with opened(path) as store:
        assert len((await store.list("a/")).entries) == 20


async def test_a_disk_that_is_full_is_not_filled_up_with_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, log = os.pwrite, path.with_name("store.db-wal")

    def full(descriptor: int, content: bytes, start: int) -> int:
        if start > WAL_ROOM_BYTES // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content, start)

    monkeypatch.setattr("os.pwrite", full)
    async with opened(path) as store:
        assert log.stat().st_size < 1_000_000
        await store.commit([], [Put("a", b"1")])


# Group commit


async def test_what_is_queued_shares_a_transaction(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "points"
    async with opened(path, points=CrashPoints(log=str(log))) as store:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(store.commit([], [Put(f"a/{number}", b"v")]))
        assert await store.revision() == 200
    transactions = log.read_text().split().count("store/commit/after")
    assert 1 <= transactions < 50


async def test_nothing_is_seen_before_it_is_durable(path: Path) -> None:
    gate = Gate()
    async with opened(path, points=gate) as store:
        watch = store.watch("", after_revision=0)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(store.commit([], [Put("a", b"1")]))
            seen = group.create_task(anext(watch))
            late = group.create_task(_conflict(store))
            await asyncio.to_thread(gate.reached.wait, 10)
            assert await store.get("a") is None
            assert (await store.list("")).entries == ()
            assert await store.revision() == 0
            assert not seen.done()
            assert not late.done(), "the refusal would tell of a write that may yet be lost"
            gate.opened.set()
        assert first.result() == 1
        assert [change.revision for change in seen.result()] == [1]
        assert late.result() == "a"


async def _conflict(store: SqliteStore) -> str:
    with pytest.raises(ConflictError) as conflict:
        await store.commit([Check("a", 0)], [Put("a", b"2")])
    return conflict.value.key


async def test_a_commit_sees_those_queued_before_it(path: Path) -> None:
    gate = Gate()
    async with opened(path, points=gate) as store:
        async with asyncio.TaskGroup() as group:
            group.create_task(store.commit([], [Put("a", b"1")]))
            second = group.create_task(store.commit([Check("a", 1)], [Delete("a")]))
            third = group.create_task(store.commit([Check("a", 0)], [Put("a", b"3")]))
            nothing = group.create_task(store.commit([Check("a", 3)], []))
            await asyncio.to_thread(gate.reached.wait, 10)
            gate.opened.set()
        assert [second.result(), third.result(), nothing.result()] == [2, 3, 3]
        assert await store.get("a") == StoreEntry("a", b"3", 3, 3)


async def test_who_gives_up_waiting_does_not_take_the_write_back(path: Path) -> None:
    gate = Gate()
    async with opened(path, points=gate) as store:
        impatient = asyncio.ensure_future(store.commit([], [Put("a", b"1")]))
        await asyncio.to_thread(gate.reached.wait, 10)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        gate.opened.set()
        assert await store.commit([Check("a", 1)], [Put("a", b"2")]) == 2


# By whom it is written


class Hands(CrashPoints):
    """Notes which thread writes each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def reach(self, name: str) -> None:
        if name == "store/commit/before":
            self.names.append(threading.current_thread().name)


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", float("inf"))


@pytest.mark.usefixtures("quick_disk")
async def test_one_that_comes_alone_to_a_quick_disk_needs_no_thread(path: Path) -> None:
    hands = Hands()
    async with opened(path, points=hands) as store:
        for number in range(3):
            assert await store.commit([], [Put("a", b"%d" % number)]) == number + 1
        assert hands.names == ["MainThread"] * 3
    async with opened(path) as store:
        assert await store.get("a") == StoreEntry("a", b"2", 1, 3)


async def test_a_slow_disk_is_left_to_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", 0.0)
    hands = Hands()
    async with opened(path, points=hands) as store:
        for _ in range(3):
            await store.commit([], [Put("a", b"1")])
    assert hands.names == ["store-writer"] * 3


@pytest.mark.usefixtures("quick_disk")
async def test_those_that_come_together_are_one_transaction_of_the_thread(path: Path) -> None:
    hands = Hands()
    async with opened(path, points=hands) as store:
        await asyncio.gather(*(store.commit([], [Put(f"a/{n}", b"1")]) for n in range(5)))
        assert hands.names == ["store-writer"]
        assert len((await store.list("a/")).entries) == 5


@pytest.mark.usefixtures("quick_disk")
async def test_the_loop_does_not_wait_for_another_process_that_holds_the_file(path: Path) -> None:
    async with opened(path) as store:
        await store.commit([], [Put("a", b"1")])
        with contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(store.commit([Check("a", 1)], [Put("a", b"2")]))
            for _ in range(10):
                await asyncio.sleep(0.01)  # would not come back for seconds
            assert not waiting.done()
            other.execute("COMMIT")
        assert await waiting == 2
        assert await store.commit([Check("a", 2)], [Put("a", b"3")]) == 3


@pytest.mark.usefixtures("quick_disk")
async def test_what_the_loop_writes_is_copied_into_the_file_when_it_rests(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.store.sqlite_writer.CHECKPOINT_QUIET_BYTES", 100_000)
    async with opened(path) as store:
        await put_often(store, 10)
        async with asyncio.timeout(10):
            while store._file.is_log_over(0):
                await asyncio.sleep(0.01)
        assert path.stat().st_size > 200_000
        await put_often(store, 1)


@pytest.mark.usefixtures("quick_disk")
async def test_a_long_log_is_the_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livesize.store.sqlite_writer.CHECKPOINT_BUSY_BYTES", 100_000)
    hands = Hands()
    async with opened(path, points=hands) as store:
        await put_often(store, 10)
    assert {"MainThread", "store-writer"} == set(hands.names)


# Failures


@pytest.mark.usefixtures("quick_disk")
async def test_a_bug_while_the_loop_writes_leaves_nobody_waiting(path: Path) -> None:
    class Broken(CrashPoints):
        def reach(self, name: str) -> None:
            raise LookupError("a bug")

    found: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: found.append(context["exception"])
    )
    async with opened(path, points=Broken()) as store:
        for _ in range(2):
            with pytest.raises(StoreClosedError, match="writer has ended"):
                await store.commit([], [Put("a", b"1")])
    assert [type(one) for one in found] == [LookupError]


@pytest.mark.usefixtures("quick_disk")
async def test_a_medium_that_fails_under_the_loop_ends_writing_too(path: Path) -> None:
    async with opened(path) as store:
        await store.commit([], [Put("a", b"1")])
        store._file._writing.close()
        for _ in range(2):
            with pytest.raises(StoreClosedError, match="cannot write to the store"):
                await store.commit([], [Put("a", b"2")])
        assert await store.get("a") == StoreEntry("a", b"1", 1, 1)


async def test_a_full_disk_fails_the_write_and_the_store_goes_on(path: Path) -> None:
    async with opened(path, limits=SqliteLimits(file_bytes=200_000)) as store:
        before = await store.commit([], [Put("a", b"small")])
        with pytest.raises(StoreClosedError, match="full; make room"):
            await store.commit([], [Put("a", b"changed"), Put("b", bytes(300_000))])
        assert await store.revision() == before
        assert await store.get("a") == StoreEntry("a", b"small", 1, 1)
        assert await store.commit([Check("a", 1), Check("b", 0)], [Put("a", b"again")]) == 2
    async with opened(path) as store:
        assert await store.get("a") == StoreEntry("a", b"again", 1, 2)
        assert await store.revision() == 2


async def test_what_was_judged_on_top_of_a_failed_write_fails_with_it(path: Path) -> None:
    gate = Gate()
    async with opened(path, points=gate, limits=SqliteLimits(file_bytes=200_000)) as store:
        too_big = asyncio.ensure_future(store.commit([], [Put("a", bytes(300_000))]))
        await asyncio.to_thread(gate.reached.wait, 10)
        follower = asyncio.ensure_future(store.commit([Check("a", 1)], [Put("b", b"1")]))
        await asyncio.sleep(0)
        gate.opened.set()
        for attempt in (too_big, follower):
            with pytest.raises(StoreClosedError):
                await attempt
        assert (await store.list("")).entries == ()
        assert await store.commit([Check("a", 0)], [Put("b", b"1")]) == 1


async def test_room_can_be_made_by_compacting(path: Path) -> None:
    async with opened(path, limits=SqliteLimits(file_bytes=400_000)) as store:
        with pytest.raises(StoreClosedError, match="full"):
            await put_often(store, 100)
        await store.compact(await store.revision())
        await put_often(store, 3)


async def put_often(store: SqliteStore, times: int) -> None:
    for _ in range(times):
        await store.commit([], [Put("a", bytes(20_000))])


async def test_a_failed_medium_ends_writing_but_not_reading(path: Path) -> None:
    async with opened(path) as store:
        await store.commit([], [Put("a", b"1")])
        store._file._writing.close()
        for _ in range(2):
            with pytest.raises(StoreClosedError, match="cannot write to the store"):
                await store.commit([], [Put("a", b"2")])
        assert await store.get("a") == StoreEntry("a", b"1", 1, 1)
        with pytest.raises(StoreClosedError):
            await store.compact(1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_the_writer_leaves_nobody_waiting(path: Path) -> None:
    class Broken(CrashPoints):
        def reach(self, name: str) -> None:
            raise LookupError("a bug")

    async with opened(path, points=Broken()) as store:
        for _ in range(2):
            with pytest.raises(StoreClosedError, match="writer has ended"):
                await store.commit([], [Put("a", b"1")])
        with pytest.raises(StoreClosedError, match="writer has ended"):
            await store.compact(0)


# Compaction


async def test_sweeping_leaves_one_row_for_each_key(path: Path) -> None:
    async with opened(path) as store:
        for number in range(600):
            await store.commit([], [Put(f"a/{number % 7}", b"v"), Put("b", b"%d" % number)])
        await store.commit([], [Delete("b")])
        await store.compact(601)
    assert rows(path, "SELECT key FROM log ORDER BY key") == [(f"a/{n}",) for n in range(7)]


async def test_a_sweep_that_was_interrupted_is_finished_after_reopening(path: Path) -> None:
    async with opened(path) as store:
        for number in range(20):
            await store.commit([], [Put("a", b"%d" % number)])
    rows(path, "UPDATE meta SET value = '15' WHERE name = 'compacted'")
    async with opened(path) as store:
        with pytest.raises(CompactedError):
            await store.list("", revision=14)
        assert (await store.list("", revision=15)).entries[0].value == b"14"
    assert rows(path, "SELECT place >> 16 FROM log") == [(n,) for n in range(15, 21)]
    assert rows(path, "SELECT value FROM meta WHERE name = 'swept'") == [("15",)]


class Held:
    """Holds the reader's thread before it reads until the test lets it go."""

    def __init__(self, store: SqliteStore, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self._read = getattr(store._file, name)
        monkeypatch.setattr(store._file, name, self._wait_and_read)

    def _wait_and_read(self, *arguments: object) -> object:
        assert self.go.wait(10)
        return self._read(*arguments)


async def test_history_that_is_swept_while_it_is_read_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the file shows the gap: keys that came and went leave no trace."""
    async with opened(path, limits=SqliteLimits(recent_commits=1)) as store:
        for number in range(10):
            await store.commit([], [Put(f"a/{number}", b"")])
            await store.commit([], [Delete(f"a/{number}")])
        held = Held(store, "changes", monkeypatch)
        late = asyncio.ensure_future(anext(store.watch("", after_revision=5)))
        await asyncio.sleep(0)
        await store.compact(20)
        held.go.set()
        with pytest.raises(CompactedError):
            async with asyncio.timeout(5):
                await late


async def test_the_past_is_right_when_memory_moves_on_while_the_file_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, limits=SqliteLimits(recent_commits=1)) as store:
        for number in range(6):
            await store.commit([], [Put("a", b"%d" % number)])
        held = Held(store, "states", monkeypatch)
        past = asyncio.ensure_future(store.list("", revision=2))
        await asyncio.sleep(0)
        for number in range(6):
            await store.commit([], [Put("a", b"later"), Put(f"b/{number}", b"later")])
        held.go.set()
        assert (await past).entries == (StoreEntry("a", b"1", 1, 2),)
