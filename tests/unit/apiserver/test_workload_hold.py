"""A workload that asks for it is held in the very write that resizes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.workload_resize import HELD, PREVIOUS, Hold, held, hold_of, released
from livesize.apiserver.admission.workload_hold import hold_workload, without_notes
from unit.api.kinds.workload_objects import workload
from unit.apiserver.conftest import Rig

ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
CPU = ("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu")
IMAGE = ("spec", "template", "spec", "containers", 0, "image")
PARTITION = ("spec", "updateStrategy", "rollingUpdate", "partition")
STEADY = {"updateRevision": "a", "currentRevision": "a", "replicas": 3, "updatedReplicas": 3}


def stateful_set(action: str = "InPlaceResize", **spec: Any) -> Object:
    app = {"name": "app", "image": "busybox:1", "resources": {"limits": {"cpu": "1"}}}
    return {
        "kind": "StatefulSet",
        "metadata": {"uid": "u", "generation": 4, "annotations": {"resizeAction": action}},
        "spec": {
            "replicas": 3,
            "updateStrategy": ROLLING,
            "template": {"spec": {"containers": [app]}},
            **spec,
        },
        "status": STEADY,
    }


def deployment(action: str = "InPlaceResize", **spec: Any) -> Object:
    made = {**stateful_set(action, **spec), "kind": "Deployment"}
    made["status"] = {"replicas": 3, "updatedReplicas": 3}
    return without(made, ("spec", "updateStrategy"))


def written(obj: Object) -> Object:
    """As the next write finds it."""
    return evolve(obj, ("metadata", "generation"), obj["metadata"]["generation"] + 1)


def partition_of(obj: Object) -> Any:
    return lookup(obj, *PARTITION)


def test_a_stateful_set_is_held_by_its_partition() -> None:
    new = hold_workload(stateful_set(), evolve(stateful_set(), CPU, "2"))
    assert partition_of(new) == 3
    assert lookup(new, *CPU) == "2"
    assert hold_of(written(new)) == Hold("u", 5, partition=3, strategy=ROLLING)
    assert lookup(new, "metadata", "annotations", PREVIOUS) == '{"app":{"limits":{"cpu":"1"}}}'


def test_a_deployment_is_held_by_a_pause() -> None:
    new = hold_workload(deployment(), evolve(deployment(), CPU, "2"))
    assert new["spec"]["paused"] is True
    assert hold_of(written(new)) == Hold("u", 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (stateful_set("Restart"), evolve(stateful_set("Restart"), CPU, "2")),
        (stateful_set(), evolve(stateful_set(), IMAGE, "busybox:2")),
        (stateful_set(), evolve(evolve(stateful_set(), CPU, "2"), IMAGE, "busybox:2")),
        (stateful_set(), evolve(stateful_set(), ("spec", "replicas"), 7)),
        (
            stateful_set(updateStrategy={"type": "OnDelete"}),
            evolve(stateful_set(updateStrategy={"type": "OnDelete"}), CPU, "2"),
        ),
        (deployment(paused=True), evolve(deployment(paused=True), CPU, "2")),
        (
            {**stateful_set(), "status": {**STEADY, "updateRevision": "b", "currentReplicas": 2}},
            evolve(stateful_set(), CPU, "2"),
        ),
        (
            {**deployment(), "status": {"replicas": 4, "updatedReplicas": 2}},
            evolve(deployment(), CPU, "2"),
        ),
    ],
    ids=[
        "action Restart",
        "image",
        "image and size",
        "scaled",
        "OnDelete",
        "paused by its user",
        "a rollout is under way",
        "a rollout of a Deployment is under way",
    ],
)
def test_what_is_not_held(old: Object, new: Object) -> None:
    after = hold_workload(old, new)
    assert without(after, ("metadata", "annotations", PREVIOUS)) == new


def test_a_canary_that_stands_is_no_rollout() -> None:
    """The user's partition keeps two pods back for good; the third has the new revision."""
    canary = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    old = stateful_set(updateStrategy=canary)
    old["status"] = {**STEADY, "updateRevision": "b", "updatedReplicas": 1}
    new = hold_workload(old, evolve(old, CPU, "2"))
    assert partition_of(new) == 3
    hold = hold_of(written(new))
    assert hold is not None
    assert hold.strategy == canary


def test_scaling_is_no_rollout() -> None:
    old = deployment(replicas=7)
    assert hold_workload(old, evolve(old, CPU, "2"))["spec"]["paused"] is True
    old = stateful_set(replicas=7)
    old["status"] = {**STEADY, "updateRevision": "b"}
    assert partition_of(hold_workload(old, evolve(old, CPU, "2"))) == 7


def test_whoever_lets_kept_back_pods_go_is_held_too() -> None:
    back = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
    old = stateful_set(updateStrategy=back)
    old["status"] = {**STEADY, "updateRevision": "b", "updatedReplicas": 0}
    assert partition_of(hold_workload(old, evolve(old, PARTITION, 0))) == 3
    resumed = hold_workload(deployment(paused=True), deployment())
    assert resumed["spec"]["paused"] is True
    assert hold_of(resumed) == Hold("u", 4)


