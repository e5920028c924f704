"""The informer's promise: every change once, in order, with nothing lost over any interruption."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.errors import StatusError, expired
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, name_of, version_of
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.client.pages import PAGE_OBJECTS, list_all, read_pages
from livesize.sim.loop import run_virtual
from virtual_time import CLOCK, virtual_context, virtual_time


def pod(name: str, version: int, uid: str = "") -> Object:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "resourceVersion": str(version),
        },
    }


class Timeline:
    """A small server: a history of changes that can be listed, watched, cut and forgotten."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.revision = 0
        self.history: list[tuple[int, WatchEvent]] = []
        self.compacted = 0
        self.moments: dict[str, tuple[Object, ...]] = {}  # that pages may still be read of
        self.offers_initial_events = False
        self.meanwhile: list[WatchEvent] = []  # told before the initial events end
        self.ends_early = False
        self.never_ends = False
        self.lists = 0
        self.listed: list[float] = []
        self.initial_watches = 0
        self.watches = 0
        self.changed = asyncio.Condition()
        self.era = 0  # a watch of an earlier era is cut before it says anything more
        self.refusals: list[Exception] = []

    async def put(self, name: str, uid: str = "") -> None:
        self.revision += 1
        kind = WatchEventType.MODIFIED if name in self.objects else WatchEventType.ADDED
        self.objects[name] = pod(name, self.revision, uid)
        await self._tell(WatchEvent(kind, self.objects[name]))

    async def remove(self, name: str) -> None:
        self.revision += 1
        gone = self.objects.pop(name)
        metadata = {**gone["metadata"], "resourceVersion": str(self.revision)}
        await self._tell(WatchEvent(WatchEventType.DELETED, {**gone, "metadata": metadata}))

    async def bookmark(self) -> None:
        await self._tell(
            WatchEvent(
                WatchEventType.BOOKMARK, {"metadata": {"resourceVersion": str(self.revision)}}
            )
        )

    async def _tell(self, event: WatchEvent) -> None:
        self.history.append((self.revision, event))
        async with self.changed:
            self.changed.notify_all()

    async def disconnect(self) -> None:
        self.era += 1
        async with self.changed:
            self.changed.notify_all()

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        """Pages show one moment, until it is compacted away."""
        self.lists += 1
        self.listed.append(CLOCK.monotonic())
        if self.refusals:
            raise self.refusals.pop(0)
        if continue_token:
            revision, _, begin = continue_token.partition(":")
            if int(revision) < self.compacted:
                raise expired("the continue token is too old")
            objects, first = self.moments[revision], int(begin)
        else:
            revision, objects, first = str(self.revision), tuple(self.objects.values()), 0
            self.moments[revision] = objects
        if not limit or len(objects) <= first + limit:
            return ObjectList(objects[first:], revision)
        return ObjectList(objects[first : first + limit], revision, f"{revision}:{first + limit}")

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        if initial_events:
            self.initial_watches += 1
            if not self.offers_initial_events:
                raise StatusError(422, "Invalid", "sendInitialEvents is forbidden")
            assert resource_version == ""
            for obj in tuple(self.objects.values()):
                yield WatchEvent(WatchEventType.ADDED, obj)
            for event in self.meanwhile:
                yield event
            if self.ends_early:
                return
            if self.never_ends:
                await asyncio.Event().wait()
            resource_version = str(self.revision)
            metadata = {
                "resourceVersion": resource_version,
                "annotations": {"k8s.io/initial-events-end": "true"},
            }
            yield WatchEvent(WatchEventType.BOOKMARK, {"metadata": metadata})
        self.watches += 1
        era = self.era
        if int(resource_version) < self.compacted:
            raise expired("too old resource version")
        sent = next(
            (i for i, (rev, _) in enumerate(self.history) if rev > int(resource_version)),
            len(self.history),
        )
        while True:
            if self.era != era:
                raise ConnectionError("cut")
            if sent < len(self.history):
                sent += 1
                yield self.history[sent - 1][1]
                continue
            async with self.changed:
                await self.changed.wait()


