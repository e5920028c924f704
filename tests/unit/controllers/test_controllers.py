"""The controllers against the real API server: what is deleted, what stays, what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, evolve
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.keys import key_of
from livesize.apiserver.records import stored_bytes
from livesize.controllers.garbage.reconcile import garbage_controller
from livesize.controllers.quota.reconcile import quota_controller
from livesize.store.interface import Put
from unit.apiserver.conftest import IDENTITIES, Rig, pod
from unit.controllers.at_work import at_work

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, garbage_controller, quota_controller))
    yield rig
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await condition():
            await asyncio.sleep(0.01)


async def make(rig: Rig, name: str, *owners: Object, **reference: Any) -> Object:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **reference,
        }
        for owner in owners
    ]
    metadata = {"name": name, "ownerReferences": references}
    answer = await rig.request("POST", MAPS, {"metadata": metadata})
    assert answer.status == 201
    made: Object = answer.json
    return made


async def delete(rig: Rig, name: str, policy: str = "") -> Any:
    body = {"propagationPolicy": policy} if policy else None
    return await rig.request("DELETE", f"{MAPS}/{name}", body)


async def gone(rig: Rig, *names: str) -> None:
    for name in names:

        async def is_gone(name: str = name) -> bool:
            return (await rig.get(f"{MAPS}/{name}")).status == 404

        await until(is_gone)


async def test_what_is_owned_goes_with_its_owner(rig: Rig) -> None:
    owner = await make(rig, "owner")
    child = await make(rig, "child", owner)
    await make(rig, "grandchild", child)
    await make(rig, "bystander")
    await delete(rig, "owner")
    await gone(rig, "owner", "child", "grandchild")
    assert (await rig.get(f"{MAPS}/bystander")).status == 200


async def test_one_owner_left_is_enough(rig: Rig) -> None:
    one, two = await make(rig, "one"), await make(rig, "two")
    await make(rig, "shared", one, two)
    await delete(rig, "one")

    async def forgot() -> bool:
        shared = (await rig.get(f"{MAPS}/shared")).json
        return [ref["name"] for ref in shared["metadata"]["ownerReferences"]] == ["two"]

    await until(forgot)
    await delete(rig, "two")
    await gone(rig, "shared")


async def make_circle(rig: Rig, *names: str) -> None:
    """Each owns the next, and the last the first."""
    made = [await make(rig, name) for name in names]
    for owner, name in zip([made[-1], *made[:-1]], names, strict=True):
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        answer = await rig.patch(f"{MAPS}/{name}", {"metadata": {"ownerReferences": [reference]}})
        assert answer.status == 200


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c", "d")])
async def test_a_circle_of_owners_deleted_in_the_foreground_goes(
    rig: Rig, names: tuple[str, ...]
) -> None:
    """Its members waited for each other for ever."""
    await make_circle(rig, *names)
    await delete(rig, "a", "Foreground")
    await gone(rig, *names)


async def test_a_circle_of_which_all_are_deleted_in_the_foreground_goes(rig: Rig) -> None:
    await make_circle(rig, "a", "b", "c")
    for name in ("a", "b", "c"):
        await delete(rig, name, "Foreground")
    await gone(rig, "a", "b", "c")


async def test_in_the_foreground_the_owner_goes_last(rig: Rig) -> None:
    owner = await make(rig, "owner")
    held = await make(rig, "held", owner, blockOwnerDeletion=True)
    finalizers = {"metadata": {"finalizers": ["example.com/held"]}}
    await rig.patch(f"{MAPS}/held", finalizers)
    answer = await delete(rig, "owner", "Foreground")
    assert answer.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer.json["metadata"]["deletionTimestamp"]

    async def child_is_going() -> bool:
        now = (await rig.get(f"{MAPS}/held")).json
        return bool(now["metadata"].get("deletionTimestamp"))

    await until(child_is_going)
    assert (await rig.get(f"{MAPS}/owner")).status == 200
    await rig.patch(f"{MAPS}/held", {"metadata": {"finalizers": None}})
    await gone(rig, "held", "owner")
    assert held["metadata"]["uid"]


async def test_orphans_stay_and_forget(rig: Rig) -> None:
    owner = await make(rig, "owner")
    await make(rig, "orphan", owner)
    await delete(rig, "owner", "Orphan")
    await gone(rig, "owner")
    left = (await rig.get(f"{MAPS}/orphan")).json
    assert "ownerReferences" not in left["metadata"]


async def test_an_owner_that_never_was(rig: Rig) -> None:
    await make(rig, "child", {"metadata": {"name": "nobody", "uid": "no-such-uid"}})
    await gone(rig, "child")
    owner = await make(rig, "owner")
    await make(rig, "mistaken", evolve(owner, ("metadata", "uid"), "another-uid"))
    await gone(rig, "mistaken")
    assert (await rig.get(f"{MAPS}/owner")).status == 200


async def test_a_kind_that_is_not_served_keeps_what_it_owns(rig: Rig) -> None:
    owner = {"metadata": {"name": "crew", "uid": "crew-uid"}}
    kept = await make(rig, "kept", owner, apiVersion="example.com/v1", kind="Crew")
    sentinel = await make(rig, "sentinel", {"metadata": {"name": "nobody", "uid": "x"}})
    await gone(rig, "sentinel")
    assert (await rig.get(f"{MAPS}/kept")).json == kept
    assert sentinel["metadata"]["uid"]


async def test_a_pod_owned_by_what_is_gone(rig: Rig) -> None:
    owner = await make(rig, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    sent = evolve(pod("web"), ("metadata", "ownerReferences"), [reference])
    await rig.request("POST", "/api/v1/namespaces/default/pods", sent)
    await delete(rig, "owner")

    async def is_gone() -> bool:
        return (await rig.get("/api/v1/namespaces/default/pods/web")).status == 404

    await until(is_gone)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"orphanDependents": True}, 200),
        ({"propagationPolicy": "Background"}, 200),
    ],
)
async def test_policies(rig: Rig, body: Object, status: int) -> None:
    await make(rig, "owner")
    assert (await rig.request("DELETE", f"{MAPS}/owner", body)).status == status


async def test_a_quota_that_says_something_else_is_counted_anew(rig: Rig) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await rig.add_pod("web")
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5", "configmaps": "9"}}}
    await rig.request("POST", quotas, quota)
    # As if something had been missed: written past the API server, with a spec it has not seen.
    key = key_of(RESOURCE_QUOTAS, "default", "q")
    record = rig.cache.get(RESOURCE_QUOTAS, key)
    assert record is not None
    wrong = evolve(record.stored, ("status", "used"), {"pods": "4", "configmaps": "7"})
    wrong = evolve(wrong, ("spec", "hard", "pods"), "6")
    await rig.store.commit([], [Put(key, stored_bytes(wrong))])

    async def is_right() -> bool:
        status = (await rig.get(f"{quotas}/q")).json["status"]
        return bool(status["used"] == {"pods": "1", "configmaps": "1"})

    await until(is_right)
    assert rig.cache.get(CONFIG_MAPS, key_of(CONFIG_MAPS, "default", "kube-root-ca.crt"))
