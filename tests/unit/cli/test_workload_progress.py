"""Where a workload's resize stands, and how that is told."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, evolve
from livesize.api.workload_resize import RESIZE_STATUS, Hold
from livesize.api.workload_status import (
    ResizeStatus,
    current_status,
    feasible_size,
    format_status,
    last_status,
)
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.workload_plan import WorkloadPatch
from livesize.cli.resize.workload_progress import WorkloadProgress, workload_progress
from livesize.cli.resize.workload_report import (
    PodTimes,
    advice,
    pod_line,
    progress_word,
    shortfall,
    summary_table,
)
from unit.cli.workload_objects import UID, hold_note, pending, pod, stateful_set

PATCH = WorkloadPatch((ResizePatch("app", {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),))
NO_CAPACITY = "Node didn't have enough capacity: cpu, requested: 2000, capacity: 1500"
NEVER = {"resizeAction": "InPlaceResize"}
HOLD = hold_note(Hold(UID, 2, 2, strategy={"rollingUpdate": {"partition": 1}}))


def infeasible(name: str) -> Object:
    return pod(name, "2", "1", conditions=pending("Infeasible", NO_CAPACITY))


def noted(generation: int = 2, **unfinished: str) -> Object:
    entries = [
        {"pod": name.replace("_", "-"), "reason": reason, "message": f"because of {reason}"}
        for name, reason in unfinished.items()
    ]
    status = ResizeStatus(generation, "2026-01-01T00:00:00Z", 2, 2 - len(entries), entries, "so")
    return {RESIZE_STATUS: format_status(status)}


def progress(workload: Object, *pods: Object) -> WorkloadProgress:
    return workload_progress(workload, pods, PATCH)


def words(*args: Any) -> list[str]:
    return [progress_word(one.progress) for one in progress(*args).pods]


def test_it_is_done_when_all_pods_have_the_size_and_nothing_is_held() -> None:
    both = (pod("db-0", "2"), pod("db-1", "2"))
    assert progress(stateful_set("2"), *both).is_done
    held = progress(stateful_set("2", annotations=HOLD), *both)
    assert (held.is_done, held.waits_for) == (
        False,
        "its rollout is held while its pods are resized",
    )
    unseen = evolve(stateful_set("2"), ("status", "observedGeneration"), 1)
    assert progress(unseen, *both).waits_for == "its controller has not seen it yet"


@pytest.mark.parametrize(
    "second",
    [
        pod("db-1", "1"),
        pod("db-1", "2", "1"),
        evolve(pod("db-1", "2"), ("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z"),
        evolve(pod("db-1", "2"), ("status", "phase"), "Failed"),
        evolve(pod("db-1", "2"), ("spec", "nodeName"), ""),
    ],
    ids=["not asked", "not applied", "leaving", "ended", "on no node"],
)
def test_one_pod_that_does_not_have_it_keeps_it_from_being_done(second: Object) -> None:
    assert not progress(stateful_set("2"), pod("db-0", "2"), second).is_done


def test_a_pod_too_many_keeps_it_from_being_done() -> None:
    pods = [pod(f"db-{number}", "2") for number in range(3)]
    assert not progress(stateful_set("2"), *pods).is_done


def test_pods_below_the_users_own_partition_are_not_waited_for() -> None:
    kept = {"rollingUpdate": {"partition": 1}}
    found = progress(stateful_set("2", updateStrategy=kept), pod("db-0", "1"), pod("db-1", "2"))
    assert (found.is_done, found.wanted) == (True, 1)
    held = stateful_set("2", annotations=HOLD, updateStrategy={"rollingUpdate": {"partition": 2}})
    assert progress(held, pod("db-0", "1"), pod("db-1", "2")).wanted == 1


def test_what_a_limit_range_has_added_to_a_pod_does_not_count() -> None:
    without = evolve(
        stateful_set("2"),
        ("spec", "template", "spec", "containers", 0, "resources"),
        {"requests": {"cpu": "2"}},
    )
    asked = WorkloadPatch((ResizePatch("app", {"requests": {"cpu": "2"}}),))
    assert workload_progress(without, [pod("db-0", "2"), pod("db-1", "2")], asked).is_done


def test_what_the_controller_has_noted_explains_a_pod_that_was_not_asked() -> None:
    waits = stateful_set("2", annotations=noted(db_1="DisruptionBudget"))
    assert words(waits, pod("db-0", "1"), pod("db-1", "1")) == ["Queued", "DisruptionBudget"]
    old = stateful_set("2", annotations=noted(1, db_1="DisruptionBudget"))
    assert words(old, pod("db-1", "1")) == ["Queued"]
    assert (last_status(old) is None, current_status(old)) == (False, None)


@pytest.mark.parametrize(
    ("annotations", "second", "at_an_end"),
    [
        (NEVER, infeasible("db-1"), True),
        ({}, infeasible("db-1"), False),
        ({**NEVER, "livesize.dev/on-deadline": "Revert"}, infeasible("db-1"), False),
        ({"livesize.dev/on-deadline": "Keep"}, infeasible("db-1"), True),
        (NEVER, pod("db-1", "1"), False),
        ({**NEVER, **noted(db_1="Invalid")}, pod("db-1", "1"), True),
        (noted(db_1="AwaitsDeletion"), pod("db-1", "1"), True),
        (NEVER, pod("db-1", "2", "1", conditions=pending("Deferred", "full")), False),
    ],
    ids=[
        "it may not be recreated",
        "it may be recreated",
        "it goes back",
        "it is kept",
        "its turn comes",
        "its resize is refused",
        "its user has to delete it",
        "it waits for room",
    ],
)
def test_when_nothing_more_happens_by_itself(
    annotations: Object, second: Object, at_an_end: bool
) -> None:
    workload = stateful_set("2", annotations=annotations)
    assert progress(workload, pod("db-0", "2"), second).is_at_an_end is at_an_end
    assert not progress(workload, pod("db-0", "1"), second).is_at_an_end


def test_others_may_ask_for_something_else_meanwhile() -> None:
    assert "somebody else asked" in progress(stateful_set("3")).overtaken
    back = stateful_set("1", annotations={"livesize.dev/on-deadline": "Revert"})
    assert "livesize.dev/on-deadline is Revert" in progress(back).overtaken


def test_a_deployment_that_its_user_has_paused() -> None:
    workload = {**stateful_set("2", paused=True), "kind": "Deployment"}
    found = progress(workload, pod("db-0", "1"), pod("db-1", "1"))
    said = shortfall("deployment/db", found)
    assert "`kubectl rollout resume deployment/db` lets it go on" in said
    assert progress(workload, pod("db-0", "2"), pod("db-1", "2")).is_done, "nothing waits for it"


def test_what_is_said_when_some_pods_cannot() -> None:
    found = progress(
        stateful_set("2", replicas=3, annotations=NEVER),
        pod("db-0", "2"),
        infeasible("db-1"),
        pod("db-2", "2", "1", conditions=pending("Deferred", "full")),
    )
    assert shortfall("statefulset/db", found) == (
        "statefulset/db: 1 of 3 pods have the new size;"
        f" db-1: its node can never hold it ({NO_CAPACITY});"
        " db-2: no room now; it happens by itself when there is (full)"
    )
    assert advice("statefulset/db", found, "BACK", "it waits") == (
        "It is still asked for, and goes on by itself (it waits): look with `livesize describe"
        " statefulset/db`, ask for a size feasible on all the nodes (at most cpu 1500m for all"
        " containers of a pod), free room on n1, or go back with `BACK`"
    )


def test_many_unfinished_pods_are_counted_and_those_that_wait_for_something_come_first() -> None:
    pods = [pod(f"db-{number}", "1") for number in range(5)]
    found = progress(stateful_set("2", replicas=6), *pods, infeasible("db-5"))
    said = shortfall("statefulset/db", found)
    assert said.split("; ")[1].startswith("db-5: its node can never hold it")
    assert said.endswith("; db-0, db-1, db-2 and 2 more: its turn has not come")


def test_pods_that_wait_for_the_same_are_named_together() -> None:
    notes = noted(**{f"db_{number}": f"Reason{number}" for number in range(5)})
    pods = [pod(f"db-{number}", "1") for number in range(7)]
    found = progress(stateful_set("2", replicas=7, annotations=notes), *pods)
    said = shortfall("statefulset/db", found).split("; ")
    assert said[1] == "db-0: Reason0 (because of Reason0)"
    assert said[4:] == ["and 4 more"]
    both = progress(stateful_set("2", annotations=NEVER), infeasible("db-0"), infeasible("db-1"))
    assert shortfall("statefulset/db", both).count(NO_CAPACITY) == 1


def test_the_largest_size_that_all_nodes_can_hold() -> None:
    more = "memory, requested: 9, capacity: 1073741824; cpu, requested: 9000, capacity: 4000"
    assert feasible_size([NO_CAPACITY, more, "no"]) == (
        "a size feasible on all the nodes (at most cpu 1500m and memory 1Gi for all containers of"
        " a pod)"
    )
    assert feasible_size(["no"]) == "a size feasible on all the nodes"


def test_the_summary_has_before_and_after_the_time_and_what_was_restarted() -> None:
    before = {name: pod(name, "1") for name in ("db-0", "db-1", "db-2", "db-3")}
    found = progress(
        stateful_set("2", replicas=4, annotations=NEVER),
        pod("db-0", "2"),
        pod("db-1", "2", restarts=1),
        pod("db-2", "2", uid="another"),
        infeasible("db-3"),
    )
    begun = dict.fromkeys(before, 1.0)
    times = PodTimes(begun, {"db-0": 1.25, "db-1": 2.0, "db-2": 5.5})
    assert summary_table(found, before, times).rows == (
        ("db-0", "Done", "1 64Mi", "2 64Mi", "250 ms", "no"),
        ("db-1", "Done", "1 64Mi", "2 64Mi", "1.00 s", "app"),
        ("db-2", "Done", "1 64Mi", "2 64Mi", "4.50 s", "recreated"),
        ("db-3", "Infeasible", "1 64Mi", "1 64Mi", "-", "no"),
    )
    assert pod_line("statefulset/db", found, found.pods[0], before, times) == (
        "statefulset/db 3/4: db-0: 1 64Mi → 2 64Mi in 250 ms, restarted: no"
    )
    assert pod_line("statefulset/db", found, found.pods[3], before, times) == (
        f"statefulset/db 3/4: db-3: its node can never hold it ({NO_CAPACITY})"
    )