class Watched:
    def __init__(self, timeline: Timeline, order: Callable[[Object], int] | None = None) -> None:
        self.timeline = timeline
        self.deltas: list[Delta] = []
        client: Any = timeline
        typed: Client = client
        self.informer = Informer(
            typed,
            PODS,
            context=virtual_context(),
            on_change=self.deltas.append,
            order=order,
        )

    async def settle(self, seconds: float = 70) -> None:
        """Longer than the informer ever waits after failures."""
        await CLOCK.sleep(seconds)

    def told(self) -> list[str]:
        """+name new, ~name changed, -name gone; and empties the record."""
        words = []
        for delta in self.deltas:
            sign = "+" if delta.old is None else "-" if delta.new is None else "~"
            words.append(sign + name_of(delta.object))
        self.deltas.clear()
        return words

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.informer.run())
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (None, ["+b", "+c", "+a"]),  # as the server listed them: versions have no order
        (lambda obj: int(version_of(obj)), ["+c", "+a", "+b"]),
    ],
    ids=["as listed", "ordered"],
)
@virtual_time
async def test_the_first_list_is_told_in_order_and_then_it_is_synced(
    order: Callable[[Object], int] | None, told: list[str]
) -> None:
    timeline = Timeline()
    for name in ("b", "c", "a", "b"):
        await timeline.put(name)
    async with Watched(timeline, order) as watched:
        assert watched.informer.synced.is_set()
        assert watched.told() == told
        assert watched.informer.get("default", "b") == timeline.objects["b"]
        assert watched.informer.get("other", "b") is None


@virtual_time
async def test_changes_are_told_as_they_come_and_nothing_is_polled() -> None:
    timeline = Timeline()
    async with Watched(timeline) as watched:
        await timeline.put("a")
        await timeline.put("a")
        await timeline.remove("a")
        await watched.settle(seconds=0.001)
        assert watched.told() == ["+a", "~a", "-a"], "no wait came before"
        await watched.settle()
        assert (timeline.lists, timeline.watches) == (1, 1)
        assert watched.informer.items() == ()


@virtual_time
async def test_a_cut_connection_resumes_without_a_new_list_and_without_loss() -> None:
    timeline = Timeline()
    async with Watched(timeline) as watched:
        await timeline.put("a")
        await watched.settle()
        await timeline.disconnect()
        await timeline.put("b")
        await timeline.remove("a")
        await watched.settle()
        assert watched.told() == ["+a", "+b", "-a"]
        assert (timeline.lists, timeline.watches) == (1, 2)


@virtual_time
async def test_a_bookmark_moves_the_version_that_is_resumed_from() -> None:
    timeline = Timeline()
    async with Watched(timeline) as watched:
        timeline.revision = 50
        await timeline.bookmark()
        await watched.settle()
        timeline.compacted = 40
        await timeline.disconnect()
        await watched.settle()
        assert timeline.lists == 1
        assert watched.told() == []


@virtual_time
async def test_410_lists_again_and_tells_only_the_difference_deletes_included() -> None:
    timeline = Timeline()
    for name in ("kept", "changed", "gone", "reborn"):
        await timeline.put(name)
    async with Watched(timeline) as watched:
        watched.told()
        await timeline.disconnect()
        timeline.revision = 90
        timeline.objects["changed"] = pod("changed", 81)
        timeline.objects["reborn"] = pod("reborn", 82, "second-life")
        timeline.objects["new"] = pod("new", 83)
        del timeline.objects["gone"]
        timeline.history.clear()
        timeline.compacted = 90
        await watched.settle()
        assert watched.told() == ["-gone", "~changed", "-reborn", "+reborn", "+new"]
        assert timeline.lists == 2


@virtual_time
async def test_the_state_comes_with_the_watch_where_the_server_offers_that() -> None:
    timeline = Timeline()
    timeline.offers_initial_events = True
    for name in ("kept", "gone", "changed"):
        await timeline.put(name)
    timeline.meanwhile = [
        WatchEvent(WatchEventType.DELETED, pod("gone", 9)),
        WatchEvent(WatchEventType.BOOKMARK, {"metadata": {"resourceVersion": "9"}}),
    ]
    async with Watched(timeline) as watched:
        assert watched.told() == ["+kept", "+changed"]
        await timeline.put("later")
        await timeline.remove("kept")
        await watched.settle()
        assert watched.told() == ["+later", "-kept"]
        assert (timeline.lists, timeline.watches) == (0, 1)
        timeline.meanwhile = []
        timeline.objects["changed"] = pod("changed", 81)
        timeline.compacted = timeline.revision = 90
        timeline.history.clear()
        await timeline.disconnect()
        await watched.settle()
        assert watched.told() == ["+gone", "~changed"]
        assert timeline.lists == 0


@virtual_time
async def test_initial_events_that_do_not_end_are_no_state() -> None:
    timeline = Timeline()
    timeline.offers_initial_events = timeline.ends_early = True
    await timeline.put("a")
    async with Watched(timeline) as watched:
        assert not watched.informer.synced.is_set()
        assert watched.told() == []
        assert 10 < timeline.initial_watches < 50, "it is asked again, and not in a hot loop"
        timeline.ends_early = False
        await watched.settle()
        assert watched.told() == ["+a"]


