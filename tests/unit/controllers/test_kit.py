"""The controller kit against the real API service: caches, keys, results, expectations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from livesize.api.errors import StatusError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.secret import SECRETS
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.apiserver.direct_client import DirectClient
from livesize.client.informer import Delta
from livesize.controllers.kit import expectations, loop
from livesize.controllers.kit.caches import BY_NAMESPACE, BY_OWNER, Caches, Index
from livesize.controllers.kit.loop import Controller, run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Never, Result
from livesize.controllers.kit.watches import After, Watch, own_key, owner_keys
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.exposition import exposition
from unit.apiserver.conftest import IDENTITIES, Rig
from virtual_time import CLOCK, virtual_context, virtual_time

Key = tuple[str, str]


class CountingClient(DirectClient):
    """The direct client; counts lists and watches, and shows events only while ``open`` is set."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.lists: Counter[Resource] = Counter()
        self.watches: Counter[Resource] = Counter()
        self.open = asyncio.Event()
        self.open.set()
        self.held: Resource | None = None
        """This kind cannot be read."""

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        self.lists[resource] += 1
        if resource == self.held:
            raise ConnectionError("held")
        return await super().list(resource, selection, limit=limit, continue_token=continue_token)

    async def watch(
        self, resource: Resource, selection: Selection = EVERYTHING, **given: Any
    ) -> AsyncIterator[WatchEvent]:
        self.watches[resource] += 1
        if resource == self.held:
            raise ConnectionError("held")
        async for event in super().watch(resource, selection, **given):
            await self.open.wait()
            yield event

    def reads(self, resource: Resource) -> int:
        """How often the whole kind was read, by a list or by a watch that begins with all."""
        return max(self.lists[resource], self.watches[resource])


@pytest.fixture
def client(rig: Rig) -> CountingClient:
    return CountingClient(rig.service, IDENTITIES["admin"])


@asynccontextmanager
async def running(
    client: CountingClient, *controllers: Controller[Any], metrics: KitMetrics | None = None
) -> AsyncIterator[None]:
    context = virtual_context()
    task = asyncio.create_task(
        run_controllers(controllers, client, context, metrics or KitMetrics())
    )
    try:
        yield
    finally:
        client.open.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def settle() -> None:
    """Long enough for whatever is ready to be done; what must not happen would have happened."""
    await asyncio.sleep(0.15)


async def make(client: CountingClient, name: str, **metadata: Any) -> Object:
    body = {"metadata": {"name": name, **metadata}, "data": {}}
    return await client.create(CONFIG_MAPS, body, "default")


def controller(
    reconcile: Callable[[Key, Reader, ApiWriter], Awaitable[Result]], *watches: Watch, **more: Any
) -> Controller[Key]:
    chosen = watches or (Watch(CONFIG_MAPS, own_key),)
    return Controller(
        name=more.pop("name", "kit"),
        component="kit",
        watches=chosen,
        reconcile=reconcile,
        **more,
    )


# Caches


async def test_whoever_watches_shares_one_copy(client: CountingClient) -> None:
    made = await make(client, "a")
    seen: dict[str, Object] = {}

    def looking(name: str) -> Controller[Key]:
        async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
            found = read.get(CONFIG_MAPS, key[1], key[0])
            if found is not None and key[1] == "a":
                seen[name] = found
            return Done()

        return controller(reconcile, name=name)

    async with running(client, looking("one"), looking("two"), looking("three")):
        await until(lambda: len(seen) == 3)
        await settle()
        assert client.reads(CONFIG_MAPS) == 1
        assert seen["one"] is seen["two"] is seen["three"]
        assert seen["one"]["metadata"]["uid"] == uid_of(made)


async def test_a_cache_is_started_on_demand_and_replays_to_who_comes_late(
    client: CountingClient,
) -> None:
    for name in "abc":
        await make(client, name)
    context = virtual_context()
    caches = Caches(client, context)
    running = asyncio.create_task(caches.run())
    await settle()
    assert client.reads(CONFIG_MAPS) == 0
    cache = caches.start(CONFIG_MAPS)
    await cache.synced.wait()
    told: list[Delta] = []
    cache.follow(told.append)
    mine = [name_of(one.object) for one in told if namespace_of(one.object) == "default"]
    assert {"a", "b", "c"} <= set(mine)
    assert caches.start(CONFIG_MAPS) is cache
    await settle()
    assert client.reads(CONFIG_MAPS) == 1
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_kind_is_watched_once_there_is_another(client: CountingClient) -> None:
    reconciled: list[Key] = []

    async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
        reconciled.append((key[1], str(len(read.list(CONFIG_MAPS, "default")))))
        return Done()

    def none(delta: Delta, read: Reader) -> Iterator[Key]:
        return iter(())

    await make(client, "a")
    watches = (Watch(SECRETS, own_key), Watch(CONFIG_MAPS, none, once_there_is=SECRETS))
    async with running(client, controller(reconcile, *watches)):
        await until(lambda: client.watches[SECRETS] == 1)
        await settle()
        assert client.reads(CONFIG_MAPS) == 0
        client.held = CONFIG_MAPS
        await client.create(SECRETS, {"metadata": {"name": "first"}}, "default")
        await settle()
        assert reconciled == [], "not before what it now watches was listed"
        client.held = None
        await until(lambda: bool(reconciled))
        count = len((await client.list(CONFIG_MAPS, Selection("default"))).items)
        assert reconciled == [("first", str(count))]


