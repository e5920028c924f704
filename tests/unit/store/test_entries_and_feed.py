"""The key-ordered map and the ring of recent commits, apart from any store."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.store.commits import Commit
from livesize.store.entries import StoreEntries
from livesize.store.feed import Feed
from livesize.store.interface import Change, ChangeKind, StoreClosedError, StoreEntry

KEYS = st.text(alphabet="a/\u00e9\U0010ffff", min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.booleans(), KEYS), max_size=30),
    st.text(alphabet="a/\u00e9\U0010ffff", max_size=2),
    st.none() | KEYS,
    st.none() | st.integers(1, 5),
)
def test_a_page_is_what_filtering_and_sorting_everything_gives(
    changes: list[tuple[bool, str]], prefix: str, start_after: str | None, limit: int | None
) -> None:
    entries, model = StoreEntries(), set[str]()
    for gone, key in changes:
        if gone and key in model:
            model.remove(key)
            entries.apply(_change(ChangeKind.DELETE, key))
        elif not gone:
            model.add(key)
            entries.apply(_change(ChangeKind.PUT, key))
    after = start_after or ""
    wanted = sorted(key for key in model if key.startswith(prefix) and key > after)
    page = entries.page(prefix, start_after, limit, revision=9)
    assert [entry.key for entry in page.entries] == wanted[:limit]
    assert page.more == (limit is not None and len(wanted) > limit)


def _change(kind: ChangeKind, key: str, revision: int = 1, size: int = 0) -> Change:
    return Change(kind, revision, StoreEntry(key, bytes(size), 1, revision), None)


def _commit(revision: int, key: str = "a", size: int = 0) -> Commit:
    return (_change(ChangeKind.PUT, key, revision, size),)


def test_the_feed_keeps_no_more_commits_than_it_may() -> None:
    feed = Feed(10, limit_commits=8)
    for revision in range(11, 111):
        feed.publish(_commit(revision))
        assert feed.revision == revision
        assert feed.revision - feed.floor <= 8
    batch, reached = feed.batch_after(feed.floor, "")
    assert [change.revision for change in batch] == list(range(feed.floor + 1, 111))
    assert reached == 110


def test_the_feed_keeps_no_more_bytes_than_it_may() -> None:
    feed = Feed(0, limit_bytes=1000)
    for revision in range(1, 50):
        feed.publish(_commit(revision, size=300))
        assert (feed.revision - feed.floor) * 300 <= 1000
    feed.publish(_commit(50, size=5000))
    for revision in range(51, 60):
        feed.publish(_commit(revision, size=1))
    assert feed.revision - feed.floor >= 9, "one big commit does not empty the feed for good"


def test_a_watcher_that_is_far_behind_gets_a_limited_batch_at_a_time() -> None:
    feed = Feed(0)
    for revision in range(1, 2501):
        feed.publish(_commit(revision))
    reached, sizes = 0, []
    while reached < feed.revision:
        batch, reached = feed.batch_after(reached, "")
        sizes.append(len(batch))
    assert sizes == [1000, 1000, 500]


def test_commits_out_of_order_are_a_bug() -> None:
    feed = Feed(3)
    with pytest.raises(AssertionError, match="without gaps"):
        feed.publish(_commit(5))


async def test_only_watchers_of_a_changed_prefix_are_woken() -> None:
    feed = Feed(0)
    async with asyncio.TaskGroup() as group:
        pods, nodes = (group.create_task(feed.wait(prefix)) for prefix in ("pods/", "nodes/"))
        await asyncio.sleep(0)
        feed.publish(_commit(1, "pods/a"))
        assert await pods == 1
        assert not nodes.done()
        feed.publish(_commit(2, "nodes/a"))
    assert nodes.result() == 2


async def test_a_watcher_that_leaves_leaves_nothing() -> None:
    feed = Feed(0)
    waiting = asyncio.ensure_future(feed.wait("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not feed._waiting


async def test_the_end_reaches_who_waits_and_who_comes_later() -> None:
    feed = Feed(0)
    waiting = asyncio.ensure_future(feed.wait("a"))
    await asyncio.sleep(0)
    feed.end("over")
    with pytest.raises(StoreClosedError, match="over"):
        await waiting
    with pytest.raises(StoreClosedError, match="over"):
        await feed.wait("a")
