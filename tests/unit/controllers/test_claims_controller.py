"""Claims through the real API server, with its controller: bound, made, grown, released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from livesize.api.objects import Object, lookup
from livesize.api.storage import (
    CLAIM_PROTECTION,
    DEFAULT_CLASS,
    FOLDER_FINALIZER,
    FOLDERS_AT,
    HOSTNAME,
    VOLUME_PROTECTION,
)
from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.claims.reconcile import claims_controller
from livesize.scheduler.loop import Scheduler
from unit.apiserver.conftest import IDENTITIES, Rig
from unit.controllers.at_work import at_work
from unit.controllers.storage_objects import claim, storage_class, volume
from virtual_time import virtual_context

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
EVENTS = "/api/v1/namespaces/default/events"
GROWN = {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}


class Running:
    """A controller that can die at any moment, and another one after it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        client = DirectClient(self.rig.service, IDENTITIES["controller"])
        self._task = asyncio.create_task(at_work(client, claims_controller))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def make(self, path: str, body: Object) -> Object:
        metadata = {"name": body["metadata"]["name"]}
        answer = await self.rig.request("POST", path, {**body, "metadata": metadata})
        assert answer.status == 201, answer.json
        made: Object = answer.json
        return made

    async def get(self, path: str) -> Object:
        answer = await self.rig.get(path)
        return answer.json if answer.status == 200 else {}

    async def until(self, path: str, holds: Callable[[Object], Any]) -> Object:
        """The object at ``path`` ({} where there is none), once that is true of it."""
        async with asyncio.timeout(5):
            while not holds(found := await self.get(path)):
                await asyncio.sleep(0.005)
        return found

    async def phase(self, path: str, phase: str) -> Object:
        return await self.until(path, lambda one: lookup(one, "status", "phase") == phase)

    async def use(self, pod: str, of: str, node: str = "n1") -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": of}}]
        await self.rig.add_pod(pod, node=node, volumes=volumes)

    async def drop(self, pod: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{pod}"
        await self.rig.request("DELETE", path, {"gracePeriodSeconds": 0})

    async def told(self, reason: str) -> None:
        await self.until(EVENTS, lambda all_: reason in {one["reason"] for one in all_["items"]})


@pytest.fixture
async def here(rig: Rig) -> AsyncIterator[Running]:
    running = Running(rig)
    await rig.add_node("n1")
    patch = {"metadata": {"annotations": {FOLDERS_AT: "/var/claims"}}}
    assert (await rig.patch("/api/v1/nodes/n1", patch)).status == 200
    running.begin()
    yield running
    await running.end()


async def test_a_folder_is_made_for_the_first_pod_and_goes_with_the_claim(here: Running) -> None:
    made = await here.make(CLAIMS, claim())
    assert made["metadata"]["finalizers"] == [CLAIM_PROTECTION]
    await here.told("WaitForFirstConsumer")
    await here.use("one", "data")
    bound = await here.phase(f"{CLAIMS}/data", "Bound")
    assert bound["status"]["capacity"] == {"storage": "1Gi"}
    path = f"{VOLUMES}/{bound['spec']['volumeName']}"
    disk = await here.phase(path, "Bound")
    assert disk["spec"]["local"]["path"] == f"/var/claims/{disk['metadata']['name']}"
    assert set(disk["metadata"]["finalizers"]) == {FOLDER_FINALIZER, VOLUME_PROTECTION}

    assert (await here.rig.patch(f"{CLAIMS}/data", GROWN)).status == 200
    size = ("status", "capacity", "storage")
    await here.until(f"{CLAIMS}/data", lambda one: lookup(one, *size) == "5Gi")

    await here.rig.request("DELETE", f"{CLAIMS}/data")
    await here.rig.request("DELETE", path)
    await asyncio.sleep(0.05)
    assert await here.get(f"{CLAIMS}/data"), "a pod uses it"
    assert lookup(await here.get(path), "status", "phase") == "Bound"
    await here.drop("one")
    await here.until(f"{CLAIMS}/data", lambda one: not one)
    left = await here.until(
        path, lambda one: lookup(one, "metadata", "finalizers") == [FOLDER_FINALIZER]
    )
    assert left["metadata"]["deletionTimestamp"]
    assert left["status"]["phase"] == "Released"
    # Its node says that the folder is gone, and may say nothing else.
    smaller = {"metadata": {"finalizers": None}, "spec": {"capacity": {"storage": "1"}}}
    assert (await here.rig.patch(path, smaller, token="n1")).status == 403
    done = {"metadata": {"finalizers": None}}
    assert (await here.rig.patch(path, done, token="n2")).status == 403
    assert (await here.rig.patch(path, done, token="n1")).status == 200
    assert not await here.get(path)


async def test_what_is_there_is_bound_and_stays_when_it_is_released(here: Running) -> None:
    await here.make(VOLUMES, volume("large", "9Gi", ""))
    await here.phase(f"{VOLUMES}/large", "Available")
    await here.make(VOLUMES, volume("small", "2Gi", ""))
    await here.make(CLAIMS, claim("one", class_name=""))
    bound = await here.phase(f"{CLAIMS}/one", "Bound")
    assert bound["spec"]["volumeName"] == "small"
    await here.make(CLAIMS, claim("two", class_name=""))
    assert (await here.phase(f"{CLAIMS}/two", "Bound"))["spec"]["volumeName"] == "large"
    await here.make(CLAIMS, claim("three", class_name=""))
    await here.told("FailedBinding")
    await here.make(VOLUMES, volume("later", "1Gi", ""))
    assert (await here.phase(f"{CLAIMS}/three", "Bound"))["spec"]["volumeName"] == "later"
    assert (await here.rig.patch(f"{CLAIMS}/one", GROWN)).status == 403
    await here.rig.request("DELETE", f"{CLAIMS}/one")
    released = await here.phase(f"{VOLUMES}/small", "Released")
    await here.make(CLAIMS, claim("one", class_name=""))
    await asyncio.sleep(0.03)
    assert lookup(await here.get(f"{CLAIMS}/one"), "status", "phase") == "Pending"
    assert "deletionTimestamp" not in released["metadata"]
    again = {"spec": {"claimRef": None}}
    assert (await here.rig.patch(f"{VOLUMES}/small", again)).status == 200
    assert (await here.phase(f"{CLAIMS}/one", "Bound"))["spec"]["volumeName"] == "small"


async def test_a_claim_whose_volume_is_taken_away_is_lost(here: Running) -> None:
    await here.make(VOLUMES, volume("disk", "2Gi", ""))
    await here.make(CLAIMS, claim("one", class_name=""))
    await here.phase(f"{CLAIMS}/one", "Bound")
    await here.rig.request("DELETE", f"{VOLUMES}/disk")
    done = await here.rig.patch(f"{VOLUMES}/disk", {"metadata": {"finalizers": None}})
    assert done.status == 200
    await here.phase(f"{CLAIMS}/one", "Lost")
    await here.told("ClaimLost")


async def test_a_class_that_comes_later_and_the_default_one(here: Running) -> None:
    unnamed = claim("early")
    del unnamed["spec"]["storageClassName"]
    early = await here.make(CLAIMS, unnamed)
    assert early["spec"]["storageClassName"] == "local"
    no_default = {"metadata": {"annotations": {DEFAULT_CLASS: "false"}}}
    assert (await here.rig.patch(f"{CLASSES}/local", no_default)).status == 200
    late = await here.make(CLAIMS, {**unnamed, "metadata": {"name": "late"}})
    assert "storageClassName" not in late["spec"]
    await here.make(CLAIMS, claim("data", class_name="slow"))
    await here.told("ProvisioningFailed")
    await here.make(CLASSES, storage_class("slow", reclaimPolicy="Retain"))
    await here.use("one", "data")
    bound = await here.phase(f"{CLAIMS}/data", "Bound")
    disk = await here.get(f"{VOLUMES}/{bound['spec']['volumeName']}")
    assert disk["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


async def test_the_next_controller_goes_on_where_one_died(here: Running) -> None:
    """Cut off in the middle of what it does, again and again."""
    for number in range(6):
        await here.make(CLAIMS, claim(f"c{number}"))
        await here.use(f"p{number}", f"c{number}")
    for turns in range(40):
        await here.end()
        here.begin()
        for _ in range(turns):
            await asyncio.sleep(0)
    names = set()
    for number in range(6):
        bound = await here.phase(f"{CLAIMS}/c{number}", "Bound")
        names.add(bound["spec"]["volumeName"])
    made = await here.get(VOLUMES)
    assert {one["metadata"]["name"] for one in made["items"]} == names
    assert len(names) == 6


async def test_the_scheduler_and_the_controller_agree(here: Running) -> None:
    """Pods of one claim go to one node, the one that came before the claim too."""
    ready = {
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await here.rig.add_node("n2")
    for name in ("n1", "n2"):
        labels = {"labels": {HOSTNAME: name}, "annotations": {FOLDERS_AT: "/var/claims"}}
        assert (await here.rig.patch(f"/api/v1/nodes/{name}", {"metadata": labels})).status == 200
        path = f"/api/v1/nodes/{name}/status"
        assert (await here.rig.patch(path, {"status": ready})).status == 200
    client = DirectClient(here.rig.service, IDENTITIES["scheduler"])
    scheduling = asyncio.create_task(Scheduler(client, context=virtual_context()).run())
    await here.use("early", "one", node="")
    for name in ("one", "two"):
        await here.make(CLAIMS, claim(name))
    await here.use("other", "two", node="")
    for pod in ("second", "third"):
        await here.use(pod, "one", node="")
    nodes = {}
    for pod in ("early", "second", "third", "other"):
        path = f"/api/v1/namespaces/default/pods/{pod}"
        placed = await here.until(path, lambda one: lookup(one, "spec", "nodeName"))
        nodes[pod] = placed["spec"]["nodeName"]
    assert nodes["early"] == nodes["second"] == nodes["third"]
    bound = await here.phase(f"{CLAIMS}/one", "Bound")
    disk = await here.get(f"{VOLUMES}/{bound['spec']['volumeName']}")
    assert disk["metadata"]["labels"]["livesize.dev/node"] == nodes["early"]
    scheduling.cancel()
    await asyncio.gather(scheduling, return_exceptions=True)
