"""What `livesize resize` writes on a workload, and what it says will become of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, evolve
from livesize.api.requested_action import RequestedAction
from livesize.api.resources import ResourceName
from livesize.api.workload_resize import PREVIOUS
from livesize.cli.resize.plan import RequestedSize, ResizeRefusal
from livesize.cli.resize.workload_plan import (
    WorkloadPatch,
    forecast,
    plan_undo,
    plan_workload_patch,
    takes_part,
    way_back,
)
from unit.cli.workload_objects import pod, resources, stateful_set

CPU = {ResourceName.CPU: RequestedSize("2")}
ON_TEMPLATE = ("spec", "template", "metadata", "annotations")
CONTAINER = ("spec", "template", "spec", "containers", 0)
PREFERRED = RequestedAction.IN_PLACE_PREFERRED


def planned(workload: Object, **options: Any) -> WorkloadPatch:
    wanted = {"container": "", "sizes": CPU, "action": None, **options}
    patch = plan_workload_patch(workload, **wanted)
    assert isinstance(patch, WorkloadPatch)
    return patch


def test_sizes_go_into_the_template_as_they_go_into_a_pod() -> None:
    patch = planned(stateful_set(annotations={"resizeAction": "InPlaceResize"}))
    sizes = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    containers = [{"name": "app", "resources": sizes}]
    assert patch.body() == {"spec": {"template": {"spec": {"containers": containers}}}}


MAP = evolve(stateful_set(), (*CONTAINER, "resources", "resizePolicy"), {"cpu": "LiveResizeable"})


@pytest.mark.parametrize(
    ("workload", "given", "written"),
    [
        (stateful_set(), None, PREFERRED),
        (stateful_set(annotations={"resizeAction": "InPlaceResize"}), None, None),
        (stateful_set(annotations={"resizeAction": "Restart"}), None, None),
        (MAP, None, None),
        (MAP, RequestedAction.IN_PLACE, RequestedAction.IN_PLACE),
        (stateful_set(annotations={"resizeAction": "Restart"}), PREFERRED, PREFERRED),
    ],
    ids=[
        "nothing asks: resize does",
        "what stands there counts",
        "a restart too",
        "policies ask as well",
        "what is said is written",
        "over what stands there",
    ],
)
def test_who_asks(
    workload: Object, given: RequestedAction | None, written: RequestedAction | None
) -> None:
    body = planned(workload, action=given).body()
    said = {} if written is None else {"annotations": {"resizeAction": written}}
    assert body.get("metadata", {}) == said
    assert "metadata" not in body["spec"]["template"]


def test_an_action_is_written_on_the_template_too_where_one_stands_that_would_win() -> None:
    workload = evolve(stateful_set(), ON_TEMPLATE, {"resizeAction": "Restart"})
    body = planned(workload, action=PREFERRED).body()
    said = {"annotations": {"resizeAction": PREFERRED}}
    assert (body["metadata"], body["spec"]["template"]["metadata"]) == (said, said)


def test_a_change_of_what_is_there_is_one_of_this_version() -> None:
    patch = planned(stateful_set(), sizes={ResourceName.CPU: RequestedSize("+500m")})
    assert patch.body()["metadata"]["resourceVersion"] == patch.version == "7"
    (one,) = patch.body()["spec"]["template"]["spec"]["containers"]
    assert one["resources"]["limits"] == {"cpu": "1500m"}


def test_a_container_that_the_template_does_not_have() -> None:
    refusal = plan_workload_patch(stateful_set(), "web", CPU, None)
    assert refusal == ResizeRefusal("the template has no container 'web'; it has app")
    noted = stateful_set(annotations={PREVIOUS: "{}"})
    assert plan_undo(noted, "web", None) == refusal


def undone(workload: Object, container: str = "") -> WorkloadPatch:
    patch = plan_undo(workload, container, None)
    assert isinstance(patch, WorkloadPatch)
    return patch


def test_undo_brings_every_former_size_back_and_takes_out_what_was_not_there() -> None:
    former = '{"app":{"requests":{"cpu":"500m","memory":"64Mi"}},"gone":{},"log":{}}'
    workload = stateful_set(annotations={PREVIOUS: former})
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": resources("1")}
    workload = evolve(workload, ("spec", "template", "spec", "initContainers"), [sidecar])
    nothing = {"cpu": None, "memory": None}
    requests = {"cpu": "500m", "memory": "64Mi"}
    spec = undone(workload).body()["spec"]["template"]["spec"]
    app = {"name": "app", "resources": {"requests": requests, "limits": nothing}}
    log = {"name": "log", "resources": {"requests": nothing, "limits": nothing}}
    assert spec == {"containers": [app], "initContainers": [log]}
    assert undone(workload, "app").body()["spec"]["template"]["spec"] == {"containers": [app]}
    assert undone(workload).version == "7"


def test_undo_of_a_virtual_machine() -> None:
    workload = stateful_set(annotations={PREVIOUS: '{"vm":{"limits":{"cpu":"1"}}}'})
    vm = {"resources": {"limits": {"cpu": "2"}}}
    workload = evolve(workload, ("spec", "template", "spec"), {"virtualMachine": vm})
    spec = undone(workload).body()["spec"]["template"]["spec"]
    assert spec == {"virtualMachine": {"resources": {"limits": {"cpu": "1"}}}}


def test_without_former_sizes_there_is_no_way_back() -> None:
    refusal = plan_undo(stateful_set(), "", None)
    assert isinstance(refusal, ResizeRefusal)
    assert "there are no former sizes to go back to" in refusal.sentence
    other = plan_undo(stateful_set(annotations={PREVIOUS: '{"old":{}}'}), "", None)
    assert isinstance(other, ResizeRefusal)
    assert "of other containers (old)" in other.sentence


def test_the_way_back_is_undo_where_the_server_has_noted_it() -> None:
    before, patch = stateful_set(), planned(stateful_set())
    assert way_back("statefulset/db", before, stateful_set("2"), patch) == (
        "livesize resize statefulset/db -c app --request-cpu 1 --limit-cpu 1"
    )
    noted = stateful_set("2", annotations={PREVIOUS: "{}"})
    assert way_back("statefulset/db", before, noted, patch) == (
        "livesize resize statefulset/db --undo"
    )


ASKS = {"resizeAction": "InPlaceResizePreferred"}
NEVER = {"resizeAction": "InPlaceResize"}
MEMORY_GONE = {"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"cpu": "2"}}


def with_container(workload: Object, **parts: Any) -> Object:
    for name, part in parts.items():
        workload = evolve(workload, (*CONTAINER, name), part)
    return workload


RESTARTS = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (stateful_set("2", annotations=ASKS), "resized in place, live"),
        (stateful_set("2"), "recreated"),
        (stateful_set("2", annotations={"resizeAction": "Restart"}), "recreated"),
        (
            with_container(stateful_set("2", annotations=ASKS), resizePolicy=RESTARTS),
            "resized in place, containers restart",
        ),
        (
            with_container(
                stateful_set("2"),
                resources={**resources("2"), "resizePolicy": {"cpu": "RestartOnly"}},
            ),
            "recreated",
        ),
        (
            with_container(stateful_set(annotations=ASKS), resources=MEMORY_GONE),
            "recreated: the QoS class would change from Guaranteed to Burstable",
        ),
        (
            with_container(stateful_set(annotations=NEVER), resources=MEMORY_GONE),
            "refused: the QoS class would change from Guaranteed to Burstable",
        ),
        (
            stateful_set("2", updateStrategy={"type": "OnDelete"}),
            "recreated once you delete it",
        ),
        (
            stateful_set("2", annotations=ASKS, updateStrategy={"rollingUpdate": {"partition": 2}}),
            "nothing: kept back by partition 2",
        ),
        (stateful_set(annotations=ASKS), "nothing: has this size"),
        (
            {**stateful_set("2", annotations=ASKS, paused=True), "kind": "Deployment"},
            "waits until the deployment is resumed",
        ),
    ],
)
def test_what_becomes_of_a_pod(after: Object, words: str) -> None:
    before = stateful_set()
    db_1 = pod("db-1")
    assert forecast(before, after, [db_1]) == [(db_1, words)]


def test_a_pod_cannot_lose_what_it_asks_for() -> None:
    before = with_container(
        stateful_set(), resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    )
    after = with_container(stateful_set(annotations=NEVER), resources={"requests": {"cpu": "1"}})
    (found,) = forecast(
        before, evolve(after, (*CONTAINER, "resources", "requests", "cpu"), "2"), [pod("db-1")]
    )
    assert found[1] == "refused: a running pod cannot lose its cpu limit"


def test_ordinals_are_counted_from_where_they_start() -> None:
    kept = {"rollingUpdate": {"partition": 1}}
    workload = stateful_set(updateStrategy=kept, ordinals={"start": 5})
    assert [takes_part(workload, pod(f"db-{number}")) for number in (5, 6)] == [False, True]