def test_pods_of_a_revision_in_between_are_let_go_too() -> None:
    """The template went there and back: the newest revision is the current one again."""
    back = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    old = stateful_set(updateStrategy=back)
    old["status"] = {**STEADY, "updatedReplicas": 2}
    assert partition_of(hold_workload(old, evolve(old, PARTITION, 1))) == 3


@pytest.mark.parametrize("kind", [stateful_set, deployment])
def test_what_its_controller_has_not_seen_is_no_rollout(kind: Callable[[], Object]) -> None:
    """It may have been down since the last resize: in_place finds out what it was."""
    old = kind()
    status = {"updateRevision": "b", "updatedReplicas": 0, "currentReplicas": 3}
    status = {**status, "observedGeneration": 3}
    old["status"] = {**old["status"], **status}
    assert HELD in hold_workload(old, evolve(old, CPU, "2"))["metadata"]["annotations"]
    old["status"]["observedGeneration"] = 4
    assert HELD not in hold_workload(old, evolve(old, CPU, "2"))["metadata"]["annotations"]


def test_pods_that_leave_are_no_rollout() -> None:
    """They are scaled away, or their node is: they count as replicas, and not as updated."""
    canary = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    old = stateful_set(updateStrategy=canary)
    status = {"replicas": 4, "updatedReplicas": 1, "currentReplicas": 2}
    old["status"] = {**STEADY, "updateRevision": "b", **status}
    assert partition_of(hold_workload(old, evolve(old, CPU, "2"))) == 4


def held_set() -> Object:
    return written(hold_workload(stateful_set(), evolve(stateful_set(), CPU, "2")))


