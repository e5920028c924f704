"""One of several leads: begun at once, handed over in seconds, never two at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.objects import Object, evolve, version_of
from livesize.machinery.election import DURATION_SECONDS, leader_terms, run_elected
from livesize.sim.loop import run_virtual
from virtual_time import CLOCK, virtual_context, virtual_time


class Server:
    """The one lease, with versions; candidates may be cut off from it."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.cut_off: set[str] = set()

    def record(self, holder: str) -> Record:
        return Record(self, holder)


class Record:
    def __init__(self, server: Server, holder: str) -> None:
        self._server = server
        self._holder = holder

    def _reach(self) -> None:
        if self._holder in self._server.cut_off:
            raise ConnectionError("cut off")

    async def load(self) -> Object | None:
        self._reach()
        return self._server.lease

    async def create(self, lease: Object) -> Object:
        self._reach()
        if self._server.lease is not None:
            raise StatusError(409, "AlreadyExists", "it is there")
        return self._write(lease)

    async def update(self, lease: Object) -> Object:
        self._reach()
        if self._server.lease is None or version_of(lease) != version_of(self._server.lease):
            raise StatusError(409, "Conflict", "changed")
        return self._write(lease)

    def _write(self, lease: Object) -> Object:
        self._server.version += 1
        version = str(self._server.version)
        self._server.lease = evolve(lease, ("metadata", "resourceVersion"), version)
        return self._server.lease


class Scene:
    def __init__(self) -> None:
        self.server = Server()
        self.leading: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, holder: str, work: Callable[[], Awaitable[None]] | None = None) -> None:
        async def lead() -> None:
            self.leading.append(holder)
            assert len(self.leading) == 1, "two lead at once"
            try:
                await asyncio.Event().wait()
            finally:
                self.leading.remove(holder)

        terms = leader_terms("livesize-scheduler", holder)
        self.tasks[holder] = asyncio.create_task(
            run_elected(self.server.record(holder), terms, work or lead, context=virtual_context())
        )

    async def stop(self, holder: str) -> None:
        task = self.tasks.pop(holder)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def end(self) -> None:
        for holder in list(self.tasks):
            await self.stop(holder)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@virtual_time
async def test_the_first_leads_at_once_and_goes_on(scene: Scene) -> None:
    scene.start("a")
    await CLOCK.sleep(0.01)
    assert scene.leading == ["a"]
    scene.start("b")
    await CLOCK.sleep(60)
    assert scene.leading == ["a"]
    assert scene.server.lease is not None
    assert scene.server.lease["metadata"]["namespace"] == "kube-system"
    assert scene.server.lease["spec"]["leaseDurationSeconds"] == DURATION_SECONDS


@virtual_time
async def test_who_is_stopped_releases_and_the_next_begins_within_a_second(scene: Scene) -> None:
    scene.start("a")
    scene.start("b")
    await CLOCK.sleep(10)
    assert scene.leading == ["a"]
    await scene.stop("a")
    await CLOCK.sleep(1.1)
    assert scene.leading == ["b"]
    assert scene.server.lease is not None
    assert scene.server.lease["spec"]["leaseTransitions"] == 1


@virtual_time
async def test_who_is_cut_off_stops_before_another_begins(scene: Scene) -> None:
    scene.start("a")
    scene.start("b")
    await CLOCK.sleep(10)
    scene.server.cut_off.add("a")
    await CLOCK.sleep(DURATION_SECONDS * 0.7 + 0.1)
    assert scene.leading == []
    await CLOCK.sleep(DURATION_SECONDS)
    assert scene.leading == ["b"]
    scene.server.cut_off.clear()
    await CLOCK.sleep(30)
    assert scene.leading == ["b"]


@virtual_time
async def test_a_lease_of_the_same_holder_is_taken_up_at_once(scene: Scene) -> None:
    """After kill -9 of a control plane that has the data directory for itself."""
    scene.start("a")
    await CLOCK.sleep(3)
    scene.server.cut_off.add("a")  # nothing is released
    await scene.stop("a")
    scene.server.cut_off.clear()
    scene.start("a")
    await CLOCK.sleep(0.01)
    assert scene.leading == ["a"]


@virtual_time
async def test_clocks_are_not_compared(scene: Scene) -> None:
    """A lease that was renewed long ago by its holder's clock is not free before we have seen it
    unchanged for its whole duration."""
    scene.start("a")
    await CLOCK.sleep(1)
    scene.server.cut_off.add("a")
    await scene.stop("a")
    await CLOCK.sleep(3600)
    scene.start("b")
    await CLOCK.sleep(DURATION_SECONDS - 0.1)
    assert scene.leading == []
    await CLOCK.sleep(1.2)
    assert scene.leading == ["b"]


@virtual_time
async def test_a_lease_that_somebody_has_touched_is_still_ours(scene: Scene) -> None:
    scene.start("a")
    await CLOCK.sleep(1)
    labelled = evolve(scene.server.lease or {}, ("metadata", "labels"), {"a": "b"})
    await scene.server.record("kubectl").update(labelled)
    await CLOCK.sleep(30)
    assert scene.leading == ["a"]
    assert (scene.server.lease or {})["metadata"]["labels"] == {"a": "b"}


@virtual_time
async def test_a_lease_that_somebody_has_deleted_or_given_away_is_lost(scene: Scene) -> None:
    scene.start("a")
    await CLOCK.sleep(1)
    given = evolve(scene.server.lease or {}, ("spec", "holderIdentity"), "another")
    await scene.server.record("kubectl").update(given)
    await CLOCK.sleep(1.1)
    assert scene.leading == []
    await CLOCK.sleep(2 * DURATION_SECONDS)
    assert scene.leading == ["a"], "nobody renewed it"
    scene.server.lease = None
    await CLOCK.sleep(5)
    assert scene.leading == ["a"], "made anew"


@virtual_time
async def test_work_that_fails_ends_it_and_lets_another_begin(scene: Scene) -> None:
    async def fail() -> None:
        await CLOCK.sleep(2)
        raise ZeroDivisionError

    scene.start("a", fail)
    scene.start("b")
    await CLOCK.sleep(1.5)
    assert scene.leading == []
    await CLOCK.sleep(2)
    assert scene.leading == ["b"]
    with pytest.raises(ExceptionGroup):
        await scene.tasks.pop("a")


@given(st.integers(0, 2**32))
def test_never_two_at_once_and_always_somebody_in_the_end(seed: int) -> None:
    async def walk() -> None:
        scene, source = Scene(), random.Random(seed)
        for holder in "abc":
            scene.start(holder)
        for _ in range(20):
            await CLOCK.sleep(source.uniform(0, 4))
            holder = source.choice("abc")
            match source.randrange(3):
                case 0:
                    scene.server.cut_off ^= {holder}
                case 1 if holder in scene.tasks:
                    await scene.stop(holder)
                case 2 if holder not in scene.tasks:
                    scene.start(holder)
        scene.server.cut_off.clear()
        if "a" not in scene.tasks:
            scene.start("a")
        await CLOCK.sleep(3 * DURATION_SECONDS)
        assert len(scene.leading) == 1
        await scene.end()

    run_virtual(walk())
