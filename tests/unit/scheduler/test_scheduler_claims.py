"""Where pods may go whose claims have volumes, or will have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object, evolve
from livesize.api.resources import Amounts
from livesize.scheduler.plan import AssignedNode, NodeView, Unschedulable, WaitingPod, plan_turn
from livesize.scheduler.storage import StorageIndex
from unit.controllers.storage_objects import claim, on_node, storage_class, volume
from unit.scheduler.test_scheduler_loop import Server, node, pod, scheduling, settle
from virtual_time import virtual_time

ROOM = Amounts(4000, 1 << 30)
NOTHING = Amounts(0, 0)
N = [NodeView(name, ROOM, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
BY_HAND = storage_class("hand", provisioner="kubernetes.io/no-provisioner")
AT_ONCE = storage_class("now", provisioner="example.com/x", volumeBindingMode="Immediate")
REFERENCE = {"namespace": "default", "name": "data", "uid": "uid-data"}


def book(*stored: tuple[Resource, Object]) -> StorageIndex:
    made = StorageIndex()
    for resource, obj in (*stored, *((STORAGE_CLASSES, one) for one in CLASSES)):
        made.set(resource, obj)
    return made


CLASSES = (storage_class(), BY_HAND, AT_ONCE)


def view(name: str, of: StorageIndex, *claims: str, users: Any = None) -> WaitingPod:
    demands = of.demands("default", claims, users or {})
    return WaitingPod("default", name, f"uid-{name}", NOTHING, claims=claims, demands=demands)


def claims(*objects: Object) -> list[tuple[Resource, Object]]:
    return [(PERSISTENT_VOLUME_CLAIMS, one) for one in objects]


def volumes(*objects: Object) -> list[tuple[Resource, Object]]:
    return [(PERSISTENT_VOLUMES, one) for one in objects]


def there(name: str, where: str, **spec: Any) -> Object:
    return volume(name, class_name="hand", nodeAffinity=on_node(where), **spec)


def places(*pods: WaitingPod) -> dict[str, str]:
    """Where each pod goes, or why nowhere."""
    placed = {}
    for one in plan_turn(pods, N):
        match one.verdict:
            case AssignedNode(node=name):
                placed[one.pod.name] = name
            case Unschedulable():
                placed[one.pod.name] = one.verdict.sentence()
    return placed


BOUND = claim(volumeName="disk")
HELD = volume("disk", nodeAffinity=on_node("n2"), claimRef=REFERENCE)


@pytest.mark.parametrize(
    ("stored", "users", "says"),
    [
        (claims(claim()), {}, "n1"),
        (claims(claim()), {"x": "n2"}, "n2"),
        ([*claims(BOUND), *volumes(HELD)], {}, "n2"),
        ([*claims(claim()), *volumes(HELD)], {}, "n2"),
        ([], {}, '0/2 nodes are available: persistentvolumeclaim "data" not found.'),
        (
            claims(evolve(claim(), ("metadata", "deletionTimestamp"), "now")),
            {},
            '0/2 nodes are available: persistentvolumeclaim "data" is being deleted.',
        ),
        (claims(BOUND), {}, 'persistentvolume "disk" not found'),
        (claims(claim(class_name="now")), {}, "is not bound to a volume yet"),
        (claims(claim(class_name="nowhere")), {}, "is not bound to a volume yet"),
        (
            claims(claim(class_name="hand")),
            {},
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
        ),
        ([*claims(claim(class_name="hand")), *volumes(there("disk", "n2"))], {}, "n2"),
        (
            [*claims(BOUND), *volumes(volume("disk", nodeAffinity=on_node("n9")))],
            {},
            "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
        ),
        (claims(claim(accessModes=["ReadWriteOncePod"])), {"x": "n1"}, "is for one pod"),
    ],
)
def test_where_a_pod_with_a_claim_goes(
    stored: list[tuple[Resource, Object]], users: dict[str, str], says: str
) -> None:
    waiting = view("p", book(*stored), "data", users={("default", "data"): users} if users else {})
    assert says in places(waiting)["p"]


def test_who_comes_first_in_a_turn_decides_for_the_others() -> None:
    of = book(*claims(claim(), claim("alone", accessModes=["ReadWriteOncePod"])))
    placed = places(*(view(name, of, "data") for name in "abc"))
    assert len(set(placed.values())) == 1
    first, second = places(view("a", of, "alone"), view("b", of, "alone")).values()
    assert first in ("n1", "n2")
    assert "is for one pod" in second


def test_a_volume_is_counted_on_by_one_claim_only() -> None:
    hand = [claim(name, class_name="hand") for name in ("a", "b", "c")]
    of = book(*claims(*hand), *volumes(there("v1", "n1"), there("v2", "n2")))
    placed = places(view("pa", of, "a"), view("pb", of, "b"), view("pc", of, "c"))
    assert {placed["pa"], placed["pb"]} == {"n1", "n2"}
    assert "didn't find available persistent volumes" in placed["pc"]
    assert "didn't find" in places(view("two", of, "a", "b"))["two"], "each is on another node"
    of.reserve(("default", "a"), "v1")
    assert places(view("pb", of, "b"))["pb"] == "n2"
    of.drop(PERSISTENT_VOLUME_CLAIMS, hand[0])
    of.drop(PERSISTENT_VOLUMES, there("v2", "n2"))
    assert places(view("pb", of, "b"))["pb"] == "n1", "nobody counts on it any more"


WANTS = st.lists(st.sets(st.sampled_from("abcd"), min_size=1, max_size=2), min_size=1, max_size=6)
KINDS = st.lists(st.sampled_from(["local", "hand"]), min_size=4, max_size=4)
WHERE = st.lists(st.sampled_from(["n1", "n2"]), max_size=4)


@given(WANTS, KINDS, WHERE)
@settings(max_examples=60, deadline=None)
def test_in_one_turn_a_claim_has_one_node_and_a_volume_one_claim(
    wants: list[set[str]], kinds: list[str], where: list[str]
) -> None:
    asked = [claim(name, class_name=kind) for name, kind in zip("abcd", kinds, strict=True)]
    disks = {f"v{number}": there(f"v{number}", node) for number, node in enumerate(where)}
    of = book(*claims(*asked), *volumes(*disks.values()))
    nodes: dict[str, str] = {}
    taken: dict[str, Any] = {}
    pods = [view(f"p{number}", of, *sorted(want)) for number, want in enumerate(wants)]
    for placement in plan_turn(pods, N):
        if not isinstance(placement.verdict, AssignedNode):
            continue
        for name in placement.pod.claims:
            assert nodes.setdefault(name, placement.verdict.node) == placement.verdict.node
        for key, disk in placement.verdict.volumes:
            assert taken.setdefault(disk, key) == key
            assert disks[disk]["spec"]["nodeAffinity"] == on_node(placement.verdict.node)


@virtual_time
async def test_a_pod_waits_for_its_claim_and_goes_to_its_volume() -> None:
    server = Server()
    for name in ("n1", "n2"):
        labels = {"kubernetes.io/hostname": name}
        await server.put(NODES, evolve(node(name), ("metadata", "labels"), labels))
    await server.put(STORAGE_CLASSES, storage_class())
    asks = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await server.put(PODS, pod("p", volumes=asks))
    async with scheduling(server):
        assert server.message_of("p") == (
            '0/2 nodes are available: persistentvolumeclaim "data" not found.'
        )
        await server.put(PERSISTENT_VOLUMES, HELD)
        await settle()
        assert server.node_of("p") == ""
        await server.put(PERSISTENT_VOLUME_CLAIMS, BOUND)
        await settle()
        assert server.node_of("p") == "n2"