@virtual_time
async def test_a_server_that_does_not_say_where_its_state_ends_is_listed() -> None:
    timeline = Timeline()
    timeline.offers_initial_events = timeline.never_ends = True
    await timeline.put("a")
    async with Watched(timeline) as watched:
        assert watched.informer.synced.is_set()
        assert watched.told() == ["+a"]
        assert timeline.lists == 1


@virtual_time
async def test_a_long_list_is_read_in_pages_of_one_moment() -> None:
    timeline = Timeline()
    for number in range(2 * PAGE_OBJECTS + 1):
        await timeline.put(f"pod-{number}")
    async with Watched(timeline) as watched:
        assert timeline.lists == 3
        assert len(watched.told()) == 2 * PAGE_OBJECTS + 1
        await timeline.put("later")
        await watched.settle()
        assert watched.told() == ["+later"]


@virtual_time
async def test_a_list_whose_moment_is_let_go_in_the_middle_begins_again_in_one_answer() -> None:
    timeline = Timeline()
    for name in "abcde":
        await timeline.put(name)
    client: Any = timeline
    pages = read_pages(client, PODS, page_objects=2)
    assert [name_of(obj) for obj in (await anext(pages)).items] == ["a", "b"]
    await timeline.remove("a")
    timeline.compacted = timeline.revision
    with pytest.raises(StatusError, match="too old"):
        await anext(pages)

    class Forgetful(Timeline):
        """Lets every moment go after one page."""

        async def list(self, *asked: Any, **more: Any) -> ObjectList:
            page = await super().list(*asked, **more)
            self.revision += 1
            self.compacted = self.revision
            return page

    forgetful: Any = Forgetful()
    forgetful.objects = timeline.objects
    listing = await list_all(forgetful, PODS, page_objects=2)
    assert [name_of(obj) for obj in listing.items] == ["b", "c", "d", "e"]
    assert listing.resource_version == "1"  # of the third answer: page, refusal, everything
    assert forgetful.lists == 3


@virtual_time
async def test_a_410_to_the_first_page_is_the_callers() -> None:
    timeline = Timeline()
    timeline.refusals = [expired("gone")]
    client: Any = timeline
    with pytest.raises(StatusError):
        await list_all(client, PODS)
    assert timeline.lists == 1


@pytest.mark.parametrize(
    "refusal", [ConnectionError("refused"), StatusError(503, "ServiceUnavailable", "later")]
)
@virtual_time
async def test_failures_in_a_row_wait_longer_and_longer(refusal: Exception) -> None:
    timeline = Timeline()
    timeline.refusals = [refusal] * 12
    async with Watched(timeline):
        assert timeline.lists == 13
        waits = [later - earlier for earlier, later in itertools.pairwise(timeline.listed)]
        assert waits[0] <= 0.05
        assert 2.5 <= waits[-1] <= 5.0
        assert all(later >= earlier / 2 for earlier, later in itertools.pairwise(waits))


@virtual_time
async def test_a_bug_in_the_callback_is_not_swallowed() -> None:
    timeline = Timeline()
    await timeline.put("a")

    def broken(delta: Delta) -> None:
        raise KeyError("bug")

    client: Any = timeline
    informer = Informer(client, PODS, context=virtual_context(), on_change=broken)
    with pytest.raises(KeyError):
        await informer.run()


Moves = st.lists(
    st.sampled_from(["put a", "put b", "remove a", "remove b", "cut", "forget", "look"]),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(Moves)
def test_whatever_happens_the_copy_ends_true_and_deltas_chain(moves: Sequence[str]) -> None:
    run_virtual(_walk(moves))


async def _walk(moves: Sequence[str]) -> None:
    timeline = Timeline()
    async with Watched(timeline) as watched:
        for move in moves:
            await _move(timeline, watched, move)
        await watched.settle()
        assert {name_of(o): version_of(o) for o in watched.informer.items()} == {
            name: version_of(o) for name, o in timeline.objects.items()
        }
        state: dict[str, Object] = {}
        for delta in watched.deltas:
            name = name_of(delta.object)
            assert delta.old is state.get(name)
            if delta.new is None:
                del state[name]
            else:
                state[name] = delta.new


async def _move(timeline: Timeline, watched: Watched, move: str) -> None:
    verb, _, name = move.partition(" ")
    match verb:
        case "put":
            await timeline.put(name, uid=f"{name}{timeline.lists}")
        case "remove" if name in timeline.objects:
            await timeline.remove(name)
        case "cut":
            await timeline.disconnect()
        case "forget":
            timeline.compacted = timeline.revision
            timeline.history.clear()
            await timeline.disconnect()
        case "look":
            await watched.settle()
