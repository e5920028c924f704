"""What every store promises (store/interface.py), asked of each implementation alike.

To add one, add a line to STORES: a function that opens an empty store in a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from etcd_servers import Member
from livesize.machinery.clock import SystemClock
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore
from livesize.store.interface import (
    Change,
    ChangeKind,
    Check,
    CompactedError,
    ConflictError,
    Delete,
    Put,
    Store,
    StoreClosedError,
    StoreEntry,
)
from livesize.store.memory import MemoryStore
from livesize.store.sqlite import SqliteLimits, SqliteStore


async def open_memory(folder: Path, request: pytest.FixtureRequest) -> Store:
    return MemoryStore()


async def open_sqlite(folder: Path, request: pytest.FixtureRequest) -> Store:
    return await SqliteStore.open(folder / "store.db")


async def open_sqlite_forgetful(folder: Path, request: pytest.FixtureRequest) -> Store:
    """Keeps almost nothing in memory, so that history comes from the file."""
    limits = SqliteLimits(recent_commits=3, recent_bytes=1024)
    return await SqliteStore.open(folder / "store.db", limits=limits)


async def open_etcd(folder: Path, request: pytest.FixtureRequest) -> Store:
    """All in one real etcd, each under a root of its own."""
    member: Member = request.getfixturevalue("etcd")
    settings = EtcdSettings((member.endpoint,), root=f"{folder}/")
    return await EtcdStore.open(settings, epoch=0, clock=SystemClock())


STORES: dict[str, Callable[[Path, pytest.FixtureRequest], Awaitable[Store]]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "sqlite-forgetful": open_sqlite_forgetful,
    "etcd": open_etcd,
}


def _param(name: str) -> object:
    """Only the store in memory is fast enough for every `make check`."""
    return name if name == "memory" else pytest.param(name, marks=pytest.mark.apiserver)


@pytest.fixture(params=[_param(name) for name in STORES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await STORES[request.param](tmp_path, request)
    yield opened
    await opened.close()


async def put(store: Store, key: str, value: bytes = b"v") -> int:
    return await store.commit([], [Put(key, value)])


async def keys(store: Store, prefix: str, **options: object) -> list[str]:
    listing = await store.list(prefix, **options)  # type: ignore[arg-type]
    return [entry.key for entry in listing.entries]


async def take(store: Store, prefix: str, after: int, count: int) -> list[Change]:
    """The next ``count`` changes, or more if the last batch holds more."""
    changes: list[Change] = []
    async with (
        asyncio.timeout(10),
        contextlib.aclosing(
            store.watch(prefix, after_revision=after)  # type: ignore[type-var]
        ) as watch,
    ):
        async for batch in watch:
            changes.extend(batch)
            if len(changes) >= count:
                break
    return changes


# Revisions and values


async def test_an_empty_store_is_at_revision_zero(store: Store) -> None:
    assert await store.revision() == 0
    assert await store.get("a") is None
    listing = await store.list("")
    assert (listing.entries, listing.revision, listing.more) == ((), 0, False)


async def test_each_commit_that_writes_grows_the_revision_by_one(store: Store) -> None:
    assert [await put(store, key) for key in ("a", "b", "a")] == [1, 2, 3]
    assert await store.revision() == 3


async def test_an_entry_knows_when_it_was_made_and_last_changed(store: Store) -> None:
    await put(store, "other")
    await put(store, "a", b"one")
    await put(store, "a", b"two")
    assert await store.get("a") == StoreEntry("a", b"two", create_revision=2, mod_revision=3)


async def test_a_key_made_again_is_new(store: Store) -> None:
    await put(store, "a", b"one")
    await store.commit([], [Delete("a")])
    await put(store, "a", b"two")
    assert await store.get("a") == StoreEntry("a", b"two", create_revision=3, mod_revision=3)


async def test_an_empty_value_is_a_value(store: Store) -> None:
    await put(store, "a", b"")
    assert await store.get("a") == StoreEntry("a", b"", 1, 1)
    [change] = await take(store, "", 0, 1)
    assert change.kind is ChangeKind.PUT


async def test_a_commit_that_writes_nothing_leaves_the_revision(store: Store) -> None:
    await put(store, "a")
    assert await store.commit([Check("a", 1)], []) == 1
    assert await store.commit([], [Delete("not there")]) == 1
    assert await store.revision() == 1


# Checks


@pytest.mark.parametrize(
    ("key", "mod_revision", "holds"),
    [
        pytest.param("a", 1, True, id="the revision it was last changed at"),
        pytest.param("a", 0, False, id="zero: but it exists"),
        pytest.param("a", 2, False, id="another revision"),
        pytest.param("b", 0, True, id="zero: and it does not exist"),
        pytest.param("b", 1, False, id="a revision: but it does not exist"),
        pytest.param("gone", 2, False, id="a revision: but it was deleted"),
        pytest.param("gone", 0, True, id="zero: and it was deleted"),
    ],
)
async def test_checks(store: Store, key: str, mod_revision: int, holds: bool) -> None:
    await put(store, "a")
    await put(store, "gone")
    await store.commit([], [Delete("gone")])
    if holds:
        assert await store.commit([Check(key, mod_revision)], [Put("new", b"v")]) == 4
    else:
        with pytest.raises(ConflictError) as conflict:
            await store.commit([Check(key, mod_revision)], [Put("new", b"v")])
        assert conflict.value.key == key
        assert await store.get("new") is None
        assert await store.revision() == 3


async def test_one_failing_check_stops_every_write(store: Store) -> None:
    await put(store, "a", b"before")
    with pytest.raises(ConflictError):
        await store.commit(
            [Check("a", 1), Check("b", 7)], [Put("a", b"after"), Delete("a2"), Put("b", b"v")]
        )
    assert await store.get("a") == StoreEntry("a", b"before", 1, 1)
    assert await store.get("b") is None


async def test_several_keys_change_at_one_revision(store: Store) -> None:
    await put(store, "c")
    assert await store.commit([], [Put("b", b"1"), Delete("c"), Put("a", b"2")]) == 2
    assert await keys(store, "") == ["a", "b"]
    changes = await take(store, "", 1, 3)
    assert [(change.revision, change.kind, change.entry.key) for change in changes] == [
        (2, ChangeKind.PUT, "b"),
        (2, ChangeKind.DELETE, "c"),
        (2, ChangeKind.PUT, "a"),
    ]


async def test_a_failing_check_fails_only_its_own_request(store: Store) -> None:
    """All at once, so that a store that groups commits has them in one group."""
    outcomes: dict[int, int | ConflictError] = {}

    async def make(number: int) -> None:
        try:
            checks = [Check("taken", 0)] if number % 2 else []
            writes = [Put("taken", b"v"), Put(f"key-{number:02}", b"v")]
            outcomes[number] = await store.commit(checks, writes[1 - number % 2 :])
        except ConflictError as conflict:
            outcomes[number] = conflict

    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(make(number))

    won = [number for number, outcome in outcomes.items() if isinstance(outcome, int)]
    assert len([number for number in won if number % 2]) == 1
    assert len([number for number in won if number % 2 == 0]) == 20
    assert await store.revision() == 21
    assert await keys(store, "key-") == sorted(f"key-{number:02}" for number in won)


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param([Put("a", b"1"), Put("a", b"2")], id="a key twice"),
        pytest.param([Put("a", b"1"), Delete("a")], id="put and deleted"),
        pytest.param([Put("", b"1")], id="no key"),
        pytest.param([Put("a\0b", b"1")], id="a zero character"),
        pytest.param([Put("a\ud800", b"1")], id="half a character"),
        pytest.param([Put("a", bytes(16 * 1024 * 1024 + 1))], id="a value over the limit"),
    ],
)
async def test_what_can_never_be_written_is_refused(store: Store, writes: list[Put]) -> None:
    with pytest.raises(ValueError, match=r"key|value"):
        await store.commit([], writes)
    assert await store.revision() == 0
    assert await put(store, "a") == 1


async def test_counting_by_many_tasks_is_exact(store: Store) -> None:
    """64 tasks add 50 each (etcd: 4, it is slower); 8 of them always share a counter."""
    rounds = 4 if isinstance(store, EtcdStore) else 50

    async def increment(counter: str) -> None:
        while True:
            entry = await store.get(counter)
            count, revision = (int(entry.value), entry.mod_revision) if entry else (0, 0)
            with contextlib.suppress(ConflictError):
                await store.commit([Check(counter, revision)], [Put(counter, b"%d" % (count + 1))])
                return
            await asyncio.sleep(0)

    async def count(counter: str) -> None:
        for _ in range(rounds):
            await increment(counter)

    async with asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(count(f"counter/{number % 8}"))

    counters = (await store.list("counter/")).entries
    assert [entry.value for entry in counters] == [b"%d" % (8 * rounds)] * 8
    assert await store.revision() == 64 * rounds


# Two commits in turn


async def test_two_in_turn_are_two_revisions(store: Store) -> None:
    await put(store, "a", b"one")
    last = await store.commit_in_turn(
        [Check("a", 1), Check("free", 0)], [Put("a", b"two")], [Put("a", b"three"), Put("b", b"v")]
    )
    assert last == await store.revision() == 3
    assert await store.get("a") == StoreEntry("a", b"three", create_revision=1, mod_revision=3)
    changes = await take(store, "", 1, 3)
    assert [(one.revision, one.entry.key, one.entry.value) for one in changes] == [
        (2, "a", b"two"),
        (3, "a", b"three"),
        (3, "b", b"v"),
    ]
    assert [one.previous.value if one.previous else None for one in changes] == [
        b"one",
        b"two",
        None,
    ]
    then = await store.list("", revision=2)
    assert then.entries == (StoreEntry("a", b"two", 1, 2),)
    assert await put(store, "a") == 4


async def test_a_check_that_fails_stops_both(store: Store) -> None:
    await put(store, "a", b"one")
    with pytest.raises(ConflictError):
        await store.commit_in_turn([Check("a", 7)], [Put("a", b"two")], [Put("a", b"three")])
    with pytest.raises(ValueError, match="key"):
        await store.commit_in_turn([], [Put("a", b"two")], [Put("", b"v")])
    assert await store.get("a") == StoreEntry("a", b"one", 1, 1)
    assert await store.revision() == 1


async def test_many_in_turn_at_once_never_come_between_each_other(store: Store) -> None:
    await put(store, "a", b"0")

    async def make(number: int) -> None:
        while True:
            entry = await store.get("a")
            assert entry is not None
            first, second = [Put("a", b"%d begun" % number)], [Put("a", b"%d done" % number)]
            with contextlib.suppress(ConflictError):
                await store.commit_in_turn([Check("a", entry.mod_revision)], first, second)
                return
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(make(number))
    changes = await take(store, "a", 1, await store.revision() - 1)
    done = [one for one in changes if one.entry.value.endswith(b"done")]
    assert len(done) == 10
    for one in done:
        assert one.previous is not None
        assert one.previous.value == one.entry.value.replace(b"done", b"begun")


# Lists


async def test_a_prefix_is_a_plain_string_prefix_in_key_order(store: Store) -> None:
    for key in ("pods/b", "pod", "pods/a", "podsx", "pods/é", "nodes/a", "pods/\U0010ffff"):
        await put(store, key)
    assert await keys(store, "pods/") == ["pods/a", "pods/b", "pods/é", "pods/\U0010ffff"]
    assert await keys(store, "pod") == ["pod", *(await keys(store, "pods/")), "podsx"]
    assert await keys(store, "zzz") == []
    assert len(await keys(store, "")) == 7


async def test_pages_together_are_the_whole_list(store: Store) -> None:
    for number in range(7):
        await put(store, f"a/{number}")
    await put(store, "b")
    pages: list[list[str]] = []
    last: str | None = None
    more = True
    while more:
        page = await store.list("a/", limit=3, start_after=last)
        pages.append([entry.key for entry in page.entries])
        last, more = pages[-1][-1], page.more
        assert page.revision == 8
    assert pages == [["a/0", "a/1", "a/2"], ["a/3", "a/4", "a/5"], ["a/6"]]


async def test_a_page_that_ends_with_the_last_key_says_there_is_no_more(store: Store) -> None:
    for key in ("a/0", "a/1", "b"):
        await put(store, key)
    assert not (await store.list("a/", limit=2)).more
    assert (await store.list("a/", limit=1)).more


async def test_start_after_need_not_exist_nor_be_under_the_prefix(store: Store) -> None:
    for key in ("a/1", "a/3", "a/5"):
        await put(store, key)
    assert await keys(store, "a/", start_after="a/2") == ["a/3", "a/5"]
    assert await keys(store, "a/", start_after="A") == ["a/1", "a/3", "a/5"]
    assert await keys(store, "a/", start_after="b") == []


async def test_every_past_revision_can_be_listed(store: Store) -> None:
    random_source = random.Random(7)
    past: list[tuple[StoreEntry, ...]] = [()]
    for number in range(60):
        writes: dict[str, Put | Delete] = {}
        for _ in range(random_source.randint(1, 3)):
            key = f"a/{random_source.randint(0, 9)}"
            gone = random_source.random() < 0.3
            writes[key] = Delete(key) if gone else Put(key, b"%d" % number)
        if await store.commit([], list(writes.values())) == len(past):
            past.append((await store.list("a/")).entries)
    for revision, entries in enumerate(past):
        listing = await store.list("a/", revision=revision)
        assert (listing.entries, listing.revision) == (entries, revision)
        page = await store.list("a/", revision=revision, limit=2, start_after="a/3")
        rest = [entry for entry in entries if entry.key > "a/3"]
        assert (list(page.entries), page.more) == (rest[:2], len(rest) > 2)


async def test_the_past_stays_the_same_while_others_write(store: Store) -> None:
    for number in range(6):
        await put(store, f"a/{number}", b"before")
    before = await store.list("a/")

    async def write() -> None:
        for number in range(80):
            key = f"a/{number % 9}"
            await store.commit([], [Put(key, b"after") if number % 2 else Delete(key)])
            await asyncio.sleep(0)

    async def read() -> None:
        while not writing.done():
            assert await store.list("a/", revision=before.revision) == before
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        for _ in range(3):
            group.create_task(read())


async def test_a_revision_that_has_not_happened_cannot_be_listed(store: Store) -> None:
    with pytest.raises(ValueError, match="has not happened"):
        await store.list("", revision=1)


# Watches


async def test_a_watch_shows_what_was_before(store: Store) -> None:
    await put(store, "a", b"one")
    await put(store, "a", b"two")
    await store.commit([], [Delete("a")])
    await put(store, "a", b"three")
    first, second, third = (
        StoreEntry("a", b"one", 1, 1),
        StoreEntry("a", b"two", 1, 2),
        StoreEntry("a", b"three", 4, 4),
    )
    assert await take(store, "a", 0, 4) == [
        Change(ChangeKind.PUT, 1, first, None),
        Change(ChangeKind.PUT, 2, second, first),
        Change(ChangeKind.DELETE, 3, second, second),
        Change(ChangeKind.PUT, 4, third, None),
    ]


async def test_a_watch_sees_only_its_prefix_and_only_later_changes(store: Store) -> None:
    for key in ("a/1", "b/1", "a/2", "b/2"):
        await put(store, key)
    assert [change.entry.key for change in await take(store, "a/", 1, 1)] == ["a/2"]


async def test_a_waiting_watch_is_woken(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(take(store, "a/", 0, 1))
        await asyncio.sleep(0)
        await put(store, "b/1")
        await put(store, "a/1")
    assert [change.revision for change in watching.result()] == [2]


async def test_a_watch_from_the_future_starts_there(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(take(store, "", 3, 1))
        await asyncio.sleep(0)
        for number in range(5):
            await put(store, f"a/{number}")
    assert watching.result()[0].revision == 4


async def test_batches_never_split_a_revision(store: Store) -> None:
    sizes = [1, 700, 900, 2, 1500, 3]
    for size in sizes:
        await store.commit([], [Put(f"a/{number:04}", b"v") for number in range(size)])
    seen: dict[int, int] = {}
    async with contextlib.aclosing(
        store.watch("a/", after_revision=0)  # type: ignore[type-var]
    ) as watch:
        async for batch in watch:
            counts: dict[int, int] = {}
            for change in batch:
                counts[change.revision] = counts.get(change.revision, 0) + 1
            assert not counts.keys() & seen.keys()
            seen |= counts
            if len(seen) == len(sizes):
                break
    assert list(seen.values()) == sizes


async def test_what_a_commit_wrote_is_there_for_watchers_when_it_returns(store: Store) -> None:
    for number in range(5):
        revision = await put(store, f"a/{number}")
        watch = store.watch("a/", after_revision=revision - 1)
        first = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        in_memory = isinstance(store, SqliteStore) and store._feed.floor < revision
        if isinstance(store, MemoryStore) or in_memory:
            assert first.done()
        assert [change.revision for change in await first] == [revision]
        await watch.aclose()  # type: ignore[attr-defined]


async def test_watches_begun_at_any_time_have_no_gaps_and_no_repeats(store: Store) -> None:
    """List, then watch from there, while 8 tasks write: replaying gives the final state."""
    writers, rounds = 8, 60
    total = writers * rounds

    async def write(name: int) -> None:
        for number in range(rounds):
            key = f"a/{name}/{number % 5}"
            write = Delete(key) if await store.get(key) and number % 3 == 0 else Put(key, b"v")
            await store.commit([], [write, Put("b/beat", b"%d" % number)])
            await asyncio.sleep(0)

    async def follow() -> tuple[list[int], dict[str, StoreEntry]]:
        listing = await store.list("a/")
        state = {entry.key: entry for entry in listing.entries}
        revisions: list[int] = []
        async with contextlib.aclosing(
            store.watch("", after_revision=listing.revision)  # type: ignore[type-var]
        ) as watch:
            async for batch in watch:
                replay(state, batch)
                revisions.extend(sorted({change.revision for change in batch}))
                if revisions[-1] >= total:
                    break
        return [listing.revision, *revisions], state

    async def follow_later(moment: int) -> tuple[list[int], dict[str, StoreEntry]]:
        while await store.revision() < moment:
            await asyncio.sleep(0.005 if isinstance(store, EtcdStore) else 0)
        return await follow()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        followers = [group.create_task(follow_later(moment * 40)) for moment in range(10)]
        for name in range(writers):
            group.create_task(write(name))

    final = {entry.key: entry for entry in (await store.list("a/")).entries}
    for follower in followers:
        revisions, state = follower.result()
        assert revisions == list(range(revisions[0], total + 1))
        assert state == final


def replay(state: dict[str, StoreEntry], batch: Sequence[Change]) -> None:
    for change in batch:
        key = change.entry.key
        if not key.startswith("a/"):
            continue
        assert change.previous == state.get(key)
        if change.kind is ChangeKind.PUT:
            state[key] = change.entry
        else:
            del state[key]


async def test_a_watcher_that_does_not_read_stops_nobody_and_misses_nothing(store: Store) -> None:
    slow = store.watch("", after_revision=0)
    await put(store, "a/0")
    assert [change.revision for change in await anext(slow)] == [1]
    for number in range(300):
        await put(store, f"a/{number}", bytes(100))
    seen: list[int] = []
    async with asyncio.timeout(10):
        while len(seen) < 300:
            seen.extend(change.revision for change in await anext(slow))
    assert seen == list(range(2, 302))
    await slow.aclose()  # type: ignore[attr-defined]


# Compaction


async def fill(store: Store) -> None:
    await put(store, "a", b"1")
    await put(store, "a", b"2")
    await put(store, "gone")
    await store.commit([], [Delete("gone")])
    await put(store, "a", b"3")
    await put(store, "b")


async def test_compaction_keeps_what_is_current_and_what_came_after(store: Store) -> None:
    await fill(store)
    await store.compact(4)
    assert await store.revision() == 6
    assert await store.get("a") == StoreEntry("a", b"3", 1, 5)
    at_four = await store.list("", revision=4)
    assert at_four.entries == (StoreEntry("a", b"2", 1, 2),)
    changes = await take(store, "", 4, 2)
    assert [change.revision for change in changes] == [5, 6]
    assert changes[0].previous == StoreEntry("a", b"2", 1, 2)


async def test_what_is_older_than_a_compaction_is_refused(store: Store) -> None:
    await fill(store)
    await store.compact(4)
    with pytest.raises(CompactedError) as refusal:
        await store.list("", revision=3)
    assert refusal.value.compact_revision == 4
    with pytest.raises(CompactedError):
        await take(store, "", 3, 1)


async def test_a_compaction_to_the_newest_revision_leaves_only_current_values(
    store: Store,
) -> None:
    await fill(store)
    await store.commit([], [Delete("a"), Delete("b")])
    await store.compact(7)
    assert await keys(store, "") == []
    assert await store.revision() == 7
    assert await put(store, "a") == 8
    assert (await take(store, "", 7, 1))[0].previous is None


async def test_compacting_less_than_before_changes_nothing(store: Store) -> None:
    await fill(store)
    await store.compact(4)
    await store.compact(2)
    with pytest.raises(CompactedError):
        await store.list("", revision=3)
    with pytest.raises(ValueError, match="has not happened"):
        await store.compact(7)


async def test_a_quiet_watch_survives_a_compaction(store: Store) -> None:
    """It has missed nothing: nothing it asked for has happened."""
    begun = asyncio.Event()

    async def follow() -> list[int]:
        revisions: list[int] = []
        async for batch in store.watch("quiet/", after_revision=0):
            revisions.extend(change.revision for change in batch)
            begun.set()
            if len(revisions) == 2:
                break
        return revisions

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        watching = group.create_task(follow())
        first = await put(store, "quiet/1")
        await begun.wait()
        await fill(store)
        await store.compact(await store.revision())
        second = await put(store, "quiet/1")
    assert watching.result() == [first, second]


async def test_writing_goes_on_during_compactions(store: Store) -> None:
    async def write(name: int) -> None:
        for number in range(100):
            await put(store, f"a/{name}/{number % 3}", b"%d" % number)

    async def compact() -> None:
        for _ in range(10):
            await store.compact(await store.revision())
            await asyncio.sleep(0)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for name in range(8):
            group.create_task(write(name))
        group.create_task(compact())
    entries = (await store.list("a/")).entries
    assert {entry.key: entry.value for entry in entries} == {
        f"a/{name}/{rest}": b"%d" % max(n for n in range(100) if n % 3 == rest)
        for name in range(8)
        for rest in range(3)
    }


# The end


async def test_a_closed_store_says_so(store: Store) -> None:
    await put(store, "a")
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_ended(store))
        await asyncio.sleep(0)
        await store.close()
    assert watching.result()
    await store.close()
    for attempt in (store.get("a"), store.list(""), put(store, "a"), store.compact(1)):
        with pytest.raises(StoreClosedError):
            await attempt


async def _ended(store: Store) -> bool:
    with pytest.raises(StoreClosedError):
        await take(store, "", 1, 1)
    return True


async def test_close_waits_for_what_was_asked_before(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(put(store, f"a/{number}")) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
    revisions = [task.result() for task in writes]
    if isinstance(store, EtcdStore):  # it takes what comes at once in any order
        revisions.sort()
    assert revisions == list(range(1, 21))
