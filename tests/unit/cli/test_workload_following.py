"""Following a workload's resize on the real API service: which pods count, when it ends, and what
is noted on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, evolve, name_of, uid_of
from livesize.api.patch import PatchType
from livesize.apiserver.direct_client import DirectClient
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.workload_follower import WorkloadFollower, own_pods, read_pods
from livesize.cli.resize.workload_plan import WorkloadPatch
from livesize.cli.resize.workload_progress import PodProgress, WorkloadProgress
from livesize.machinery.context import system_context
from unit.apiserver.conftest import ADMIN, Rig
from unit.cli.workload_objects import pod, resources, stateful_set

PATCH = WorkloadPatch((ResizePatch("app", {"limits": {"cpu": "2"}}),))


@pytest.fixture
async def client() -> AsyncIterator[DirectClient]:
    rig = Rig()
    await rig.start()
    yield DirectClient(rig.service, ADMIN)
    await rig.check_nothing_was_changed_in_place()
    await rig.stop()


class Following:
    """A StatefulSet that asks for 2 CPUs, with pods that have 1."""

    def __init__(self, client: DirectClient) -> None:
        self.client = client
        self.told: list[str] = []
        self._told = asyncio.Event()

    async def begin(self) -> None:
        made = stateful_set("2")
        made["metadata"] = {"name": "db", "namespace": "default"}
        made["spec"]["template"]["spec"]["containers"][0]["image"] = "img:1"
        self.workload = await self.client.create(STATEFUL_SETS, made, "default")
        await self._patch_status(STATEFUL_SETS, "db", {"observedGeneration": 1})
        for name in ("db-0", "db-1"):
            await self.make(name, "1")
        pods = await read_pods(self.client, STATEFUL_SETS, self.workload)
        self.follower = WorkloadFollower(
            self.client, system_context(), STATEFUL_SETS, self.workload, pods, PATCH
        )
        self.running = asyncio.create_task(self.follower.run(self._tell))

    def _tell(self, progress: WorkloadProgress, one: PodProgress) -> None:
        self.told.append(f"{progress.done}/{progress.wanted} {name_of(one.pod)}")
        self._told.set()

    async def make(self, name: str, cpu: str) -> None:
        made = pod(name, cpu)
        owner = evolve(made["metadata"]["ownerReferences"][0], ("uid",), uid_of(self.workload))
        owner["apiVersion"] = "apps/v1"
        metadata = {"name": name, "labels": {"app": "db"}, "ownerReferences": [owner]}
        container = {"name": "app", "image": "img:1", "resources": resources(cpu)}
        spec = {"nodeName": "n1", "containers": [container]}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
        await self.client.create(PODS, body, "default")
        (seen,) = made["status"]["containerStatuses"]
        del seen["allocatedResources"]  # the server derives it
        status = {"phase": "Running", "observedGeneration": 1, "containerStatuses": [seen]}
        await self._patch_status(PODS, name, status)

    async def recreate(self, name: str) -> None:
        await self.client.delete(PODS, name, "default", grace_period_seconds=0)
        await self.make(name, "2")

    async def until_told(self, line: str) -> None:
        async with asyncio.timeout(5):
            while line not in self.told:
                self._told.clear()
                await self._told.wait()

    async def end(self) -> None:
        async with asyncio.timeout(5):
            await self.running

    async def _patch_status(self, kind: Resource, name: str, status: Object) -> None:
        await self.client.patch(
            *(kind, name, {"status": status}), namespace="default", subresource="status"
        )


@pytest.fixture
async def following(client: DirectClient) -> AsyncIterator[Following]:
    made = Following(client)
    await made.begin()
    yield made
    made.running.cancel()
    await asyncio.wait([made.running])


async def test_pods_that_are_made_anew_are_followed_until_the_last_has_its_size(
    following: Following,
) -> None:
    await following.recreate("db-1")
    await following.until_told("1/2 db-1")
    assert not following.running.done()
    await following.recreate("db-0")
    await following.end()
    follower = following.follower
    assert (follower.progress.is_done, following.told[-1]) == (True, "2/2 db-0")
    assert all(follower.begun[name] <= follower.ended[name] for name in ("db-0", "db-1"))


@pytest.mark.parametrize("propagation", ["Background", "Orphan"])
async def test_a_workload_that_is_deleted_ends_it(following: Following, propagation: str) -> None:
    """Also before its finalizers let it go."""
    await following.client.delete(STATEFUL_SETS, "db", "default", propagation=propagation)
    with pytest.raises(StatusError, match="db was deleted before its pods were resized"):
        await following.end()


async def test_a_workload_that_asks_for_another_size_ends_it(following: Following) -> None:
    container = {"name": "app", "resources": resources("3")}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await following.client.patch(
        *(STATEFUL_SETS, "db", patch), namespace="default", patch_type=PatchType.STRATEGIC
    )
    await following.end()
    assert "somebody else asked" in following.follower.progress.overtaken


def owned_by(uid: str, name: str) -> Object:
    return {"metadata": {"name": name, "uid": name, "ownerReferences": [
        {"uid": "nobody"}, {"uid": uid, "controller": True}
    ]}}  # fmt: skip


def test_only_what_the_workload_controls_is_its_own() -> None:
    """Two Deployments may select the same labels, a canary for instance."""
    replica_sets = [owned_by("w1", "web-1"), owned_by("canary", "canary-1")]
    pods = [owned_by("web-1", "a"), owned_by("canary-1", "b"), owned_by("w1", "c")]
    pods.append({"metadata": {"name": "d", "uid": "d"}})
    own = own_pods(stateful_set(), replica_sets, pods)
    assert [name_of(one) for one in own] == ["a", "c"]
