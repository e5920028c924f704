"""Decisions 7 on a real API server and a real agent: 200 resizes at once against one quota.

"ResourceQuota counts, per pod, max(desired, allocated, actual)": a resize that the node defers
keeps its place in the quota, so that granting it later exceeds nothing. The store's history is the
witness: at each of its revisions the quota is right and not exceeded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import orjson
import pytest

from design.one_process import NAMESPACE, NODE, OneProcess, one_process
from livesize.api.errors import StatusError
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup
from livesize.api.patch import PatchType
from livesize.api.quantity import parse_quantity
from livesize.api.quota import usage_of, used_of
from livesize.api.roles import Role
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.keys import key_of, prefix_of
from livesize.store.epochs import first_revision
from livesize.store.interface import ChangeKind, Store

pytestmark = pytest.mark.apiserver

PODS_COUNT = 200
NAME = "requests.cpu"
QUOTA = {NAME: "2800m"}  # 200 times 10m, and 160 times 5m more
ROOM_MILLI = 300  # on the node, beside all pods: 60 times 5m


async def test_two_hundred_resizes_of_which_many_are_deferred(tmp_path: Path) -> None:
    async with one_process(tmp_path) as system:
        user = system.as_role(Role.ADMIN)
        names = await settle_in(system, user)
        first = await ask_all(user, names, "15m")
        assert Counter(first.values()) == {200: 160, 403: 40}
        asked = [name for name in names if first[name] == 200]
        await until_phases(user, {"Done": 60, "Deferred": 100})
        assert await used(user) == "2800m"

        # Room on the node, and two hundred more who would like to have what the deferred wait for.
        await user.delete(PODS, "elsewhere", "other", grace_period_seconds=0)
        second = await ask_all(user, names, "20m")
        assert set(second.values()) == {403}
        await until_phases(user, {"Done": 160})
        sizes = Counter(
            one["spec"]["containers"][0]["resourcesAllocated"]["cpu"]
            for one in (await user.list(PODS, Selection(NAMESPACE))).items
        )
        assert sizes == {"15m": len(asked), "10m": PODS_COUNT - len(asked)}
        await check_history(system.server.service.cache._store)


async def settle_in(system: OneProcess, user: DirectClient) -> list[str]:
    """The quota and two hundred pods below it, and a pod elsewhere that fills the node."""
    await user.create(NAMESPACES, {"metadata": {"name": "other"}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": QUOTA}}
    await user.create(RESOURCE_QUOTAS, quota, NAMESPACE)
    taken = 4000 - PODS_COUNT * 10 - ROOM_MILLI
    await user.create(PODS, pod_of(system, "elsewhere", f"{taken}m"), "other")
    names = [f"p{number:03}" for number in range(PODS_COUNT)]
    for name in names:
        await user.create(PODS, pod_of(system, name, "10m"), NAMESPACE)
    async with asyncio.timeout(60):
        while not await all_run(user):
            await asyncio.sleep(0.1)
    return names


def pod_of(system: OneProcess, name: str, cpu: str) -> Object:
    container = system.container(cpu=cpu, memory="4Mi")
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec}


async def all_run(user: DirectClient) -> bool:
    pods = (await user.list(PODS)).items
    return all(lookup(one, "status", "phase") == "Running" for one in pods)


async def ask_all(user: DirectClient, names: list[str], cpu: str) -> dict[str, int]:
    """All at once; the code of each answer."""
    size = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    patch = {"spec": {"containers": [{"name": "app", "resources": size}]}}
    codes: dict[str, int] = {}

    async def ask(name: str) -> None:
        try:
            await user.patch(
                PODS,
                name,
                patch,
                namespace=NAMESPACE,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
            )
            codes[name] = 200
        except StatusError as refusal:
            codes[name] = refusal.code

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(ask(name))
    return codes


async def until_phases(user: DirectClient, wanted: dict[str, int]) -> None:
    """Of the pods that were ever asked to resize."""
    async with asyncio.timeout(60):
        while True:
            pods = (await user.list(PODS, Selection(NAMESPACE))).items
            states = (lookup(one, "status", "resizeState", "phase") for one in pods)
            if Counter(phase for phase in states if phase not in (None, "None")) == wanted:
                return
            await asyncio.sleep(0.1)


async def used(user: DirectClient) -> str:
    quota = await user.get(RESOURCE_QUOTAS, "q", NAMESPACE)
    amount: str = quota["status"]["used"][NAME]
    return amount


async def check_history(store: Store) -> None:
    """At every revision used is what the pods of that moment take, and not more than allowed."""
    key, prefix = key_of(RESOURCE_QUOTAS, NAMESPACE, "q"), prefix_of(PODS, NAMESPACE)
    newest = await store.revision()
    taken: dict[str, int] = {}
    quota: Object = {}
    revisions = 0
    async for batch in store.watch("/registry/", after_revision=first_revision(1)):
        for place, change in enumerate(batch):
            if change.entry.key == key:
                quota = orjson.loads(change.entry.value)
            elif change.entry.key.startswith(prefix):
                assert change.kind is ChangeKind.PUT
                pod = orjson.loads(change.entry.value)
                taken[change.entry.key] = usage_of(quota, PODS, pod)[NAME]
            if place + 1 == len(batch) or batch[place + 1].revision != change.revision:
                assert used_of(quota).get(NAME, 0) == sum(taken.values())
                assert sum(taken.values()) <= parse_quantity(QUOTA[NAME])
                revisions += 1
        if batch[-1].revision >= newest:
            break
    assert len(taken) == PODS_COUNT
    assert revisions > 4 * PODS_COUNT  # made, started, asked, done
