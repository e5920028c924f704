"""A store's revisions carry its epoch: they never go back, whatever is copied or restored."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.store.epochs import EPOCH_BITS, epoch_at, epoch_of_copy, first_revision
from livesize.store.interface import (
    Check,
    CompactedError,
    ConflictError,
    Delete,
    Put,
    Store,
    StoreOpenError,
    StoreSnapshot,
)
from livesize.store.memory import MemoryStore
from livesize.store.sqlite import SqliteLimits, SqliteStore
from livesize.store.sqlite_backups import backup_sqlite, read_sqlite, write_backup, write_sqlite

NOW = 1_800_000_000.0
EPOCH = epoch_at(NOW)


@contextlib.asynccontextmanager
async def opened(path: Path, epoch: int = EPOCH) -> AsyncIterator[SqliteStore]:
    limits = SqliteLimits(recent_commits=2)
    store = await SqliteStore.open(path, epoch=epoch, limits=limits)
    try:
        yield store
    finally:
        await store.close()


async def write_some(store: Store, count: int = 5) -> int:
    revision = 0
    for number in range(count):
        revision = await store.commit([], [Put(f"a/{number}", b"%d" % number)])
    return revision


def test_a_revision_fits_into_the_numbers_of_every_client() -> None:
    in_two_hundred_years = epoch_at(NOW + 200 * 365 * 86_400)
    assert first_revision(in_two_hundred_years + 1) < 2**53


@given(
    began=st.integers(0, 10**9),
    before=st.integers(0, 10**9),
    elapsed=st.integers(0, 10**7),
    rate=st.integers(0, 2**EPOCH_BITS - 1),
    clock_error=st.integers(-(10**9), 10**6),
)
def test_a_copy_is_ahead_of_all_it_was_copied_from(
    began: int, before: int, elapsed: int, rate: int, clock_error: int
) -> None:
    """``before`` commits are in the copy; its original went on for ``elapsed`` seconds."""
    copied = first_revision(began) + before
    epoch = epoch_of_copy(max(1, began + elapsed + clock_error), copied)
    assert first_revision(epoch) > copied
    if clock_error > 0:
        assert first_revision(epoch) + before > copied + rate * elapsed


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_epoch_counts_on_from_its_first_revision(kind: str, tmp_path: Path) -> None:
    store: Store = (
        MemoryStore(epoch=7)
        if kind == "memory"
        else await SqliteStore.open(
            tmp_path / "s.db", epoch=7, limits=SqliteLimits(recent_commits=2)
        )
    )
    first = first_revision(7)
    assert await store.revision() == first
    assert await write_some(store) == first + 5
    await store.commit([Check("a/0", first + 1)], [Delete("a/0")])
    with pytest.raises(ConflictError):
        await store.commit([Check("a/1", 2)], [Delete("a/1")])
    at_five = await store.list("", revision=first + 5)
    assert next((one.key, one.mod_revision) for one in at_five.entries) == ("a/0", first + 1)
    seen = []
    async for batch in store.watch("", after_revision=first):
        seen.extend(change.revision for change in batch)
        if len(seen) == 6:
            break
    assert seen == list(range(first + 1, first + 7))
    for old in (0, 5, first - 1):
        with pytest.raises(CompactedError):
            await store.list("", revision=old)
        with pytest.raises(CompactedError):
            await anext(store.watch("", after_revision=old))
    await store.compact(first + 3)
    with pytest.raises(CompactedError):
        await store.list("", revision=first + 2)
    await store.close()


async def test_opening_again_goes_on_in_the_same_epoch(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        newest = await write_some(store)
    async with opened(path, EPOCH + 100) as store:
        assert (store.epoch, await store.revision()) == (EPOCH, newest)
        assert await store.commit([Check("a/4", newest)], [Put("a/4", b"")]) == newest + 1


async def test_a_plain_copy_of_the_file_begins_a_new_epoch(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with opened(path) as store:
        newest = await write_some(store)
    shutil.copy(path, copy)
    async with opened(path) as store:
        assert await store.revision() == newest
    async with opened(copy, epoch=1) as store:  # the clock was set back
        assert store.epoch == EPOCH + 1
        assert await store.revision() > newest
        with pytest.raises(CompactedError):
            await anext(store.watch("", after_revision=newest))
        assert (await store.list("")).entries[0].value == b"0"


async def test_a_backup_is_made_while_the_store_is_in_use(tmp_path: Path) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    async with opened(path) as store:
        newest = await write_some(store)
        assert backup_sqlite(path, backup).revision == newest
        await store.commit([], [Put("a/9", b"later")])
    assert [key for key, _ in read_sqlite(backup).values] == [f"a/{n}" for n in range(5)]
    assert backup.stat().st_mode & 0o777 == 0o600
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["backup.db", "store.db", "store.db.lock"]


async def test_a_backup_that_is_simply_put_back_begins_a_new_epoch(tmp_path: Path) -> None:
    """By cp, into the very file it came from."""
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    async with opened(path) as store:
        await write_some(store)
    backup_sqlite(path, backup)
    async with opened(path) as store:
        lost = await write_some(store)
    path.write_bytes(backup.read_bytes())
    async with opened(path, EPOCH + 60) as store:
        assert await store.revision() > lost
        again = store.epoch
    async with opened(path, EPOCH + 90) as store:
        assert store.epoch == again


async def test_a_restored_store_is_ahead_of_the_one_it_replaces(tmp_path: Path) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    async with opened(path) as store:
        await write_some(store)
    backup_sqlite(path, backup)
    async with opened(path) as store:
        await store.commit([], [Put("lost", b"")])
    for _ in range(3):
        before = read_sqlite(path).revision
        write_sqlite(path, read_sqlite(backup), 1)
        async with opened(path) as store:
            assert await store.revision() > before
            assert await store.get("lost") is None
            assert len((await store.list("a/")).entries) == 5
            with pytest.raises(CompactedError):
                await anext(store.watch("", after_revision=before))
    assert path.with_name("store.db.replaced").exists()


async def test_a_damaged_store_can_be_replaced_but_not_copied(tmp_path: Path) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    write_backup(backup, StoreSnapshot(5, (("a", b"1"),)))
    path.write_bytes(os.urandom(10_000))
    with pytest.raises(StoreOpenError, match=r"store\.db"):
        read_sqlite(path)
    write_sqlite(path, read_sqlite(backup), EPOCH)
    assert read_sqlite(path).values == (("a", b"1"),)


async def test_a_store_in_use_is_neither_replaced_nor_copied(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await write_some(store)
        with pytest.raises(StoreOpenError, match="in use"):
            write_sqlite(path, StoreSnapshot(1, ()), EPOCH)
        with pytest.raises(StoreOpenError, match="in use"):
            read_sqlite(path, exclusive=True)
    assert len(read_sqlite(path, exclusive=True).values) == 5


async def test_a_file_from_before_epochs_goes_on_with_its_revisions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path, epoch=0) as store:
        await write_some(store)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE meta SET value = 'a-name' WHERE name = 'epoch'")
        connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema'")
        connection.execute("DELETE FROM meta WHERE name = 'inode'")
    async with opened(path) as store:
        assert (store.epoch, await store.revision()) == (0, 5)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT value FROM meta WHERE name = 'schema'").get == "2"
