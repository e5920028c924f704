"""Stateful sets on the real API service, with a node that is made up, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.times import format_time
from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.claims.reconcile import claims_controller
from livesize.controllers.garbage.reconcile import garbage_controller
from livesize.controllers.kit.loop import run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.controllers.statefulset.reconcile import stateful_set_controller
from livesize.controllers.statefulset.revisions import make_revision
from unit.apiserver.conftest import IDENTITIES, Rig
from virtual_time import CLOCK, virtual_context, virtual_time

SPACE = "namespaces/default"
SETS = f"/apis/apps/v1/{SPACE}/statefulsets"
REVISIONS = f"/apis/apps/v1/{SPACE}/controllerrevisions"
PODS = f"/api/v1/{SPACE}/pods"
CLAIMS = f"/api/v1/{SPACE}/persistentvolumeclaims"
DB = f"{SETS}/db"
LABEL = "controller-revision-hash"
TURN_SECONDS = 0.1
LONG_SECONDS = 60.0


def a_set(replicas: int = 3, image: str = "a:1", claims: Any = (), **spec: Any) -> Object:
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "dbs",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "app", "image": image}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": one}, "spec": size} for one in claims],
            **spec,
        },
    }


class DyingClient(DirectClient):
    """Stands still for ever after its write number ``last``."""

    def __init__(self, rig: Rig, last: int) -> None:
        super().__init__(rig.service, IDENTITIES["controller"])
        self.last = last
        self.dead = asyncio.Event()

    async def _write(self, write: Any) -> Any:
        written = await write
        self.last -= 1
        if self.last == 0:
            self.dead.set()
            await asyncio.Event().wait()
        return written

    async def create(self, resource: Any, *parts: Any, **more: Any) -> Object:
        write = super().create(resource, *parts, **more)
        return await (write if resource.kind == "Event" else self._write(write))

    async def update(self, *parts: Any, **more: Any) -> Object:
        return await self._write(super().update(*parts, **more))

    async def patch(self, resource: Any, *parts: Any, **more: Any) -> Object:
        write = super().patch(resource, *parts, **more)
        return await (write if resource.kind == "Event" else self._write(write))

    async def delete(self, *parts: Any, **more: Any) -> Object:
        return await self._write(super().delete(*parts, **more))


class Cluster:
    """An API server, controllers, and a node on which every pod becomes ready at the next turn,
    unless its name, or its image, is ``broken``."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.broken: set[str] = set()
        self.stays: set[str] = set()
        """Pods that do not end when they are deleted."""
        self.seen: dict[str, list[str]] = {}
        """The uids of a name's pods, in their order."""
        self._tasks: list[asyncio.Task[None]] = []

    def control(self, client: DirectClient | None = None) -> asyncio.Task[None]:
        client = client or DirectClient(self.rig.service, IDENTITIES["controller"])
        context = virtual_context()
        made = [stateful_set_controller(context)]
        self._tasks.append(
            asyncio.create_task(run_controllers(made, client, context, KitMetrics()))
        )
        return self._tasks[-1]

    async def start(self) -> None:
        await self.rig.start()
        await self.rig.add_node("n1")
        client, context = (
            DirectClient(self.rig.service, IDENTITIES["controller"]),
            virtual_context(),
        )
        others = [garbage_controller(context), claims_controller(context)]
        running = run_controllers(others, client, context, KitMetrics())
        self._tasks += [asyncio.create_task(running), asyncio.create_task(self._node())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.rig.check_nothing_was_changed_in_place()
        await self.rig.stop()

    async def _node(self) -> None:
        while True:
            for pod in await self.pods():
                await self._turn(pod)
            await asyncio.sleep(TURN_SECONDS)

    async def _turn(self, pod: Object) -> None:
        name, path = name_of(pod), f"{PODS}/{name_of(pod)}"
        known = self.seen.setdefault(name, [])
        if uid_of(pod) not in known:
            known.append(uid_of(pod))
        if "deletionTimestamp" in pod["metadata"]:
            if name not in self.stays:
                await self.rig.request("DELETE", path, {"gracePeriodSeconds": 0})
        elif not lookup(pod, "spec", "nodeName"):
            await self.rig.request("POST", f"{path}/binding", {"target": {"name": "n1"}})
        elif pod["status"]["phase"] == "Pending":
            broken = self.broken & {name, pod["spec"]["containers"][0]["image"]}
            await self.say(name, "Running", ready=not broken)

    async def say(self, name: str, phase: str, *, ready: bool) -> None:
        since = format_time(CLOCK.now())
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
        status = {"phase": phase, "conditions": [condition]}
        answer = await self.rig.patch(f"{PODS}/{name}/status", {"status": status}, token="n1")
        assert answer.status == 200, answer.json

    # What a user does

    async def make(self, body: Object, path: str = SETS) -> Object:
        answer = await self.rig.request("POST", path, body)
        assert answer.status == 201, answer.json
        return dict(answer.json)

    async def change(self, path: str = DB, **spec: Any) -> None:
        answer = await self.rig.patch(path, {"spec": spec})
        assert answer.status == 200, answer.json

    async def roll(self, image: str, **spec: Any) -> None:
        await self.change(template=a_set(image=image)["spec"]["template"], **spec)

    async def drop(self, path: str, **options: Any) -> None:
        assert (await self.rig.request("DELETE", path, options or None)).status < 300

    # What is to be seen

    async def get(self, path: str) -> Object:
        answer = await self.rig.get(path)
        return dict(answer.json) if answer.status == 200 else {}

    async def items(self, path: str) -> list[Object]:
        items: list[Object] = (await self.get(path))["items"]
        return items

    async def pods(self) -> list[Object]:
        return await self.items(PODS)

    async def uids(self) -> dict[str, str]:
        return {name_of(pod): uid_of(pod) for pod in await self.pods()}

    async def images(self) -> dict[str, str]:
        return {name_of(pod): pod["spec"]["containers"][0]["image"] for pod in await self.pods()}

    async def names(self, path: str) -> list[str]:
        return sorted(map(name_of, await self.items(path)))

    async def status(self) -> Object:
        return (await self.get(DB)).get("status") or {}

    async def until(self, holds: Callable[[Object], Any], path: str = DB) -> Object:
        async with asyncio.timeout(LONG_SECONDS):
            while not holds(found := await self.get(path)):
                await asyncio.sleep(TURN_SECONDS)
        return found

    async def quiet(self, seconds: float = 3.0) -> None:
        await asyncio.sleep(seconds)

    async def settled(self, replicas: int = 3) -> Object:
        """The status when all is updated, ready and counted."""

        def is_settled(found: Object) -> bool:
            status = found.get("status") or {}
            counts = [
                status.get(one, 0) for one in ("replicas", "readyReplicas", "updatedReplicas")
            ]
            return (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and counts == [replicas] * 3
            )

        return (await self.until(is_settled))["status"]  # type: ignore[no-any-return]

    async def events(self) -> set[tuple[str, str]]:
        events = await self.items(f"/api/v1/{SPACE}/events")
        return {
            (one["reason"], one["message"])
            for one in events
            if one["involvedObject"]["kind"] == "StatefulSet"
        }


@asynccontextmanager
async def a_cluster(*, controlled: bool = True) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.start()
    if controlled:
        cluster.control()
    yield cluster
    await cluster.stop()


@virtual_time
async def test_pods_come_in_order_with_their_claims_and_leave_in_reverse() -> None:
    async with a_cluster() as here:
        here.broken = {"db-1"}
        await here.make(a_set(claims=["data"]))
        await here.until(lambda one: lookup(one, "status", "readyReplicas") == 1)
        await here.quiet()
        assert await here.names(PODS) == ["db-0", "db-1"]
        assert await here.names(CLAIMS) == ["data-db-0", "data-db-1"]
        await here.say("db-1", "Running", ready=True)
        status = await here.settled()
        (revision,) = await here.names(REVISIONS)
        assert status == {
            "observedGeneration": 1,
            "replicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "currentReplicas": 3,
            "updatedReplicas": 3,
            "currentRevision": revision,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        assert ("SuccessfulCreate", "create Pod db-0 in StatefulSet db successful") in (
            await here.events()
        )
        claimed = "create Claim data-db-0 Pod db-0 in StatefulSet db success"
        assert ("SuccessfulCreate", claimed) in await here.events()

        here.stays = {"db-2"}
        await here.change(replicas=1)
        await here.quiet()
        assert await here.names(PODS) == ["db-0", "db-1", "db-2"], "one after the other"
        here.stays = set()
        await here.settled(1)
        assert ("SuccessfulDelete", "delete Pod db-2 in StatefulSet db successful") in (
            await here.events()
        )
        assert await here.names(CLAIMS) == ["data-db-0", "data-db-1", "data-db-2"], "kept"


@virtual_time
async def test_a_rollout_and_the_way_back() -> None:
    async with a_cluster() as here:
        await here.make(a_set())
        first = (await here.settled())["updateRevision"]
        before = await here.uids()
        here.broken = {"a:2"}
        await here.roll("a:2")
        await here.until(lambda one: lookup(one, "status", "updatedReplicas") == 1)
        await here.quiet()
        assert await here.images() == {"db-0": "a:1", "db-1": "a:1", "db-2": "a:2"}
        status = await here.status()
        assert (status["currentRevision"], status["currentReplicas"]) == (first, 2)
        assert status["updateRevision"] != first

        # A broken revision blocks, even when the template is good again: a person deletes the pod.
        await here.roll("a:1")
        await here.quiet()
        assert (await here.images())["db-2"] == "a:2"
        await here.drop(f"{PODS}/db-2")
        status = await here.settled()
        assert status["currentRevision"] == status["updateRevision"] == first
        after = await here.uids()
        assert [name for name in before if before[name] == after[name]] == ["db-0", "db-1"]
        numbers = {name_of(one): one["revision"] for one in await here.items(REVISIONS)}
        assert sorted(numbers.values()) == [2, 3]
        assert numbers[first] == 3, "the old revision, with a higher number"


@virtual_time
async def test_old_revisions_go() -> None:
    async with a_cluster() as here:
        await here.make(a_set(1, revisionHistoryLimit=1))
        for image in ("a:2", "a:3", "a:4"):
            await here.settled(1)
            await here.roll(image)
        await here.settled(1)
        await here.until(lambda one: len(one["items"]) == 2, REVISIONS)
        kept = [one["data"]["spec"]["template"]["spec"] for one in await here.items(REVISIONS)]
        assert sorted(one["containers"][0]["image"] for one in kept) == ["a:3", "a:4"]


@virtual_time
async def test_pods_that_are_labelled_with_the_new_revision_are_not_rolled_out() -> None:
    """What controllers/in_place relies on (docs/adr/0093)."""
    async with a_cluster() as here:
        await here.make(a_set())
        await here.settled()
        before = await here.uids()
        hold = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
        await here.roll("a:2", updateStrategy=hold)
        held = await here.until(
            lambda one: one["status"]["updateRevision"] != one["status"]["currentRevision"]
        )
        await here.quiet()
        label = {"metadata": {"labels": {LABEL: held["status"]["updateRevision"]}}}
        for name in ("db-2", "db-1"):
            assert (await here.rig.patch(f"{PODS}/{name}", label)).status == 200
        await here.until(lambda one: one["status"].get("updatedReplicas") == 2)
        assert await here.uids() == before
        await here.change(updateStrategy={"rollingUpdate": {"partition": 0}})
        status = await here.settled()
        assert status["currentRevision"] == held["status"]["updateRevision"]
        after = await here.uids()
        assert [name for name in before if before[name] != after[name]] == ["db-0"], "this alone"


@virtual_time
async def test_parallel_pods_of_unknown_revisions_are_counted_from_zero() -> None:
    async with a_cluster() as here:
        await here.make(a_set(podManagementPolicy="Parallel"))
        await here.settled()
        for name in ("db-0", "db-1", "db-2"):
            label = {"metadata": {"labels": {LABEL: "db-other"}}}
            assert (await here.rig.patch(f"{PODS}/{name}", label)).status == 200
        await here.settled()
        assert [len(uids) for uids in here.seen.values()] == [2, 2, 2]


@virtual_time
async def test_a_pod_that_has_failed_or_was_evicted_is_made_anew() -> None:
    async with a_cluster() as here:
        await here.make(a_set(2))
        await here.settled(2)
        before = await here.uids()
        await here.say("db-0", "Failed", ready=False)
        await here.until(lambda one: one["status"].get("readyReplicas", 0) < 2)
        await here.settled(2)
        failed = "StatefulSet default/db is recreating failed Pod db-0"
        assert ("RecreatingFailedPod", failed) in await here.events()
        assert (await here.rig.request("POST", f"{PODS}/db-1/eviction", {})).status == 201
        await here.quiet()
        await here.settled(2)
        assert not set(before.values()) & set((await here.uids()).values())


@virtual_time
async def test_what_is_orphaned_is_adopted_by_the_next_set_of_that_name() -> None:
    async with a_cluster() as here:
        await here.make(a_set())
        first = await here.settled()
        before = await here.uids()
        await here.drop(DB, propagationPolicy="Orphan")
        await here.until(lambda one: not one)
        await here.quiet()
        assert await here.uids() == before
        assert not any(pod["metadata"].get("ownerReferences") for pod in await here.pods())
        again = await here.make(a_set())
        status = await here.settled()
        assert (await here.uids(), status["updateRevision"]) == (before, first["updateRevision"])
        owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in await here.pods()}
        assert owners == {uid_of(again)}
        # One that its selector does not match any more is let go, and another takes its name.
        assert (
            await here.rig.patch(f"{PODS}/db-1", {"metadata": {"labels": {"app": "x"}}})
        ).status == 200
        await here.quiet()
        freed = await here.get(f"{PODS}/db-1")
        assert not freed["metadata"].get("ownerReferences")
        await here.drop(f"{PODS}/db-1")
        await here.settled()


@virtual_time
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_set_that_is_deleted_takes_its_pods_along(propagation: str) -> None:
    async with a_cluster() as here:
        await here.make(a_set(2, claims=["data"]))
        await here.settled(2)
        here.stays = {"db-0"}
        await here.drop(DB, propagationPolicy=propagation)
        await here.quiet()
        assert bool(await here.get(DB)) == (propagation == "Foreground")
        assert await here.names(PODS) == ["db-0"]
        here.stays = set()
        await here.until(lambda one: not one)
        await here.until(lambda one: not one["items"], PODS)
        await here.until(lambda one: not one["items"], REVISIONS)
        assert await here.names(CLAIMS) == ["data-db-0", "data-db-1"]


@virtual_time
async def test_claims_that_are_to_go_go_with_pod_or_set() -> None:
    async with a_cluster() as here:
        policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
        await here.make(a_set(2, claims=["data"], persistentVolumeClaimRetentionPolicy=policy))
        await here.settled(2)
        before = {name_of(one): uid_of(one) for one in await here.items(CLAIMS)}
        here.stays = {"db-1"}
        await here.change(replicas=1)
        await here.quiet()
        assert await here.names(CLAIMS) == ["data-db-0", "data-db-1"], "its pod is still there"
        await here.change(replicas=2)
        here.stays = set()
        await here.quiet()
        await here.settled(2)
        after = {name_of(one): uid_of(one) for one in await here.items(CLAIMS)}
        assert [name for name in before if before[name] != after[name]] == ["data-db-1"]
        await here.drop(DB)
        await here.until(lambda one: not one["items"], CLAIMS)


@virtual_time
async def test_a_pod_that_is_refused_is_told_and_tried_again() -> None:
    async with a_cluster() as here:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        path = f"/api/v1/{SPACE}/resourcequotas"
        await here.make(quota, path)
        await here.make(a_set(2, podManagementPolicy="Parallel"))
        await here.until(lambda one: lookup(one, "status", "readyReplicas") == 1)
        await here.quiet()
        (said,) = [message for reason, message in await here.events() if reason == "FailedCreate"]
        assert said.startswith("create Pod db-1 in StatefulSet db failed error: ")
        assert "exceeded quota: q" in said
        await here.drop(f"{path}/q")
        await here.settled(2)


@virtual_time
async def test_a_pod_of_another_that_has_the_name_is_left_alone() -> None:
    async with a_cluster() as here:
        strange = await here.rig.add_pod("db-0")
        assert strange["metadata"]["labels"] == {"app": "db-0"}
        await here.make(a_set(1))
        await here.quiet(30)
        assert await here.uids() == {"db-0": uid_of(strange)}
        assert "replicas" in await here.status()
        await here.drop(f"{PODS}/db-0")
        await here.settled(1)


@virtual_time
async def test_pods_are_available_when_they_were_ready_long_enough() -> None:
    async with a_cluster() as here:
        await here.make(a_set(2, minReadySeconds=20))
        await here.until(lambda one: lookup(one, "status", "readyReplicas") == 1)
        began = CLOCK.monotonic()
        await here.until(lambda one: lookup(one, "status", "availableReplicas") == 1)
        assert 18 < CLOCK.monotonic() - began < 22
        await here.settled(2)
        await here.until(lambda one: one["status"]["availableReplicas"] == 2)
        assert 38 < CLOCK.monotonic() - began < 44


@virtual_time
@pytest.mark.parametrize("same", [False, True])
async def test_a_revision_whose_name_is_taken_gets_another(same: bool) -> None:
    """Even one that says the same is another's, and may go with that one."""
    async with a_cluster(controlled=False) as here:
        made = await here.make(a_set(1))
        taken = make_revision(made, 1, 0)
        taken["metadata"] = {"name": name_of(taken), "labels": {"app": "other"}}
        await here.make(taken if same else {**taken, "data": {"x": "y"}}, REVISIONS)
        here.control()
        status = await here.settled(1)
        assert status["collisionCount"] == 1
        assert status["updateRevision"] != name_of(taken)


async def _course(here: Cluster) -> None:
    """Two pods with claims, a rollout of one of them, one pod less."""
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    await here.make(a_set(2, claims=["data"], persistentVolumeClaimRetentionPolicy=policy))
    await here.settled(2)
    await here.roll("a:2", updateStrategy={"rollingUpdate": {"partition": 1}})
    await here.until(lambda one: lookup(one, "status", "updatedReplicas") == 1)
    await here.until(lambda one: lookup(one, "status", "readyReplicas") == 2)
    await here.change(replicas=1)
    await here.until(lambda one: lookup(one, "status", "replicas") == 1)


@virtual_time
async def test_a_controller_that_is_killed_at_any_write_is_followed_by_one_that_goes_on() -> None:
    for last in range(1, 99):
        async with a_cluster(controlled=False) as here:
            dying = DyingClient(here.rig, last)
            first = here.control(dying)
            course = asyncio.create_task(_course(here))
            killed = asyncio.create_task(dying.dead.wait())
            await asyncio.wait([course, killed], return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if dying.dead.is_set():
                first.cancel()
                here.control()
            await course
            await here.until(lambda one: len(one["items"]) == 1, CLAIMS)
            assert {name: len(uids) for name, uids in here.seen.items()} == {"db-0": 1, "db-1": 2}
            assert len(await here.names(REVISIONS)) == 2
            assert await here.images() == {"db-0": "a:1"}
            if not dying.dead.is_set():
                break
    assert last > 15, "there are that many writes to die at"
