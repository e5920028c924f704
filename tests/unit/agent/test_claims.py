"""Claims of pods on a node: waited for, given, refused; and what becomes of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.agent.volumes.claims import claimed_volume
from livesize.agent.volumes.plan import (
    KeepVolume,
    Refuse,
    ReleaseVolume,
    RemoveFolder,
    plan_reclaim,
)
from livesize.agent.volumes.sources import ContainerConfigError, Sources
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.storage import FOLDER_FINALIZER, FOLDERS_AT, VOLUME_PROTECTION
from livesize.api.volume_choice import NodeFacts
from livesize.controllers.claims.provision import ConsumerNode, build_volume
from livesize.runtime.volumes.interface import ClaimFolder, HostPath
from unit.agent.world import NODE, CrashAt, World, container
from unit.controllers.storage_objects import claim, on_node, storage_class, volume
from virtual_time import virtual_time

pytestmark = virtual_time

LABELS = {"kubernetes.io/hostname": NODE}
KEPT = "/var/claims"
PLACE = ConsumerNode(NodeFacts(NODE, LABELS), KEPT)
GOING = ("metadata", "deletionTimestamp")
OURS = build_volume(claim(), storage_class(), PLACE)
POD: Object = {
    "metadata": {"name": "db", "namespace": "default", "creationTimestamp": "2026-02-02"},
    "spec": {"nodeName": NODE, "securityContext": {"fsGroup": 7}},
}
BOUND = {"phase": "Bound"}
NAMED: Object = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


def bound(to: Object) -> Object:
    one = evolve(claim(), ("spec", "volumeName"), to["metadata"]["name"])
    return evolve(one, ("status",), BOUND)


def kept_for_data(**spec: Any) -> Object:
    reference = {"namespace": "default", "name": "data", "uid": "uid-data"}
    return volume("disk", claimRef=reference, **spec)


def sources(asking: Object | None, disk: Object | None = None) -> Sources:
    found: dict[tuple[str, str], Object] = {
        ("nodes", NODE): {"metadata": {"name": NODE, "labels": LABELS}}
    }
    if asking is not None:
        found["persistentvolumeclaims", "data"] = asking
    if disk is not None:
        found["persistentvolumes", disk["metadata"]["name"]] = disk
    return found


def test_what_a_claim_stands_for() -> None:
    found = claimed_volume(NAMED, POD, sources(bound(OURS), OURS), KEPT)
    assert found == ClaimFolder("v", "pvc-uid-data", 7)
    disk = kept_for_data(nodeAffinity=on_node(NODE))
    assert claimed_volume(NAMED, POD, sources(bound(disk), disk), KEPT) == HostPath(
        "v", "/srv/disk"
    )
    going = evolve(bound(disk), GOING, "2026-02-03")
    assert claimed_volume(NAMED, POD, sources(going, disk), KEPT), "it was there before"
    local = evolve(disk, ("spec", "local"), {"path": "/mnt/disk"})
    found = claimed_volume(NAMED, POD, sources(bound(local), local), KEPT)
    assert found == HostPath("v", "/mnt/disk", "Directory")


DISK = kept_for_data()


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (sources(None), 'persistentvolumeclaim "data" not found: make it'),
        (sources(claim()), "is Pending, not bound to a volume yet"),
        (sources(evolve(bound(DISK), GOING, "2026-02-01"), DISK), "is being deleted"),
        (sources(bound(DISK)), "volume disk is gone"),
        (sources(bound(DISK), volume("disk")), "volume disk is gone"),
        (
            sources(bound(DISK), kept_for_data(nodeAffinity=on_node("n9"))),
            "volume disk is on another node than node-1",
        ),
        (sources(bound(DISK), kept_for_data(volumeMode="Block")), "no volumeMode Block"),
        (
            sources(bound(OURS), evolve(OURS, ("spec", "local", "path"), "/etc")),
            "lies at /etc, and this node has /var/claims",
        ),
    ],
)
def test_what_a_pod_waits_for_is_said(found: Sources, says: str) -> None:
    with pytest.raises(ContainerConfigError, match=says):
        claimed_volume(NAMED, POD, found, KEPT)


def leaving(**changes: Any) -> Object:
    one = evolve(OURS, GOING, "now")
    for path, value in changes.items():
        one = evolve(one, tuple(path.split("__")), value)
    return one


@pytest.mark.parametrize(
    ("disk", "plan"),
    [
        (OURS, KeepVolume),
        (leaving(), RemoveFolder),
        (leaving(metadata__finalizers=[FOLDER_FINALIZER, VOLUME_PROTECTION]), KeepVolume),
        (leaving(metadata__finalizers=[]), KeepVolume),
        (leaving(metadata__labels={"livesize.dev/node": "another"}), KeepVolume),
        (leaving(spec__persistentVolumeReclaimPolicy="Retain"), ReleaseVolume),
        (leaving(spec__local={"path": "/etc"}), Refuse),
        (leaving(spec__local={"path": "/var/claims/../claims/pvc-uid-data"}), Refuse),
        (leaving(metadata__annotations={}), Refuse),
        (leaving(metadata__name="pvc-other"), Refuse),
    ],
)
def test_what_becomes_of_a_folder(disk: Object, plan: type) -> None:
    assert isinstance(plan_reclaim(disk, NODE, KEPT), plan)


@given(
    path=st.one_of(
        st.just(f"{KEPT}/pvc-uid-data"),
        st.text(max_size=20),
        st.text(max_size=9).map(f"{KEPT}/{{}}".format),
    ),
    policy=st.sampled_from(["Delete", "Retain", ""]),
    finalizers=st.lists(st.sampled_from([FOLDER_FINALIZER, VOLUME_PROTECTION, "x"]), max_size=3),
    is_leaving=st.booleans(),
    node=st.sampled_from([NODE, "another"]),
)
@settings(max_examples=40, deadline=None)
def test_only_a_folder_of_ours_that_nobody_holds_is_removed(
    path: str, policy: str, finalizers: list[str], is_leaving: bool, node: str
) -> None:
    changed = {
        "spec__local": {"path": path},
        "spec__persistentVolumeReclaimPolicy": policy,
        "metadata__finalizers": finalizers,
        "metadata__labels": {"livesize.dev/node": node},
    }
    disk = leaving(**changed)
    if not is_leaving:
        disk = without(disk, GOING)
    if isinstance(plan_reclaim(disk, NODE, KEPT), RemoveFolder):
        assert (path, policy, node) == (f"{KEPT}/pvc-uid-data", "Delete", NODE)
        assert is_leaving
        assert FOLDER_FINALIZER in finalizers
        assert VOLUME_PROTECTION not in finalizers


def mounting(**more: Any) -> Object:
    mount = {"name": "v", "mountPath": "/data"}
    return {**container("app"), "volumeMounts": [mount], **more}


async def give(world: World, disk: Object) -> None:
    """What the controller does, as far as the node sees it."""
    await world.api.create(PERSISTENT_VOLUMES, disk)
    named, is_bound = {"spec": {"volumeName": disk["metadata"]["name"]}}, {"status": BOUND}
    for subresource, patch in (("", named), ("status", is_bound)):
        await world.api.patch(
            PERSISTENT_VOLUME_CLAIMS, "data", patch, namespace="default", subresource=subresource
        )


async def delete(world: World, disk: str) -> None:
    """By a user; and what the controller does then."""
    await world.api.delete(PERSISTENT_VOLUMES, disk)
    unprotected = {"metadata": {"finalizers": [FOLDER_FINALIZER]}}
    await world.api.patch(PERSISTENT_VOLUMES, disk, unprotected)


async def provision(world: World, path: Path | None = None) -> Path:
    """Make the claim, and its volume as soon as there is a node that says where, unless it is at
    ``path``."""
    asking = await world.api.create(PERSISTENT_VOLUME_CLAIMS, claim(), "default")
    await world.until(lambda: ("nodes", "", NODE) in world.api.objects, "the node is there")
    folders = lookup(world.api.node(), "metadata", "annotations", FOLDERS_AT)
    place = ConsumerNode(NodeFacts(NODE, LABELS), folders)
    disk = build_volume(asking, storage_class(), place)
    if path is not None:
        disk = evolve(disk, ("spec", "local", "path"), str(path))
    await give(world, disk)
    return Path(folders) / disk["metadata"]["name"]


async def test_a_pod_waits_for_its_claim_and_its_files_outlive_it(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", mounting(), volumes=[NAMED])

    def message() -> str:
        statuses = lookup(world.api.pod("db"), "status", "containerStatuses", default=[{}])
        return str(lookup(statuses[0], "state", "waiting", "message", default=""))

    await world.until(lambda: "not found: make it" in message(), "it says what is missing")
    await world.until(lambda: "Failed" in world.api.event_reasons("db"), "an event says so")
    path = await provision(world)
    uid = await world.running("db")
    (path / "file").write_text("kept")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "the pod is gone")
    assert uid not in world.machine.pods
    assert (path / "file").read_text() == "kept"
    await world.stop()
    await world.start()
    await world.api.run_pod("db", mounting(), volumes=[NAMED])
    await world.running("db")
    assert (path / "file").read_text() == "kept"


async def test_a_claim_that_is_bound_a_moment_later_costs_no_failure(world: World) -> None:
    world.settings = type(world.settings)(node_name=NODE, object_wait_seconds=2.0)
    await world.start()
    await world.api.create(PERSISTENT_VOLUME_CLAIMS, claim(), "default")
    await world.api.run_pod("db", mounting(), volumes=[NAMED])
    await world.until(lambda: PERSISTENT_VOLUME_CLAIMS in world.client.watched, "it waits")
    folders = lookup(world.api.node(), "metadata", "annotations", FOLDERS_AT)
    asking = world.api.objects["persistentvolumeclaims", "default", "data"]
    disk = build_volume(asking, storage_class(), ConsumerNode(NodeFacts(NODE, LABELS), folders))
    await give(world, disk)
    await world.running("db")
    assert "Failed" not in world.api.event_reasons("db")


@pytest.mark.parametrize("point", ["", "reclaim/remove/before", "reclaim/remove/after",
                                   "reclaim/let-go/before", "reclaim/let-go/after"])  # fmt: skip
async def test_a_folder_goes_with_its_volume_whatever_happens(world: World, point: str) -> None:
    points = CrashAt(point)
    await world.start(points)
    path = await provision(world)
    await world.api.run_pod("db", mounting(), volumes=[NAMED])
    await world.running("db")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "the pod is gone")
    await delete(world, path.name)
    if point:
        await world.crashed()
        await world.start()
    key = ("persistentvolumes", "", path.name)
    await world.until(lambda: key not in world.api.objects, "the node lets go")
    assert not path.exists()
    assert path.parent.exists()


async def test_a_folder_elsewhere_is_never_touched(world: World, tmp_path: Path) -> None:
    foreign = tmp_path / "outside"
    foreign.mkdir()
    await world.start()
    path = await provision(world, foreign)
    await delete(world, path.name)
    key = ("persistentvolumes", "", path.name)
    reason = "VolumeFailedDelete"
    await world.until(lambda: reason in world.api.event_reasons(path.name), "it says why not")
    assert foreign.exists()
    assert FOLDER_FINALIZER in world.api.objects[key]["metadata"]["finalizers"]
