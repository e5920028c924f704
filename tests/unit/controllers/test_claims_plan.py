"""Which writes follow from what is stored, for claims and for volumes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.objects import Object, evolve, lookup, name_of, uid_of
from livesize.api.storage import (
    BIND_COMPLETED,
    FOLDER_FINALIZER,
    NODE_LABEL,
    PROVISIONED_BY,
    VOLUME_PROTECTION,
    is_bound_to,
    is_going,
    volume_name,
)
from livesize.api.validation.objects import validate_create
from livesize.api.volume_choice import NodeFacts
from livesize.controllers.claims.plan import (
    ClaimStep,
    ClaimView,
    CreateObject,
    DeleteObject,
    TellEvent,
    UpdateObject,
    plan_claim,
    plan_volume,
)
from livesize.controllers.claims.provision import ConsumerNode
from unit.controllers.storage_objects import claim, on_node, storage_class, volume

HERE = ConsumerNode(NodeFacts("n1", {"kubernetes.io/hostname": "n1"}), "/var/claims")
ELSEWHERE = ConsumerNode(NodeFacts("n2", {"kubernetes.io/hostname": "n2"}), "/var/claims")
DELETED = ("metadata", "deletionTimestamp")


def bound(of: Object, to: Object) -> tuple[Object, Object]:
    reserve, name = plan_claim(ClaimView(of, (to,), None, HERE))
    assert isinstance(reserve, UpdateObject)
    assert isinstance(name, UpdateObject)
    return name.obj, reserve.obj


def told(steps: tuple[ClaimStep, ...]) -> str:
    (step,) = steps
    assert isinstance(step, TellEvent)
    return step.reason.value


def chosen(steps: tuple[ClaimStep, ...]) -> str:
    last = steps[-1]
    assert isinstance(last, UpdateObject)
    return volume_name(last.obj)


LOCAL, STATIC = storage_class(), storage_class("local", provisioner="kubernetes.io/no-provisioner")
NAMED = claim(volumeName="disk")
TAKEN = volume(claimRef={"namespace": "default", "name": "other", "uid": "x"})


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (ClaimView(claim(), (), LOCAL), "WaitForFirstConsumer"),
        (ClaimView(claim(), (volume(),), LOCAL), "WaitForFirstConsumer"),
        (ClaimView(claim(), (), None), "ProvisioningFailed"),
        (ClaimView(claim(class_name=""), (volume(),), None), "FailedBinding"),
        (ClaimView(claim(), (), STATIC, HERE), "ExternalProvisioning"),
        (ClaimView(claim(), (volume(size="1Mi"),), STATIC, HERE), "ExternalProvisioning"),
        (ClaimView(claim(), (), LOCAL, ConsumerNode(NodeFacts("old"))), "ProvisioningFailed"),
        (ClaimView(claim(volumeMode="Block"), (), LOCAL, HERE), "ProvisioningFailed"),
        (ClaimView(NAMED, (), LOCAL), "FailedBinding"),
        (ClaimView(NAMED, (TAKEN,), LOCAL), "FailedBinding"),
        (ClaimView(NAMED, (volume(size="1Mi"),), LOCAL), "VolumeMismatch"),
        (ClaimView(NAMED, (volume(class_name="other"),), LOCAL), "VolumeMismatch"),
    ],
)
def test_what_keeps_a_claim_waiting_is_told(view: ClaimView, reason: str) -> None:
    assert told(plan_claim(view)) == reason


def selecting(**labels: str) -> Object:
    return claim(selector={"matchLabels": labels})


def labelled(one: Object, **labels: str) -> Object:
    return evolve(one, ("metadata", "labels"), labels)


KEPT = volume("kept", "9Gi", claimRef={"namespace": "default", "name": "data"})
FAST, SLOW = labelled(volume("fast", "5Gi"), kind="fast"), volume("slow", "2Gi")


@pytest.mark.parametrize(
    ("asking", "volumes", "place", "name"),
    [
        (claim(), (volume("large", "9Gi"), volume("small", "2Gi")), HERE, "small"),
        (claim(), (volume("b"), volume("a")), HERE, "a"),
        (claim(), (KEPT, volume("small")), HERE, "kept"),
        (claim(), (KEPT,), None, "kept"),
        (claim(), (TAKEN, volume("free")), HERE, "free"),
        (claim(), (evolve(volume("going"), DELETED, "now"), volume("later")), HERE, "later"),
        (claim(), (volume("a", nodeAffinity=on_node("n2")), volume("b")), HERE, "b"),
        (claim(), (volume("a", nodeAffinity=on_node("n2")), volume("b")), ELSEWHERE, "a"),
        (selecting(kind="fast"), (FAST, SLOW), HERE, "fast"),
        (claim(accessModes=["ReadWriteMany"]),
         (volume("a"), volume("b", accessModes=["ReadWriteOnce", "ReadWriteMany"])), HERE, "b"),
        (NAMED, (volume("better"), volume("disk", "9Gi")), None, "disk"),
    ],
)  # fmt: skip
def test_the_smallest_volume_that_will_do_is_bound(
    asking: Object, volumes: tuple[Object, ...], place: ConsumerNode | None, name: str
) -> None:
    steps = plan_claim(ClaimView(asking, volumes, STATIC, place))
    assert chosen(steps) == name
    assert isinstance(steps[0], UpdateObject)
    assert steps[0].resource == PERSISTENT_VOLUMES, "the volume says whose it is first"
    assert steps[0].obj["spec"]["claimRef"]["uid"] == uid_of(asking)


def test_a_volume_is_made_where_the_first_pod_is() -> None:
    make, tell = plan_claim(ClaimView(claim(size="3Gi"), (), LOCAL, HERE))
    assert isinstance(tell, TellEvent)
    assert isinstance(make, CreateObject)
    made = make.obj
    assert made["metadata"]["name"] == "pvc-uid-data"
    assert made["metadata"]["labels"] == {NODE_LABEL: "n1"}
    assert FOLDER_FINALIZER in made["metadata"]["finalizers"]
    assert made["spec"]["local"]["path"] == "/var/claims/pvc-uid-data"
    assert made["spec"]["nodeAffinity"] == on_node("n1")
    assert made["spec"]["capacity"] == {"storage": "3Gi"}
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    filled = evolve({**made, "status": {}}, ("metadata", "uid"), "u")
    assert validate_create(PERSISTENT_VOLUMES, filled) == []
    # Its pod may have gone elsewhere meanwhile: it is the claim's all the same.
    assert chosen(plan_claim(ClaimView(claim(), (filled,), LOCAL, ELSEWHERE))) == "pvc-uid-data"


def test_bound_claims_say_what_they_have_and_grow() -> None:
    asking, disk = bound(claim(), volume(size="2Gi"))
    (status,) = plan_claim(ClaimView(asking, (disk,), LOCAL))
    assert isinstance(status, UpdateObject)
    assert status.subresource == "status"
    assert status.obj["status"]["capacity"] == {"storage": "2Gi"}
    assert plan_claim(ClaimView(status.obj, (disk,), LOCAL)) == ()
    more = evolve(status.obj, ("spec", "resources", "requests", "storage"), "5Gi")
    assert plan_claim(ClaimView(more, (disk,), LOCAL)) == (), "nobody can make this one larger"
    ours = evolve(disk, ("metadata", "annotations", PROVISIONED_BY), "livesize.dev/local")
    grow, then = plan_claim(ClaimView(more, (ours,), LOCAL))
    assert isinstance(grow, UpdateObject)
    assert isinstance(then, UpdateObject)
    assert grow.obj["spec"]["capacity"] == then.obj["status"]["capacity"] == {"storage": "5Gi"}


def test_a_claim_whose_volume_is_gone_is_lost() -> None:
    asking, _ = bound(claim(), volume())
    lost, tell = plan_claim(ClaimView(asking, (), LOCAL))
    assert isinstance(lost, UpdateObject)
    assert isinstance(tell, TellEvent)
    assert lost.obj["status"] == {"phase": "Lost"}
    assert plan_claim(ClaimView(lost.obj, (), LOCAL)) == ()


def test_a_claim_in_use_stays() -> None:
    going = evolve(claim(), DELETED, "now")
    assert plan_claim(ClaimView(going, (), LOCAL, HERE, in_use=True)) == ()
    (write,) = plan_claim(ClaimView(going, (), LOCAL))
    assert isinstance(write, UpdateObject)
    assert write.obj["metadata"]["finalizers"] == []


def phases(disk: Object, of: Object | None) -> list[Any]:
    """The phase that is written, or what is done beside that, until nothing is left to do."""
    seen: list[Any] = []
    while steps := plan_volume(disk, of):
        step = steps[0]
        match step:
            case UpdateObject(obj=obj, subresource="status"):
                seen.append(obj["status"]["phase"])
                disk = obj
            case UpdateObject(obj=obj):
                seen.append(obj["metadata"]["finalizers"])
                disk = obj
            case DeleteObject():
                seen.append("removed")
                disk = evolve(disk, DELETED, "now")
            case _:
                raise AssertionError(step)
    return seen


def test_what_becomes_of_volumes() -> None:
    asking, disk = bound(claim(), volume())
    ours = evolve(disk, ("metadata", "annotations", PROVISIONED_BY), "livesize.dev/local")
    delete = ("spec", "persistentVolumeReclaimPolicy")
    assert phases(volume(), None) == ["Available"]
    assert phases(KEPT, None) == ["Available"]
    assert phases(disk, asking) == ["Bound"]
    assert phases(disk, None) == ["Released"]
    assert phases(disk, evolve(asking, ("metadata", "uid"), "another")) == ["Released"]
    assert phases(evolve(disk, delete, "Delete"), None) == ["Failed"]
    assert phases(evolve(ours, delete, "Delete"), None) == ["Released", "removed", []]
    assert phases(evolve(ours, DELETED, "now"), asking) == ["Bound"], "a claim has it still"
    assert phases(evolve(ours, DELETED, "now"), None) == ["Released", []]
    assert phases(evolve(volume(), DELETED, "now"), None) == ["Available", []]
    assert plan_volume(disk, claim()) == (), "its claim is about to name it"


class Stored:
    """A store that keeps the promises of the real one as far as the plans rely on them."""

    def __init__(self) -> None:
        self.claims: dict[str, Object] = {}
        self.volumes: dict[str, Object] = {}
        self.pods: dict[str, ConsumerNode] = {}  # by claim

    def turn(self, name: str, done: int) -> bool:
        """One plan of a claim or a volume, cut off after so many steps; whether it had any."""
        if name in self.claims:
            place = self.pods.get(name)
            view = ClaimView(
                self.claims[name], tuple(self.volumes.values()), LOCAL, place, place is not None
            )
            steps = plan_claim(view)
        elif name in self.volumes:
            disk = self.volumes[name]
            steps = plan_volume(disk, self.claims.get(lookup(disk, "spec", "claimRef", "name")))
        else:
            return False
        writes = [step for step in steps if not isinstance(step, TellEvent)]
        for step in writes[:done]:
            self.apply(step)
            self.check()
        return bool(writes[:done])

    def apply(self, step: ClaimStep) -> None:
        match step:
            case UpdateObject(resource=resource, obj=obj):
                kept = self.claims if resource == PERSISTENT_VOLUME_CLAIMS else self.volumes
                kept[name_of(obj)] = obj
                self.sweep()
            case CreateObject(obj=obj):
                held = [*obj["metadata"]["finalizers"], VOLUME_PROTECTION]
                made = evolve(evolve(obj, ("metadata", "uid"), "u"), ("status",), {})
                self.volumes.setdefault(
                    name_of(obj), evolve(made, ("metadata", "finalizers"), held)
                )
            case DeleteObject(obj=removed):
                name = name_of(removed)
                owner = lookup(self.volumes[name], "spec", "claimRef", "name")
                uid = lookup(self.volumes[name], "spec", "claimRef", "uid")
                assert uid_of(self.claims.get(owner, {})) != uid, "never under a claim's feet"
                self.volumes[name] = evolve(self.volumes[name], DELETED, "now")
            case TellEvent():
                pass

    def sweep(self) -> None:
        for kept in (self.claims, self.volumes):
            for name, obj in list(kept.items()):
                if is_going(obj) and not lookup(obj, "metadata", "finalizers"):
                    del kept[name]

    def node(self, name: str) -> None:
        """What the node does: the folder goes when nothing else holds the volume."""
        disk = self.volumes.get(name, {})
        if is_going(disk) and lookup(disk, "metadata", "finalizers") == [FOLDER_FINALIZER]:
            del self.volumes[name]

    def check(self) -> None:
        owners = [volume_name(one) for one in self.claims.values() if volume_name(one)]
        assert len(owners) == len(set(owners)), "a volume is given once"
        for one in self.claims.values():
            if lookup(one, "metadata", "annotations", BIND_COMPLETED):
                assert is_bound_to(one, self.volumes.get(volume_name(one)))


NAMES = ("a", "b", "c")
OPERATIONS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from(NAMES), st.sampled_from(["1Gi", "4Gi"])),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.sampled_from([HERE, ELSEWHERE])),
    st.tuples(st.just("pod gone"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("turn"), st.integers(0, 9), st.integers(0, 2)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=30), st.integers(0, 3))
def test_cut_off_anywhere_no_volume_is_given_twice_and_none_is_left(
    operations: list[tuple[str, Any, Any]], disks: int
) -> None:
    stored, made = Stored(), 0
    for number in range(disks):
        stored.volumes[f"disk-{number}"] = volume(f"disk-{number}", f"{number + 1}Gi")
    for kind, name, detail in operations:
        match kind:
            case "claim" if name not in stored.claims:
                made += 1
                one = evolve(claim(name, detail), ("metadata", "uid"), f"uid-{made}")
                stored.claims[name] = one
            case "pod" if name in stored.claims and not is_going(stored.claims[name]):
                stored.pods.setdefault(name, detail)
            case "pod gone":
                stored.pods.pop(name, None)
            case "delete" if name in stored.claims:
                stored.claims[name] = evolve(stored.claims[name], DELETED, "now")
            case "turn":
                known = sorted({*stored.claims, *stored.volumes})
                if known:
                    stored.turn(known[name % len(known)], detail)
            case _:
                pass
    stored.pods.clear()
    for name in stored.claims:
        stored.claims[name] = evolve(stored.claims[name], DELETED, "now")
    for _ in range(20):
        for name in sorted({*stored.claims, *stored.volumes}):
            stored.turn(name, 9)
            stored.node(name)
    assert stored.claims == {}
    assert {name for name in stored.volumes if name.startswith("pvc-")} == set()
    assert len(stored.volumes) == disks, "what somebody made by hand stays"
