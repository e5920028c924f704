"""What is next for a Deployment whose pods are resized in place: tables by rule."""

from __future__ import annotations

import pytest

from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.workload_resize import HELD
from livesize.controllers.in_place.actions import (
    SetReplicaSetTemplate,
    WriteWorkload,
)
from livesize.controllers.in_place.plan import plan_workload
from unit.controllers.workload_objects import (
    CPU,
    LARGE,
    NOW,
    QOS,
    SMALL,
    budget,
    changed,
    deployment_view,
    replica_set,
    template,
    three,
    words,
    workload,
)


def deployment(action: str = "InPlaceResizePreferred", **annotations: str) -> Object:
    return changed(workload("Deployment", action), LARGE, **annotations)


def owned(*kinds: str) -> list[Object]:
    references = [{"uid": "new", "controller": True, "kind": "ReplicaSet"}]
    return [evolve(one, ("metadata", "ownerReferences"), references) for one in three(*kinds)]


OLD, NEW = replica_set("new", SMALL), replica_set("new", LARGE)


@pytest.mark.parametrize(
    ("sets", "kinds", "expected"),
    [
        ([OLD], ("old", "old", "old"), ["template new"]),
        ([NEW], ("old", "old", "old"), ["resize db-0"]),
        ([NEW], ("asked", "old", "old"), []),
        ([NEW], ("deferred", "old", "old"), ["resize db-1"]),
        ([NEW], ("sized", "old", "sized"), ["resize db-1"]),
        ([NEW], ("sized", "sized", "sized"), ["release"]),
        ([NEW], ("sized", "leaving", "sized"), ["release"]),
        ([NEW], ("sized", "never", "sized"), ["evict db-1"]),
        ([NEW], ("sized", "never", "unready"), []),
        ([NEW], ("sized", "never", "leaving"), []),
        (
            [OLD, replica_set("older", LARGE, 0, "0")],
            ("old", "old"),
            ["delete older", "template new"],
        ),
        ([OLD, replica_set("newer", LARGE, 0, "2")], ("old", "old"), ["template new"]),
        ([OLD, replica_set("other", LARGE, 1)], ("old", "old", "old"), ["release"]),
        ([replica_set("new", template("1", image="b"))], ("old", "old", "old"), ["release"]),
        ([], (), []),
    ],
)
def test_a_deployment(sets: list[Object], kinds: tuple[str, ...], expected: list[str]) -> None:
    assert words(plan_workload(deployment_view(deployment(), sets, owned(*kinds)), NOW)) == expected


def test_it_is_not_resumed_before_the_controllers_have_seen_the_template() -> None:
    """Another ReplicaSet would be made, and rolled out."""
    behind = evolve(NEW, ("metadata", "generation"), 2)
    view = deployment_view(deployment(), [behind], owned("sized", "sized"))
    assert words(plan_workload(view, NOW)) == []
    seen = evolve(behind, ("status", "observedGeneration"), 2)
    view = deployment_view(deployment(), [seen], owned("sized", "sized"))
    assert words(plan_workload(view, NOW)) == ["release"]


def test_a_replica_set_keeps_its_hash() -> None:
    (action,) = plan_workload(deployment_view(deployment(), [OLD], owned("old")), NOW).actions
    assert isinstance(action, SetReplicaSetTemplate)
    made = action.replica_set["spec"]["template"]
    assert made["metadata"]["labels"] == {"app": "db", "pod-template-hash": "new"}
    assert made["spec"] == LARGE["spec"]


@pytest.mark.parametrize(("action", "expected"), [("", ["release"]), ("InPlaceResize", [])])
def test_a_deployment_that_cannot_be_resized_is_not_touched(
    action: str, expected: list[str]
) -> None:
    seen = changed(workload("Deployment", action), QOS)
    assert words(plan_workload(deployment_view(seen, [OLD], owned("old", "old")), NOW)) == expected


def test_in_place_alone_never_evicts() -> None:
    view = deployment_view(deployment("InPlaceResize"), [NEW], owned("sized", "never", "sized"))
    assert words(plan_workload(view, NOW)) == []


def test_an_eviction_heeds_the_budgets() -> None:
    view = deployment_view(
        deployment(), [NEW], owned("sized", "never", "sized"), budgets=(budget(0),)
    )
    assert words(plan_workload(view, NOW)) == []


def test_a_deployment_that_was_resumed_is_paused_again_where_that_helps() -> None:
    resumed = without(deployment(), ("spec", "paused"))
    for sets, kinds, expected in (
        ([OLD], ("old", "old", "old"), ["hold"]),
        ([NEW], ("old", "old", "old"), ["hold"]),
        ([NEW], ("sized", "sized", "sized"), ["release"]),
        ([OLD, replica_set("other", LARGE, 1)], ("old", "old"), ["release"]),
    ):
        view = deployment_view(resumed, sets, owned(*kinds))
        assert words(plan_workload(view, NOW)) == expected
        if expected == ["release"]:
            (write,) = plan_workload(view, NOW).actions
            assert isinstance(write, WriteWorkload)
            assert "paused" not in write.workload["spec"]
            assert HELD not in write.workload["metadata"]["annotations"]


def test_a_deployment_goes_back_at_the_deadline() -> None:
    seen = deployment(**{"livesize.dev/on-deadline": "Revert"})
    view = deployment_view(seen, [NEW], owned("sized", "never", "sized"))
    (write,) = plan_workload(view, NOW).actions
    assert isinstance(write, WriteWorkload)
    assert (lookup(write.workload, *CPU), write.workload["spec"]["paused"]) == ("1", True)