BY_NODE = Index("node", lambda pod: (lookup(pod, "spec", "nodeName", default=""),))


async def test_indexes_follow_every_change(rig: Rig, client: CountingClient) -> None:
    caches = Caches(client, virtual_context())
    running = asyncio.create_task(caches.run())
    pods, maps = caches.start(PODS), caches.start(CONFIG_MAPS)
    await pods.synced.wait()
    await maps.synced.wait()
    assert pods.select(BY_NODE, "n1") == ()

    owner = await make(client, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(owner)}
    await make(client, "owned", ownerReferences=[reference])
    await until(lambda: len(maps.select(BY_OWNER, uid_of(owner))) == 1)
    await client.patch(
        CONFIG_MAPS, "owned", {"metadata": {"ownerReferences": None}}, namespace="default"
    )
    await until(lambda: maps.select(BY_OWNER, uid_of(owner)) == ())

    await rig.add_pod("web", node="n1")
    await until(lambda: [name_of(one) for one in pods.select(BY_NODE, "n1")] == ["web"])
    assert [name_of(one) for one in pods.select(BY_NAMESPACE, "default")] == ["web"]
    await client.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    await until(lambda: bool(lookup(pods.select(BY_NODE, "n1")[0], "metadata", "labels", "a")))
    await client.delete(PODS, "web", "default", grace_period_seconds=0)
    await until(lambda: pods.select(BY_NODE, "n1") == ())
    assert pods.select(BY_NAMESPACE, "default") == ()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_an_owned_object_brings_the_key_of_its_controller(client: CountingClient) -> None:
    keys: list[Key] = []

    async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
        keys.append(key)
        return Done()

    owner = await make(client, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(owner)}
    async with running(client, controller(reconcile, Watch(SECRETS, owner_keys(CONFIG_MAPS)))):
        await client.create(SECRETS, {"metadata": {"name": "free"}}, "default")
        for name, controls in (("other", False), ("owned", True)):
            whose = {"name": "owner" if controls else "stranger", "controller": controls}
            references = [{**reference, **whose}]
            body = {"metadata": {"name": name, "ownerReferences": references}}
            await client.create(SECRETS, body, "default")
        await until(lambda: bool(keys))
        await client.delete(SECRETS, "owned", "default")
        await until(lambda: len(keys) == 2)
        assert keys == [("default", "owner")] * 2


# Results


async def test_what_a_result_means(client: CountingClient) -> None:
    tries: Counter[str] = Counter()

    async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
        name = key[1]
        tries[name] += 1
        if name == "again" and tries[name] < 3:
            return Again(0.01)
        if name == "conflict" and tries[name] < 3:
            raise StatusError(409, "Conflict", "changed meanwhile")
        if name == "gone":
            raise StatusError(404, "NotFound", "gone meanwhile")
        if name == "never":
            return Never("wrong for good")
        if name == "world" and tries[name] < 3:
            raise ConnectionError("no way")
        if name == "bug" and tries[name] < 3:
            raise ZeroDivisionError
        return Done()

    names = ("again", "bug", "conflict", "gone", "never", "world")
    metrics = KitMetrics()
    async with running(client, controller(reconcile), metrics=metrics):
        for name in names:
            await make(client, name)
        await until(lambda: all(tries[one] == 3 for one in ("again", "bug", "conflict", "world")))
        await settle()
        assert {name: tries[name] for name in names} == {
            "again": 3, "bug": 3, "conflict": 3, "gone": 1, "never": 1, "world": 3,
        }  # fmt: skip
        text = exposition(metrics.families()).decode()
    assert 'controller_reconcile_total{controller="kit",result="never"} 1.0' in text
    assert 'controller_reconcile_total{controller="kit",result="error"} 4.0' in text
    assert 'workqueue_retries_total{name="kit"} 6.0' in text
    assert 'workqueue_depth{name="kit"} 0.0' in text
    assert 'workqueue_work_duration_seconds_count{name="kit"} ' in text
    assert 'workqueue_queue_duration_seconds_count{name="kit"} ' in text


