"""A quota that comes, or gets other limits, while others write: nothing is missed or let through.

The store answers when it likes, so that every order of reading, judging and storing happens; one
API server or two are on it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.kinds.service import SERVICES
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.quota import hard_of, is_counted, recount, used_of
from livesize.apiserver.deletion_plan import DeletionOptions
from livesize.apiserver.keys import key_of, resource_of
from livesize.apiserver.request_types import Target
from livesize.store.interface import ChangeKind, Check, Write
from livesize.store.memory import MemoryStore
from unit.apiserver.conftest import ADMIN, Rig, pod
from virtual_time import virtual_time

pytestmark = virtual_time

QUOTA_KEY = key_of(RESOURCE_QUOTAS, "default", "q")
HARD = {"pods": "4", "requests.cpu": "2"}
MORE = {**HARD, "count/services": "2", "limits.memory": "1Gi"}


class UnhurriedStore(MemoryStore):
    """Each commit takes a few turns of the loop to come, and its answer a few to go."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._source = random.Random(seed)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        await self._dawdle()
        revision = await super().commit(checks, writes)
        await self._dawdle()
        return revision

    async def _dawdle(self) -> None:
        for _ in range(self._source.choice((0, 0, 1, 3, 12))):
            await asyncio.sleep(0)


class HeldStore(MemoryStore):
    """A commit that writes ``held`` waits before it is judged until ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ""
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        if self.held and any(write.key == self.held for write in writes):
            self.held = ""
            self.waiting.set()
            await self.go.wait()
        return await super().commit(checks, writes)


def quota(hard: Object) -> Object:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}}


async def state_of(store: MemoryStore) -> tuple[Object | None, list[tuple[Resource, Object]]]:
    """The quota and everything counted, as stored."""
    found: Object | None = None
    counted = []
    for entry in (await store.list("/registry/")).entries:
        resource = resource_of(entry.key)
        if resource is None or not is_counted(resource):
            continue
        obj = orjson.loads(entry.value)
        counted.append((resource, obj))
        if entry.key == QUOTA_KEY:
            found = obj
    return found, counted


async def assert_books_are_right(store: MemoryStore) -> None:
    stored, counted = await state_of(store)
    assert stored is not None
    assert recount(stored, counted)["status"] == stored["status"]


async def assert_never_let_through(store: MemoryStore) -> None:
    """What is really used never grows where it is more than the quota of the moment."""
    newest = await store.revision()
    objects: dict[str, Object] = {}
    before: dict[str, int] = {}
    async for batch in store.watch("/registry/", after_revision=0):
        by_revision: dict[int, list[Any]] = {}
        for change in batch:
            by_revision.setdefault(change.revision, []).append(change)
        for changes in by_revision.values():
            limits_before = objects.get(QUOTA_KEY, {}).get("spec")
            for change in changes:
                if change.kind is ChangeKind.PUT:
                    objects[change.entry.key] = orjson.loads(change.entry.value)
                else:
                    objects.pop(change.entry.key, None)
            before = really_used(objects, before, limits_before)
        if batch[-1].revision >= newest:
            return


def really_used(
    objects: dict[str, Object], before: dict[str, int], limits_before: Object | None
) -> dict[str, int]:
    if QUOTA_KEY not in objects:
        return {}
    current = objects[QUOTA_KEY]
    found = [(resource_of(key), obj) for key, obj in objects.items()]
    used = used_of(recount(current, [(one, obj) for one, obj in found if one is not None]))
    if limits_before == current["spec"]:
        for name, limit in hard_of(current).items():
            assert used[name] <= max(limit, before[name]), (name, used, current)
    return used


Act = Callable[[Rig], Awaitable[Any]]


def create(resource: Resource, obj: Object) -> Act:
    return lambda rig: rig.service.create(ADMIN, resource, "default", obj)


def resize(name: str, cpu: str) -> Act:
    patch = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]}}
    target = Target(PODS, "default", name, "resize")
    return lambda rig: rig.service.patch(ADMIN, target, patch, PatchType.STRATEGIC)


def delete(resource: Resource, name: str) -> Act:
    target = Target(resource, "default", name)
    return lambda rig: rig.service.delete(ADMIN, target, DeletionOptions(grace_seconds=0))


def limit(hard: Object) -> Act:
    target = Target(RESOURCE_QUOTAS, "default", "q")
    patch = {"spec": {"hard": hard}}
    return lambda rig: rig.service.patch(ADMIN, target, patch, PatchType.MERGE)


def service(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


ACTS: list[Act] = [
    *(create(PODS, pod(f"p{number}")) for number in range(6)),
    *(resize(f"p{number}", cpu) for number in range(4) for cpu in ("100m", "900m")),
    *(delete(PODS, f"p{number}") for number in (0, 1)),
    *(create(SERVICES, service(f"s{number}")) for number in range(4)),
    delete(SERVICES, "s0"),
    create(CONFIG_MAPS, {"metadata": {"name": "c"}}),
    create(RESOURCE_QUOTAS, quota(HARD)),
    limit(MORE),
    limit({"count/services": "3"}),
]


async def play(rigs: list[Rig], order: list[int]) -> None:
    for rig in rigs:
        await rig.start()
    for number in (1, 2, 3):
        await rigs[0].add_pod(f"p{number}")
    await asyncio.gather(
        *(act_on(rigs[place % len(rigs)], ACTS[act]) for place, act in enumerate(order)),
    )


async def act_on(rig: Rig, act: Act) -> None:
    try:
        await act(rig)
    except StatusError as refusal:
        if refusal.code not in (403, 404, 409):  # refused, gone, there already
            raise


ORDERS = st.permutations(range(len(ACTS)))


@given(seed=st.integers(0, 10**6), order=ORDERS, servers=st.sampled_from((1, 2)))
async def test_the_books_are_right_whatever_came_at_once(
    seed: int, order: list[int], servers: int
) -> None:
    store = UnhurriedStore(seed)
    rigs = [Rig(store) for _ in range(servers)]
    try:
        await play(rigs, order)
        await assert_books_are_right(store)
        if servers == 1:
            await assert_never_let_through(store)
    finally:
        for rig in rigs:
            await rig.stop()


@pytest.fixture
async def held() -> Any:
    rig = Rig(HeldStore())
    await rig.start()
    yield rig
    await rig.stop()


async def test_a_pod_on_its_way_when_the_quota_comes_is_refused_by_it(held: Any) -> None:
    held.store.held = key_of(PODS, "default", "late")
    late = asyncio.create_task(held.request("POST", "/api/v1/namespaces/default/pods", pod("late")))
    await held.store.waiting.wait()
    await held.service.create(ADMIN, RESOURCE_QUOTAS, "default", quota({"pods": "0"}))
    held.store.go.set()
    answer = await late
    assert (answer.status, "exceeded quota" in answer.json["message"]) == (403, True)
    await assert_books_are_right(held.store)


async def test_a_resize_on_its_way_when_the_limit_comes_is_charged(held: Any) -> None:
    await held.add_pod("web", node="n1")
    await held.service.create(ADMIN, RESOURCE_QUOTAS, "default", quota({"pods": "9"}))
    held.store.held = key_of(PODS, "default", "web")
    late = asyncio.create_task(resize("web", "900m")(held))
    await held.store.waiting.wait()
    await limit({"requests.cpu": "1"})(held)
    held.store.go.set()
    await late
    stored, _ = await state_of(held.store)
    assert stored is not None
    assert stored["status"]["used"] == {"pods": "1", "requests.cpu": "900m"}


async def test_what_was_stored_while_the_quota_was_on_its_way_is_counted(held: Any) -> None:
    held.store.held = QUOTA_KEY
    coming = asyncio.create_task(create(RESOURCE_QUOTAS, quota({"pods": "3"}))(held))
    await held.store.waiting.wait()
    await held.add_pod("early")
    held.store.go.set()
    made = await coming
    assert made.stored["status"]["used"] == {"pods": "1"}
    await assert_books_are_right(held.store)
