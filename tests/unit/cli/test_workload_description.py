"""What `livesize describe` says of workloads, from objects alone."""

from __future__ import annotations

import pytest

from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, evolve, without
from livesize.api.workload_resize import RESIZE_STATUS, Hold
from livesize.api.workload_status import ResizeStatus, format_status
from livesize.cli.workload_description import pods_table, standing_lines, workload_lines
from unit.cli.workload_objects import UID, hold_note, pending, pod, stateful_set

MAP = {"livesize.dev/resize-policy": '{"app":{"cpu":"LiveResizeable"}}'}
NEVER = {"resizeAction": "InPlaceResize"}
PREFERRED = {"resizeAction": "InPlaceResizePreferred"}


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({}, "is a rollout, unless `livesize resize` asks for it"),
        ({"resizeAction": "Restart"}, "is a rollout: resizeAction is Restart"),
        (NEVER, "InPlaceResize; a pod that cannot be resized is kept as it is"),
        (PREFERRED, "Preferred; a pod that cannot be resized within 30 s is recreated"),
        (
            {**PREFERRED, "livesize.dev/on-deadline": "Keep"},
            "Preferred; a pod that cannot be resized is kept as it is",
        ),
        (
            {**NEVER, "livesize.dev/on-deadline": "Evict", "livesize.dev/resize-deadline": "2m"},
            "InPlaceResize; a pod that cannot be resized within 120 s is recreated",
        ),
        (
            {**NEVER, "livesize.dev/on-deadline": "Revert"},
            "InPlaceResize; if a pod cannot be resized within 30 s, all go back",
        ),
        (MAP, "its resize policies ask for it; a pod that cannot be resized within 30 s"),
    ],
)
def test_who_asks_and_what_becomes_of_a_pod_that_cannot(annotations: Object, words: str) -> None:
    _, said = workload_lines(STATEFUL_SETS, stateful_set(annotations=annotations))
    assert words in said


def test_under_on_delete_its_user_recreates() -> None:
    workload = stateful_set(annotations=PREFERRED, updateStrategy={"type": "OnDelete"})
    assert workload_lines(STATEFUL_SETS, workload)[1].endswith("is recreated once you delete it")


def test_a_replica_set_points_to_its_deployment() -> None:
    owner = {"kind": "Deployment", "name": "web", "uid": "d1", "controller": True}
    alone = stateful_set()
    owned = evolve(alone, ("metadata", "ownerReferences"), [owner])
    assert "those of deployment/web; describe that" in workload_lines(REPLICA_SETS, owned)[1]
    assert "those that run keep theirs" in workload_lines(REPLICA_SETS, alone)[1]


def test_a_report_of_the_resize_before_is_not_taken_for_the_one_under_way() -> None:
    report = {RESIZE_STATUS: format_status(ResizeStatus(1, "then", 2, 2, [], "all of them"))}
    hold = hold_note(Hold(UID, 2, 2))
    known = stateful_set(annotations=report)
    assert standing_lines(STATEFUL_SETS, known) == ["", "Resize of generation 1, then: all of them"]
    held = stateful_set(annotations={**report, **hold})
    assert standing_lines(STATEFUL_SETS, held) == [
        "",
        "Its rollout is held while its pods are resized",
    ]


def test_a_pod_that_no_node_has_taken_says_why() -> None:
    condition = {"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}
    homeless = without(pod("db-0", conditions=[condition]), ("spec", "nodeName"))
    (row,) = pods_table(stateful_set(), [homeless]).rows
    assert row[-2:] == ("-", "Unschedulable: 0/1 nodes")


def test_what_its_node_says_is_shown_before_the_workload_has_its_report() -> None:
    waiting = pod("db-0", "2", "1", conditions=pending("Deferred", "full"))
    (row,) = pods_table(stateful_set("2"), [waiting]).rows
    assert row[-1] == "Deferred: full"