def test_a_partition_written_under_the_hold_is_what_is_put_back() -> None:
    new = hold_workload(held_set(), evolve(held_set(), PARTITION, 1))
    assert partition_of(new) == 3
    hold = hold_of(new)
    assert hold is not None
    assert released(new, hold)["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 1
    assert HELD not in released(new, hold)["metadata"]["annotations"]


def test_a_partition_that_was_only_read_is_not_put_back() -> None:
    new = hold_workload(held_set(), evolve(held_set(), ("spec", "minReadySeconds"), 5))
    hold = hold_of(new)
    assert hold is not None
    assert hold.strategy == ROLLING
    more = ("spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
    hold = hold_of(hold_workload(held_set(), evolve(held_set(), more, 2)))
    assert hold is not None
    rolling = {"partition": 0, "maxUnavailable": 2}
    assert hold.strategy == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_on_delete_written_under_the_hold_is_what_is_put_back() -> None:
    given = evolve(held_set(), ("spec", "updateStrategy"), {"type": "OnDelete"})
    new = hold_workload(held_set(), given)
    assert (new["spec"]["updateStrategy"]["type"], partition_of(new)) == ("RollingUpdate", 3)
    hold = hold_of(new)
    assert hold is not None
    assert released(new, hold)["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_a_deployment_resumed_under_the_hold_stays_held() -> None:
    seen = written(hold_workload(deployment(), evolve(deployment(), CPU, "2")))
    for given in (evolve(seen, ("spec", "paused"), False), without(seen, ("spec", "paused"))):
        assert hold_workload(seen, given)["spec"]["paused"] is True


def test_another_size_under_the_hold_holds_all_pods_there_are_by_then() -> None:
    scaled = evolve(held_set(), ("spec", "replicas"), 6)
    assert partition_of(hold_workload(held_set(), scaled)) == 3
    again = hold_workload(scaled, evolve(scaled, CPU, "3"))
    assert partition_of(again) == 6
    assert hold_of(written(again)) == Hold("u", 6, partition=6, strategy=ROLLING)


def test_more_than_a_resize_ends_the_hold_in_the_same_write() -> None:
    new = hold_workload(held_set(), evolve(held_set(), IMAGE, "busybox:2"))
    assert partition_of(new) == 0
    assert HELD not in new["metadata"]["annotations"]


def test_users_do_not_write_the_hold() -> None:
    annotation = ("metadata", "annotations", HELD)
    forged = held(stateful_set(), Hold("u", 4, strategy=ROLLING))
    assert hold_of(hold_workload(stateful_set(), forged)) is None
    assert hold_of(hold_workload(held_set(), without(held_set(), annotation))) is not None
    assert without_notes(held_set())["metadata"]["annotations"] == {"resizeAction": "InPlaceResize"}


# At the API server

KINDS = pytest.mark.parametrize("resource", [STATEFUL_SETS, DEPLOYMENTS], ids=lambda one: one.kind)
ACTION = {"resizeAction": "InPlaceResize"}


def path(resource: Resource, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/default/{resource.plural}/{name}".rstrip("/")


def larger(cpu: str = "2") -> Object:
    app = {"name": "app", "resources": {"limits": {"cpu": cpu}}}
    return {"spec": {"template": {"spec": {"containers": [app]}}}}


async def made(rig: Rig, resource: Resource, **annotations: str) -> Object:
    new = evolve(workload(resource), ("metadata", "annotations"), {**ACTION, **annotations})
    answer = await rig.request("POST", path(resource), new, token="editor")
    assert answer.status == 201, answer.json
    await rig.patch(path(resource, "web"), larger("1"), "strategic", token="controller")
    found: Object = (await rig.get(path(resource, "web"))).json
    return found


@KINDS
async def test_a_users_write_is_held_and_a_controllers_is_not(rig: Rig, resource: Resource) -> None:
    before = await made(rig, resource)
    assert hold_of(before) is None
    patched = await rig.patch(path(resource, "web"), larger(), "strategic", token="editor")
    assert patched.status == 200, patched.json
    hold = hold_of(patched.json)
    assert hold is not None
    assert hold.generation == patched.json["metadata"]["generation"]
    assert (partition_of(patched.json), patched.json["spec"].get("paused")) == (
        (1, None) if resource is STATEFUL_SETS else (None, True)
    )
    put = released(patched.json, hold)
    resumed = await rig.request("PUT", path(resource, "web"), put, token="editor")
    assert hold_of(resumed.json) is not None
    put["metadata"]["resourceVersion"] = resumed.json["metadata"]["resourceVersion"]
    freed = await rig.request("PUT", path(resource, "web"), put, token="controller")
    assert freed.status == 200
    assert HELD not in freed.json["metadata"]["annotations"]
    assert freed.json["spec"].get("paused", False) is False
    assert freed.json["spec"].get("updateStrategy") == before["spec"].get("updateStrategy")


@KINDS
async def test_every_way_to_write_is_held(rig: Rig, resource: Resource) -> None:
    """kubectl apply, set resources, patch and edit are patches of three kinds; replace is a PUT."""
    await made(rig, resource)
    cpu = "/spec/template/spec/containers/0/resources/limits/cpu"
    whole = evolve((await rig.get(path(resource, "web"))).json, CPU, "3")
    applied = evolve(workload(resource), ("metadata", "annotations"), ACTION)
    app = {"name": "app", "image": "busybox:1", "resources": {"limits": {"cpu": "5"}}}
    applied = evolve(applied, ("spec", "template", "spec", "containers"), [app])
    for kind, body in (
        ("json", [{"op": "replace", "path": cpu, "value": "4"}]),
        ("apply", applied),
        ("merge", {"spec": {"template": whole["spec"]["template"]}}),
    ):
        more = {"fieldManager": "me", "force": "true"} if kind == "apply" else {}
        answer = await rig.patch(path(resource, "web"), body, kind, token="editor", **more)
        assert answer.status == 200, answer.json
        hold = hold_of(answer.json)
        assert hold is not None, kind
        await rig.request(
            "PUT", path(resource, "web"), released(answer.json, hold), token="controller"
        )


@KINDS
async def test_a_hold_that_takes_back_all_that_was_written_is_one(
    rig: Rig, resource: Resource
) -> None:
    """The write makes no new generation then. Found by sequences of the simulator: the hold was
    taken for one from a time to come, and what the user had written was lost."""
    await made(rig, resource)
    spec: Object = {"paused": True}
    if resource is STATEFUL_SETS:
        spec = {"updateStrategy": {"rollingUpdate": {"partition": 1}}}
    kept = await rig.patch(path(resource, "web"), {"spec": spec}, token="editor")
    if resource is STATEFUL_SETS:
        status = {"status": {"updateRevision": "b", "currentRevision": "a", "replicas": 1}}
        seen = await rig.patch(f"{path(resource, 'web')}/status", status, token="controller")
        assert seen.status == 200, seen.json
    spec = {"paused": False}
    if resource is STATEFUL_SETS:
        spec = {"updateStrategy": {"rollingUpdate": {"partition": 0}}}
    answer = await rig.patch(path(resource, "web"), {"spec": spec}, token="editor")
    generation = kept.json["metadata"]["generation"]
    assert answer.json["metadata"]["generation"] == generation
    hold = hold_of(answer.json)
    assert hold is not None
    assert hold.generation == generation
    put = released(answer.json, hold)["spec"]
    assert (put.get("paused", False), lookup(put, *PARTITION[1:], default=0)) == (False, 0)


@KINDS
async def test_a_copy_of_a_workload_is_not_held(rig: Rig, resource: Resource) -> None:
    copy = await made(
        rig, resource, **{HELD: "{}", PREVIOUS: "{}", "livesize.dev/resize-status": "{}"}
    )
    assert {key for key in copy["metadata"]["annotations"] if "livesize.dev" in key} == set()


@KINDS
async def test_what_is_wrong_is_refused(rig: Rig, resource: Resource) -> None:
    await made(rig, resource)
    wrong = {"metadata": {"annotations": {"livesize.dev/resize-parallelism": "all"}}}
    answer = await rig.patch(path(resource, "web"), wrong, token="editor")
    assert (answer.status, "must be a positive integer" in answer.json["message"]) == (422, True)
    inside = {
        "spec": {"template": {"metadata": {"annotations": {"livesize.dev/on-deadline": "Keep"}}}}
    }
    answer = await rig.patch(path(resource, "web"), inside, token="editor")
    assert (answer.status, "say it on the workload" in answer.json["message"]) == (422, True)