async def test_a_key_may_wait(client: CountingClient) -> None:
    keys: list[Key] = []

    async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
        keys.append(key)
        return Done()

    def later(delta: Delta, read: Reader) -> Iterator[Any]:
        key = (namespace_of(delta.object), name_of(delta.object))
        yield After(key, 0.2) if key[1] == "late" else key

    async with running(client, controller(reconcile, Watch(CONFIG_MAPS, later))):
        await make(client, "late")
        await make(client, "soon")
        await until(lambda: ("default", "late") in keys)
        assert keys.index(("default", "soon")) < keys.index(("default", "late"))


async def test_a_bug_in_a_mapping_costs_one_event(client: CountingClient) -> None:
    keys: dict[str, list[str]] = {"ill": [], "well": []}

    def noting(name: str, *watches: Watch) -> Controller[Key]:
        async def reconcile(key: Key, read: Reader, write: ApiWriter) -> Result:
            if key[0] == "default":
                keys[name].append(key[1])
            return Done()

        return controller(reconcile, *watches, name=name)

    def ill(delta: Delta, read: Reader) -> Iterator[Key]:
        if name_of(delta.object) == "bad":
            raise ZeroDivisionError
        return iter(own_key(delta, read))

    metrics = KitMetrics()
    both = (noting("ill", Watch(CONFIG_MAPS, ill)), noting("well"))
    async with running(client, *both, metrics=metrics):
        for name in ("bad", "good"):
            await make(client, name)
        await until(lambda: "good" in keys["ill"] and "good" in keys["well"])
        assert ("bad" in keys["ill"], "bad" in keys["well"]) == (False, True)
        text = exposition(metrics.families()).decode()
        assert 'controller_event_failures_total{controller="ill"} 1.0' in text


