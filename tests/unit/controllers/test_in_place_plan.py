"""What is next for a StatefulSet whose pods are resized in place: tables by rule."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.workload_resize import RESIZE_STATUS, hold_of
from livesize.controllers.in_place.actions import (
    AdjustPod,
    ReportStatus,
    ResizePod,
    WriteWorkload,
)
from livesize.controllers.in_place.plan import plan_workload
from livesize.controllers.in_place.view import Answers, PatchRefusal, RefusalKind
from unit.controllers.workload_objects import (
    ANNOTATIONS,
    JUST_NOW,
    LARGE,
    LARGE_R,
    NOW,
    QOS,
    RESTART,
    SMALL,
    SMALL_R,
    budget,
    changed,
    condition,
    plan,
    pod,
    requested,
    resized,
    set_view,
    status_of,
    template,
    three,
    words,
    workload,
)

# The order


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("old", "old", "old"), ["resize db-2"]),
        (("old", "old", "asked"), []),
        (("old", "old", "applying"), []),
        (("old", "old", "long"), ["resize db-1"]),
        (("old", "old", "deferred"), ["resize db-1"]),
        (("old", "old", "failing"), ["resize db-1"]),
        (("old", "old", "sized"), ["label r2 db-2", "resize db-1"]),
        (("old", "sized", "done"), ["label r2 db-1", "resize db-0"]),
        (("sized", "done", "done"), ["label r2 db-0"]),
        (("done", "done", "done"), ["release"]),
        (("done", "leaving", "done"), ["release"]),
        (("done", "done", "missing"), []),
        (("done", "done", "old"), ["resize db-2"]),
    ],
)
def test_pods_are_resized_from_the_last_one_on(kinds: tuple[str, ...], expected: list[str]) -> None:
    assert words(plan(resized(), three(*kinds))) == expected


@pytest.mark.parametrize(("said", "begun"), [("2", 2), ("9", 3), ("0", 1), ("many", 1)])
def test_as_many_are_under_way_as_the_workload_says(said: str, begun: int) -> None:
    seen = resized(**{"livesize.dev/resize-parallelism": said})
    assert len(words(plan(seen, three("old", "old", "old")))) == begun
    assert len(words(plan(seen, three("old", "old", "asked")))) == begun - 1


def test_only_amounts_of_the_template_are_asked_for() -> None:
    """What only the pod has stays, and a request that the template leaves out is its limit."""
    target = evolve(LARGE, ("spec", "containers", 0, "resources"), {"limits": {"cpu": "2"}})
    small = evolve(SMALL, ("spec", "containers", 0, "resources"), {"limits": {"cpu": "1"}})
    seen = changed(workload("StatefulSet", template=small), target)
    (action,) = plan(seen, three("old", "done", "done"), r1=small).actions[:1]
    assert isinstance(action, ResizePod)
    sizes = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    assert action.patch == {"spec": {"containers": [{"name": "app", "resources": sizes}]}}


def test_the_newest_revision_is_believed_when_the_controller_has_seen_the_write() -> None:
    seen = evolve(resized(), ("status", "observedGeneration"), 1)
    assert plan(seen, three("sized", "old", "old")).actions == ()


def test_nothing_is_released_before_the_controller_has_counted_the_labels() -> None:
    """It may see the partition before the labels, and recreate what it takes for old."""
    view = set_view(resized(), three("done", "done", "done"))
    behind = evolve(view.workload, ("status", "updatedReplicas"), 2)
    assert words(plan_workload(msgspec.structs.replace(view, workload=behind), NOW)) == []
    view = set_view(resized(), three("never", "done", "done"))
    assert words(plan_workload(view, NOW)) == ["hold at 0"]
    behind = evolve(view.workload, ("status", "updatedReplicas"), 1)
    assert words(plan_workload(msgspec.structs.replace(view, workload=behind), NOW)) == []


def test_users_partition_and_first_ordinal_say_which_pods_it_is_about() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    ordinals = {"start": 5}
    seen = changed(workload("StatefulSet", updateStrategy=strategy, ordinals=ordinals), LARGE)
    pods = [pod(f"db-{ordinal}", SMALL, "r1") for ordinal in (5, 6, 7)]
    assert words(plan(seen, pods)) == ["resize db-7"]
    pods[2] = pod("db-7", LARGE, "r2")
    released = plan(seen, pods)
    assert words(released) == ["release"]
    assert isinstance(released.actions[0], WriteWorkload)
    assert released.actions[0].workload["spec"]["updateStrategy"] == strategy


def test_a_size_that_was_taken_back_is_taken_back_from_pods_that_were_asked_for_it() -> None:
    """The pod has the label of the revision that is the newest again."""
    seen = changed(resized(), SMALL)
    seen = evolve(seen, ("status", "updateRevision"), "r1")
    pods = three("done", "late", "old")
    assert words(plan(seen, pods, r2=LARGE)) == ["resize db-1"]
    assert words(plan(seen, three("done", "old", "old"), r2=LARGE)) == ["resize db-0"]


def test_nothing_is_released_while_a_pod_is_about_to_come() -> None:
    """It would come with the old template, and be recreated at once."""
    parallel = changed(workload("StatefulSet", podManagementPolicy="Parallel"), LARGE)
    unready = [pod("db-0", LARGE, "r2", ready=False), pod("db-1", LARGE, "r2")]
    assert words(plan(parallel, unready)) == []
    assert words(plan(resized(), unready)) == ["release"]  # in order, nothing comes behind db-0
    ended = evolve(three("done", "done", "done")[2], ("status", "phase"), "Failed")
    assert words(plan(resized(), [*three("done", "done"), ended])) == []


# What is not a resize


def test_a_rollout_is_released_at_once() -> None:
    pods = three("old", "sized", "done")
    other = template("1", image="busybox:0")
    assert words(plan(resized(), pods, r1=other)) == ["release"]
    assert words(plan(resized(), [pod("db-0", SMALL, "unknown")])) == ["release"]


def test_nobody_asks_any_more() -> None:
    seen = without(resized(), (*ANNOTATIONS, "resizeAction"))
    assert words(plan(seen, three("old", "old", "old"))) == ["release"]


def test_a_workload_that_is_not_held_is_left_alone() -> None:
    assert plan(workload("StatefulSet"), three("old", "old", "old")).actions == ()
    stale = evolve(resized(), ("metadata", "uid"), "another")
    assert plan(stale, three("old", "old", "old")).actions == ()


# The hold


@pytest.mark.parametrize(
    ("written", "back"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, 0),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, 1),
        ({"type": "RollingUpdate"}, None),
    ],
)
def test_a_hold_that_another_has_taken_off_is_put_on_again(written: Object, back: Any) -> None:
    given = evolve(resized(), ("spec", "updateStrategy"), written)
    again = plan(given, three("old", "old", "old"))
    assert words(again) == ["hold at 3"]
    assert isinstance(again.actions[0], WriteWorkload)
    hold = hold_of(again.actions[0].workload)
    assert hold is not None
    assert lookup(hold.strategy, "rollingUpdate", "partition") == back


def test_on_delete_needs_no_hold() -> None:
    given = evolve(resized(), ("spec", "updateStrategy"), {"type": "OnDelete"})
    released = plan(given, three("old", "old", "old"))
    assert words(released) == ["release"]
    assert isinstance(released.actions[0], WriteWorkload)
    assert released.actions[0].workload["spec"]["updateStrategy"] == {"type": "OnDelete"}


# IBM's table


LIVE, RESTARTS, RECREATES = "LiveResizeable", "ContainerRestartOnly", "RestartOnly"


def with_policy(made: Object, policy: str) -> Object:
    path = ("spec", "containers", 0, "resources", "resizePolicy")
    return evolve(made, path, {"cpu": policy, "memory": policy})


@pytest.mark.parametrize("action", ["", "InPlaceResize", "InPlaceResizePreferred"])
@pytest.mark.parametrize("policy", [LIVE, RESTARTS])
@pytest.mark.parametrize("strategy", ["OnDelete", "RollingUpdate"])
@pytest.mark.parametrize("able", [True, False])
def test_ibms_table(action: str, policy: str, strategy: str, able: bool) -> None:
    small, large = with_policy(SMALL, policy), with_policy(LARGE, policy)
    spec = {"updateStrategy": {"type": "OnDelete"}} if strategy == "OnDelete" else {}
    steady = workload("StatefulSet", action, template=small, **spec)
    written = changed(without(steady, (*ANNOTATIONS, "livesize.dev/resize-policy")), large)
    assert (hold_of(written) is not None) is (strategy == "RollingUpdate")
    kind = "old" if able else "never"
    pods = three(kind, "done", "done", target=large, own=small)
    found = plan(written, pods, r1=small)
    if able:
        marked = ["adjust db-0"] if strategy == "OnDelete" else []
        assert words(found) == [*marked, "resize db-0"]
    elif strategy == "OnDelete":
        assert words(found) == []
        (unfinished,) = status_of(found)["unfinished"]
        waits_for = "Infeasible" if action == "InPlaceResize" else "AwaitsDeletion"
        assert (unfinished["pod"], unfinished["reason"]) == ("db-0", waits_for)
    else:
        assert words(found) == ([] if action == "InPlaceResize" else ["hold at 0"])


@pytest.mark.parametrize("strategy", ["OnDelete", "RollingUpdate"])
@pytest.mark.parametrize(
    ("policy", "action", "why"),
    [
        (RECREATES, "InPlaceResize", "RestartOnly: its policy is RestartOnly"),
        (LIVE, "Restart", "Restart: resizeAction is Restart; delete the pod"),
        (RESTARTS, "Restart", "Restart: resizeAction is Restart; delete the pod"),
    ],
)
def test_a_restart_is_a_rollout_or_waits_for_its_user(
    strategy: str, policy: str, action: str, why: str
) -> None:
    small, large = with_policy(SMALL, policy), with_policy(LARGE, policy)
    spec = {"updateStrategy": {"type": "OnDelete"}} if strategy == "OnDelete" else {}
    written = changed(workload("StatefulSet", action, template=small, **spec), large)
    assert hold_of(written) is None
    found = plan(written, three("old", "old", "old", target=large, own=small), r1=small)
    assert words(found) == []
    if strategy == "OnDelete":
        unfinished = status_of(found)["unfinished"]
        assert {one["reason"] for one in unfinished} == {"AwaitsDeletion"}
        assert all(one["message"].startswith(why) for one in unfinished)


def test_under_on_delete_the_action_restart_resizes_no_running_pod() -> None:
    """Not even one that has the newest revision, and of which somebody requests another size."""
    on_delete = workload("StatefulSet", "Restart", updateStrategy={"type": "OnDelete"})
    written = changed(on_delete, LARGE)
    asked = requested(pod("db-0", LARGE, "r2"), template("4"), condition("Deferred"))
    assert words(plan(written, [asked, *three("done", "done", "done")[1:]])) == []


def test_under_on_delete_policies_alone_wait_for_nobody_also_with_the_action_restart() -> None:
    steady = workload("StatefulSet", "Restart", updateStrategy={"type": "OnDelete"})
    target = template(resizePolicy=RESTART)
    found = plan(changed(steady, target), three("old", "done", "done", target=target))
    assert words(found) == ["adjust db-0"]


def test_under_on_delete_a_pod_with_another_image_is_resized_and_not_counted() -> None:
    written = changed(
        workload("StatefulSet", updateStrategy={"type": "OnDelete"}), template("2", image="b:2")
    )
    target = written["spec"]["template"]
    pods = three("done", "done", "old", target=target)
    assert words(plan(written, pods)) == ["adjust db-2", "resize db-2"]
    pods[2] = pod("db-2", template("2"), "r1")
    assert words(plan(written, pods)) == []


def test_under_on_delete_a_pod_that_somebody_has_resized_is_left_alone() -> None:
    written = changed(workload("StatefulSet", updateStrategy={"type": "OnDelete"}), LARGE)
    larger = pod("db-0", template("4"), "r2")
    assert words(plan(written, [larger, *three("done", "done", "done")[1:]])) == []


# What cannot be resized


@pytest.mark.parametrize(
    ("kinds", "action", "expected"),
    [
        (("done", "done", "never"), "InPlaceResizePreferred", ["hold at 2"]),
        (("done", "done", "late"), "", ["hold at 2"]),
        (("done", "done", "failed"), "", ["hold at 2"]),
        (("done", "never", "done"), "", ["hold at 1"]),
        (("never", "never", "done"), "", ["hold at 1"]),
        (("never", "late", "deferred"), "", []),
        (("done", "never", "deferred"), "", []),
        (("old", "never", "done"), "", ["resize db-0", "hold at 1"]),
        (("done", "done", "late"), "InPlaceResize", []),
        (("done", "done", "never"), "InPlaceResize", []),
    ],
)
def test_what_may_be_recreated_is_left_to_the_controller_one_at_a_time(
    kinds: tuple[str, ...], action: str, expected: list[str]
) -> None:
    assert words(plan(resized(action), three(*kinds))) == expected


@pytest.mark.parametrize(
    ("on_deadline", "action", "kind", "expected"),
    [
        ("Keep", "InPlaceResizePreferred", "never", []),
        ("Evict", "InPlaceResize", "late", ["hold at 2"]),
        ("Restart", "InPlaceResize", "never", ["hold at 2"]),
        ("Revert", "InPlaceResize", "deferred", []),
        ("Revert", "InPlaceResize", "late", ["hold at 3"]),
        ("Revert", "InPlaceResizePreferred", "never", ["hold at 3"]),
    ],
)
def test_what_is_done_at_the_deadline(
    on_deadline: str, action: str, kind: str, expected: list[str]
) -> None:
    seen = resized(action, **{"livesize.dev/on-deadline": on_deadline})
    found = plan(seen, three("done", "done", kind))
    assert words(found) == expected
    if expected == ["hold at 3"]:
        (write,) = found.actions
        assert isinstance(write, WriteWorkload)
        assert write.workload["spec"]["template"] == SMALL
        again = changed(write.workload, SMALL)  # it has its former sizes: no further way back
        assert words(plan(again, three("done", "done", "never", target=SMALL))) == []


def test_the_deadline_counts_from_the_nodes_word() -> None:
    seen = resized(**{"livesize.dev/resize-deadline": "1h"})
    waiting = plan(seen, three("done", "done", "deferred"))
    assert (words(waiting), waiting.wait_seconds) == ([], 3600.0)  # it said so 1 s ago, rounded
    at_once = resized(**{"livesize.dev/resize-deadline": "0s"})
    assert words(plan(at_once, three("done", "late", "done"))) == ["hold at 1"]


def test_a_node_that_does_not_answer_keeps_no_other_pod_waiting() -> None:
    pods = three("old", "old", "asked")
    first = plan(resized(), pods)
    assert (words(first), first.silent) == ([], ("uid-db-2",))
    silences = {"uid-db-2": (2, NOW - 30)}
    assert words(plan(resized(), pods, answers=Answers(silences=silences))) == ["resize db-1"]
    silences = {"uid-db-2": (1, NOW - 30)}  # of an older request
    assert words(plan(resized(), pods, answers=Answers(silences=silences))) == []


REMOVED = without(SMALL, ("spec", "containers", 0, "resources", "limits", "memory"))


@pytest.mark.parametrize(
    ("target", "why"), [(QOS, "QOS"), (REMOVED, "cannot be removed")], ids=["QoS", "removed"]
)
@pytest.mark.parametrize(("action", "expected"), [("", ["hold at 2"]), ("InPlaceResize", [])])
def test_what_would_be_refused_is_seen_before_anything_is_touched(
    target: Object, why: str, action: str, expected: list[str]
) -> None:
    seen = changed(workload("StatefulSet", action), target)
    found = plan(seen, three("old", "old", "old"))
    assert words(found) == expected
    assert any(why in one["message"] for one in status_of(found)["unfinished"])


def test_what_another_server_has_allowed_already_is_no_reason() -> None:
    """Resources of the whole pod, which our own API server does not take."""
    pods = [evolve(one, ("spec", "resources"), {"limits": {"cpu": "4"}}) for one in three("old")]
    assert words(plan(resized(), pods)) == ["resize db-0"]


@pytest.mark.parametrize(
    ("kind", "action", "expected"),
    [
        (RefusalKind.CAPACITY, "", ["hold at 2"]),
        (RefusalKind.CAPACITY, "InPlaceResize", []),
        (RefusalKind.INVALID, "", ["hold at 2"]),
        (RefusalKind.INVALID, "InPlaceResize", []),
        (RefusalKind.FORBIDDEN, "", []),
    ],
)
def test_what_was_refused_is_not_asked_again(
    kind: RefusalKind, action: str, expected: list[str]
) -> None:
    pods = three("done", "done", "old")
    (asked,) = plan(resized(action), pods).actions[:1]
    assert isinstance(asked, ResizePod)
    refusal = PatchRefusal(asked.patch, kind, "no", NOW - 9, NOW - 9)
    found = plan(resized(action), pods, answers=Answers({"uid-db-2": refusal}))
    assert words(found) == expected
    other = PatchRefusal({}, kind, "no", NOW - 9, NOW - 9)
    assert words(plan(resized(action), pods, answers=Answers({"uid-db-2": other}))) == [
        "resize db-2"
    ]
    if kind is RefusalKind.FORBIDDEN:
        assert found.wait_seconds == 21.0
        later = PatchRefusal(asked.patch, kind, "no", NOW - 99, NOW - 30)
        again = plan(resized(action), pods, answers=Answers({"uid-db-2": later}))
        assert words(again) == ["resize db-2"]


def test_a_pod_that_need_not_go_any_more_is_covered_again() -> None:
    """Its partition was lowered for db-2, whose user wants no more that it is recreated."""
    seen = resized()
    (lowered,) = plan(seen, three("done", "done", "never")).actions
    assert isinstance(lowered, WriteWorkload)
    kept = evolve(lowered.workload, (*ANNOTATIONS, "resizeAction"), "InPlaceResize")
    kept = evolve(kept, ("status", "observedGeneration"), kept["metadata"]["generation"])
    assert words(plan(kept, three("done", "done", "never"))) == ["hold at 3"]


# Disruptions


def test_what_is_recreated_heeds_the_budgets() -> None:
    pods = three("done", "done", "never")
    assert words(plan(resized(), pods, budgets=[budget(1)])) == ["hold at 2"]
    waiting = plan(resized(), pods, budgets=[budget(1), budget(0)])
    assert words(waiting) == []
    assert status_of(waiting)["unfinished"][0]["reason"] == "DisruptionBudget"


def restarting() -> Object:
    return changed(workload("StatefulSet", template=SMALL_R), LARGE_R)


@pytest.mark.parametrize(
    ("kinds", "allowed", "expected"),
    [
        (("old", "old", "old"), 1, ["resize db-2"]),
        (("old", "old", "old"), 0, []),
        (("old", "old", "unready"), 1, []),
        (("old", "old", "sized"), 1, ["label r2 db-2", "resize db-1"]),
    ],
)
def test_restarts_of_containers_heed_the_budgets(
    kinds: tuple[str, ...], allowed: int, expected: list[str]
) -> None:
    pods = three(*kinds, target=LARGE_R, own=SMALL_R)
    found = plan(restarting(), pods, budgets=[budget(allowed)], r1=SMALL_R)
    assert words(found) == expected


def test_live_resizes_need_no_budget() -> None:
    assert words(plan(resized(), three("old", "old", "old"), budgets=[budget(0)])) == [
        "resize db-2"
    ]


def test_with_budgets_containers_restart_in_one_pod_at_a_time() -> None:
    many = evolve(restarting(), (*ANNOTATIONS, "livesize.dev/resize-parallelism"), "3")
    pods = three("old", "old", "old", target=LARGE_R, own=SMALL_R)
    assert len(words(plan(many, pods, r1=SMALL_R))) == 3
    assert words(plan(many, pods, budgets=[budget(2)], r1=SMALL_R)) == ["resize db-2"]


def test_a_failed_restart_stops_lower_ordinals() -> None:
    """It has its sizes and is not ready; for a while that is only slow."""
    many = evolve(restarting(), (*ANNOTATIONS, "livesize.dev/resize-parallelism"), "3")
    pods = three("old", "never", "unready", target=LARGE_R, own=SMALL_R)
    failed = plan(many, pods, r1=SMALL_R)
    assert words(failed) == []
    assert "no other pod is begun before db-2 is ready" in status_of(failed)["message"]
    pods = three("unready", "never", "done", target=LARGE_R, own=SMALL_R)
    assert words(plan(many, pods, r1=SMALL_R)) == []  # and recreates none above it either
    pods = three("old", "never", "unready", target=LARGE_R, own=SMALL_R)
    ready = ("status", "conditions", 0, "lastTransitionTime")
    pods[2] = evolve(pods[2], ready, JUST_NOW)
    assert words(plan(many, pods, r1=SMALL_R)) == ["resize db-0"]


# Policies and annotations


def test_policies_and_annotations_are_written_first() -> None:
    target = evolve(LARGE_R, ("metadata", "annotations"), {"livesize.dev/x": "1", "other": "2"})
    seen = changed(workload("StatefulSet"), target)
    found = plan(seen, three("old", "old", "old"))
    assert hold_of(seen) is None  # another annotation is a rollout
    target = evolve(LARGE_R, ("metadata", "annotations"), {"livesize.dev/x": "1"})
    found = plan(changed(workload("StatefulSet"), target), three("old", "old", "old"))
    assert words(found) == ["adjust db-2", "resize db-2"]
    assert isinstance(found.actions[0], AdjustPod)
    assert found.actions[0].patch == {
        "metadata": {"annotations": {"livesize.dev/x": "1", "livesize.dev/noted-revision": "r2"}},
        "spec": {"containers": [{"name": "app", **RESTART}]},
    }


def test_a_change_of_policies_alone_restarts_nothing() -> None:
    seen = changed(workload("StatefulSet", template=with_policy(SMALL, LIVE)), SMALL_R)
    own = with_policy(SMALL, LIVE)
    first = plan(seen, three("old", "old", "old", own=own), r1=own)
    assert words(first) == ["adjust db-2", "adjust db-1", "adjust db-0"]
    assert isinstance(first.actions[0], AdjustPod)
    assert first.actions[0].patch["spec"]["containers"] == [
        {"name": "app", **RESTART, "resources": {"resizePolicy": None}}
    ]
    then = plan(seen, three("sized", "sized", "sized", target=SMALL_R), r1=own)
    assert words(then) == ["label r2 db-2", "label r2 db-1", "label r2 db-0"]


def test_a_policy_that_the_server_does_not_take_is_a_rollout() -> None:
    seen = changed(workload("StatefulSet"), SMALL_R)
    pods = three("done", "done", "old", target=SMALL_R)
    (adjust,) = plan(seen, pods).actions[:1]
    assert isinstance(adjust, AdjustPod)
    refusal = PatchRefusal(adjust.patch, RefusalKind.INVALID, "immutable", NOW, NOW)
    assert words(plan(seen, pods, answers=Answers({"uid-db-2": refusal}))) == ["hold at 2"]


def test_a_restart_that_only_the_annotation_asks_for_is_done_by_no_node() -> None:
    policies = json.dumps({"app": {"cpu": RESTARTS, "memory": LIVE}})
    seen = resized("InPlaceResize", **{"livesize.dev/resize-policy": policies})
    found = plan(seen, three("old", "done", "done"))
    assert words(found) == []
    assert (
        "set its resizePolicy to RestartContainer" in status_of(found)["unfinished"][0]["message"]
    )


# The status


def test_the_status_says_how_it_stands() -> None:
    found = plan(resized(), three("old", "asked", "done"))
    status = status_of(found)
    assert (status["generation"], status["pods"], status["updated"]) == (2, 3, 1)
    assert [one["pod"] for one in status["unfinished"]] == ["db-1", "db-0"]
    assert status["message"] == "1 of 3 pods have the sizes of the template"


def test_the_status_is_written_once_a_second_and_at_the_end() -> None:
    pods = three("old", "asked", "done")
    text = next(
        one.status for one in plan(resized(), pods).actions if isinstance(one, ReportStatus)
    )
    noted = evolve(resized(), (*ANNOTATIONS, RESIZE_STATUS), text)
    assert plan(noted, pods).actions == ()
    soon = plan_workload(set_view(noted, three("old", "sized", "done")), NOW + 0.25)
    assert not any(isinstance(one, ReportStatus) for one in soon.actions)
    assert soon.wait_seconds == 0.75
    later = plan_workload(set_view(noted, three("old", "asked", "deferred")), NOW + 1)
    assert any(isinstance(one, ReportStatus) for one in later.actions)
    end = plan_workload(set_view(noted, three("done", "done", "done")), NOW + 0.25)
    assert status_of(end)["updated"] == 3


def test_at_most_twenty_unfinished_pods_are_named_those_that_wait_first() -> None:
    seen = changed(workload("StatefulSet", "InPlaceResize", replicas=30), LARGE)
    pods = [pod(f"db-{number}", SMALL, "r1") for number in range(30)]
    pods[3] = requested(pods[3], LARGE, condition("Infeasible"))
    status = status_of(plan(seen, pods))
    assert len(status["unfinished"]) == 20
    assert [one["pod"] for one in status["unfinished"][:2]] == ["db-29", "db-3"]


def test_a_size_feasible_on_all_the_nodes_is_named() -> None:
    """IBM: 'restore original size(s) or go for a size feasible on all the nodes'."""
    said = "Node didn't have enough capacity: cpu, requested: 4000, capacity: {}"
    pods = [
        requested(
            pod(f"db-{index}", SMALL, "r1"), LARGE, condition("Infeasible", JUST_NOW, message)
        )
        for index, message in enumerate([said.format(1500), said.format(1900), "no room"])
    ]
    found = plan(resized("InPlaceResize"), pods)
    assert status_of(found)["message"] == (
        "0 of 3 pods have the sizes of the template; 3 cannot have them now (Infeasible): ask for"
        " the former sizes, or for a size feasible on all the nodes (at most cpu 1500m for all"
        " containers of a pod)"
    )
    (report,) = [one for one in found.actions if isinstance(one, ReportStatus)]
    assert report.event is not None
    assert report.event.value == "ResizeInfeasible"


# Virtual machines


def test_a_virtual_machine_goes_the_same_way() -> None:
    def machine(cpu: str) -> Object:
        sizes = {"cpu": cpu, "memory": "1Gi"}
        vm = {
            "image": "guest",
            "kernel": {"image": "/guest"},
            "resources": {"requests": sizes, "limits": sizes},
        }
        return {"metadata": {"labels": {"app": "db"}}, "spec": {"virtualMachine": vm}}

    seen = changed(workload("StatefulSet", template=machine("1")), machine("2"))
    made = evolve(pod("db-2", SMALL, "r1"), ("spec",), machine("1")["spec"])
    made = without(made, ("status", "containerStatuses"))
    (action,) = plan(seen, [made], r1=machine("1")).actions[:1]
    assert isinstance(action, ResizePod)
    sizes = {"cpu": "2", "memory": "1Gi"}
    resources = {"requests": sizes, "limits": sizes}
    assert action.patch == {"spec": {"containers": [{"name": "vm", "resources": resources}]}}