async def test_one_with_much_to_map_does_not_hold_the_others(
    client: CountingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHANGES_AT_ONCE", 2)
    for number in range(200):
        await make(client, f"m{number}")
    mapped = 0
    when: list[int] = []

    def heavy(delta: Delta, read: Reader) -> Iterator[Key]:
        nonlocal mapped
        mapped += 1
        return iter(())

    async def note(key: Key, read: Reader, write: ApiWriter) -> Result:
        when.append(mapped)
        return Done()

    light = controller(note, Watch(SECRETS, own_key), name="light")
    loaded = controller(note, *[Watch(CONFIG_MAPS, heavy)], name="heavy")
    await client.create(SECRETS, {"metadata": {"name": "one"}}, "default")
    async with running(client, loaded, light):
        await until(lambda: bool(when) and mapped >= 200)
        assert when[0] < 200


# Expectations


async def test_what_was_created_is_not_created_twice_before_the_cache_shows_it(
    client: CountingClient,
) -> None:
    reconciled = 0

    async def one_secret(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal reconciled
        reconciled += 1
        if key == ("default", "set") and not read.list(SECRETS, "default"):
            await write.create(SECRETS, {"metadata": {"generateName": "s-"}}, "default")
            write.enqueue(key)  # an eager one
        return Done()

    watches = (Watch(CONFIG_MAPS, own_key), Watch(SECRETS, lambda delta, read: ()))
    await make(client, "set")
    async with running(client, controller(one_secret, *watches)):
        await until(lambda: client.watches[SECRETS] == 1)
        client.open.clear()
        await client.patch(CONFIG_MAPS, "set", {"data": {"a": "b"}}, namespace="default")
        await settle()
        assert len((await client.list(SECRETS, Selection("default"))).items) == 1
        before = reconciled
        client.open.set()
        await until(lambda: reconciled > before)
        assert len((await client.list(SECRETS, Selection("default"))).items) == 1


async def test_what_was_written_is_not_written_again_from_an_old_copy(
    client: CountingClient,
) -> None:
    refusals = 0

    async def count_up(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal refusals
        found = read.get(CONFIG_MAPS, key[1], key[0])
        if key != ("default", "counter") or found is None:
            return Done()
        count = int((found.get("data") or {}).get("count", "0"))
        if count < 3:
            try:
                await write.patch(CONFIG_MAPS, found, {"data": {"count": str(count + 1)}})
            except StatusError:
                refusals += 1
                raise
            write.enqueue(key)
        return Done()

    async with running(client, controller(count_up)):
        await make(client, "counter")
        async with asyncio.timeout(5):
            while True:
                found = await client.get(CONFIG_MAPS, "counter", "default")
                if (found.get("data") or {}).get("count") == "3":
                    break
                await asyncio.sleep(0.01)
    assert refusals == 0


async def test_what_was_deleted_is_not_deleted_twice(client: CountingClient) -> None:
    deletions = 0

    async def remove(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal deletions
        found = read.get(CONFIG_MAPS, key[1], key[0])
        if (
            found is not None
            and key[1] == "victim"
            and not lookup(found, "metadata", "deletionTimestamp")
        ):
            deletions += 1
            await write.delete(CONFIG_MAPS, found)
            write.enqueue(key)
        return Done()

    async with running(client, controller(remove)):
        await until(lambda: client.watches[CONFIG_MAPS] == 1)
        await make(client, "victim", finalizers=["example.com/stay"])
        await until(lambda: deletions == 1)
        client.open.clear()
        await settle()
        assert deletions == 1
        client.open.set()
        await client.patch(
            CONFIG_MAPS, "victim", {"metadata": {"finalizers": None}}, namespace="default"
        )
        await settle()
        assert deletions == 1


async def test_an_event_that_never_comes_holds_a_key_for_a_limited_time(
    client: CountingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "LONGEST_SECONDS", 0.3)
    turns = 0

    async def touch(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal turns
        found = read.get(CONFIG_MAPS, key[1], key[0])
        if key == ("default", "held") and found is not None:
            turns += 1
            if turns == 1:
                client.open.clear()
                await write.patch(CONFIG_MAPS, found, {"data": {"a": "1"}})
                write.enqueue(key)
        return Done()

    async with running(client, controller(touch)):
        await make(client, "held")
        await until(lambda: turns == 1)
        await settle()
        assert turns == 1
        await until(lambda: turns == 2)


async def test_what_is_not_watched_yet_holds_nothing(client: CountingClient) -> None:
    turns = 0

    async def make_one(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal turns
        if key == ("default", "first"):
            turns += 1
            await write.create(SECRETS, {"metadata": {"generateName": "s-"}}, "default")
            if turns < 3:
                write.enqueue(key)
        return Done()

    watches = (Watch(CONFIG_MAPS, own_key), Watch(SECRETS, own_key, once_there_is=PODS))
    async with running(client, controller(make_one, *watches)):
        await make(client, "first")
        await until(lambda: turns == 3)


def written(version: str) -> Object:
    metadata = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": version}
    return {"metadata": metadata}


@virtual_time
async def test_an_answer_may_come_after_its_event_and_the_next_one() -> None:
    seen: list[str] = []
    expected = expectations.Expectations[str](CLOCK, seen.append)
    with expected.writing(CONFIG_MAPS):
        expected.observe(CONFIG_MAPS, Delta(written("1"), written("2")))
        expected.observe(CONFIG_MAPS, Delta(written("2"), written("3")))
        expected.expect("key", CONFIG_MAPS, written("2"))
    assert expected.seconds_held("key") == 0
    expected.expect("key", CONFIG_MAPS, written("2"))
    assert expected.seconds_held("key") == expectations.LONGEST_SECONDS
    expected.observe(CONFIG_MAPS, Delta(written("3"), written("4")))
    assert seen == [], "another version says nothing: versions are opaque"
    expected.observe(CONFIG_MAPS, Delta(written("4"), None))
    assert (seen, expected.seconds_held("key")) == (["key"], 0)


@virtual_time
async def test_what_was_waited_for_too_long_is_forgotten() -> None:
    seen: list[str] = []
    expected = expectations.Expectations[str](CLOCK, seen.append)
    expected.expect("key", CONFIG_MAPS, written("2"))
    await CLOCK.sleep(expectations.LONGEST_SECONDS)
    assert expected.seconds_held("key") == 0
    expected.observe(CONFIG_MAPS, Delta(written("1"), written("2")))
    assert seen == []


async def test_a_write_that_changes_nothing_holds_nothing(client: CountingClient) -> None:
    turns = 0

    async def touch(key: Key, read: Reader, write: ApiWriter) -> Result:
        nonlocal turns
        found = read.get(CONFIG_MAPS, key[1], key[0])
        if key == ("default", "same") and found is not None:
            turns += 1
            await write.patch(CONFIG_MAPS, found, {"data": {"a": "1"}})
            if turns < 3:
                write.enqueue(key)
        return Done()

    async with running(client, controller(touch)):
        await client.create(
            CONFIG_MAPS, {"metadata": {"name": "same"}, "data": {"a": "1"}}, "default"
        )
        await until(lambda: turns == 3)
