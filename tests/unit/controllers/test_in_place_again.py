"""A template changes again while its last change is under way; each found by sequences of the
simulator (livesize sim --scenario workloads)."""

from __future__ import annotations

from livesize.api.objects import Object, evolve, lookup
from livesize.controllers.in_place.actions import AdjustPod, SetReplicaSetTemplate
from livesize.controllers.in_place.plan import plan_workload
from unit.controllers.workload_objects import (
    ANNOTATIONS,
    LARGE,
    LARGE_R,
    LIVE_POLICY,
    NOW,
    RESTART,
    SMALL,
    SMALL_R,
    changed,
    deployment_view,
    plan,
    pod,
    replica_set,
    requested,
    resized,
    template,
    three,
    words,
    workload,
)

NOTED = (*ANNOTATIONS, "livesize.dev/noted-revision")
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}


def owned(*pods: Object) -> list[Object]:
    references = [{"uid": "new", "controller": True, "kind": "ReplicaSet"}]
    return [evolve(one, ("metadata", "ownerReferences"), references) for one in pods]


def back(spec: Object | None = None) -> Object:
    """A StatefulSet whose template has gone to other sizes and back: r1 is the newest again."""
    there = changed(workload("StatefulSet", **(spec or {})), LARGE_R)
    return evolve(changed(there, SMALL), ("status", "updateRevision"), "r1")


def test_policies_go_back_with_the_template() -> None:
    """The pod was given those of r2, and not labelled yet. Its label says that it has r1's."""
    given = evolve(pod("db-2", LARGE_R, "r1"), NOTED, "r2")
    found = plan(back(), [*three("old", "old"), given], r2=LARGE_R)
    assert words(found) == ["adjust db-2", "resize db-2"]
    assert isinstance(found.actions[0], AdjustPod)
    patch = found.actions[0].patch
    assert patch["spec"]["containers"] == [{"name": "app", "resizePolicy": None}]
    assert lookup(patch, *NOTED) == "r1"


def test_the_label_says_all_that_was_noted() -> None:
    given = evolve(pod("db-2", LARGE_R, "r1"), NOTED, "r2")
    found = plan(changed(workload("StatefulSet"), LARGE_R), [*three("old", "old"), given])
    labels = [one for one in found.actions if isinstance(one, AdjustPod) and one.pod is given]
    assert labels[0].patch["metadata"]["annotations"] == {NOTED[-1]: None}
    assert words(found)[0] == "label r2 db-2"


def test_under_on_delete_what_was_begun_goes_back() -> None:
    """A labelled pod with other sizes is left alone there, unless the controller gave it them."""
    labelled = [pod(f"db-{index}", SMALL, "r1") for index in range(2)]
    larger = pod("db-2", LARGE, "r1")
    assert words(plan(back(ON_DELETE), [*labelled, larger], r2=LARGE_R)) == []
    begun = evolve(larger, NOTED, "r2")
    found = words(plan(back(ON_DELETE), [*labelled, begun], r2=LARGE_R))
    assert found == ["adjust db-2", "resize db-2"]


def test_under_on_delete_a_resize_that_begins_is_marked() -> None:
    found = plan(changed(workload("StatefulSet", **ON_DELETE), LARGE), three("old", "old", "old"))
    assert words(found) == ["adjust db-2", "resize db-2"]
    assert isinstance(found.actions[0], AdjustPod)
    assert lookup(found.actions[0].patch, *NOTED) == "r2"


def test_under_on_delete_a_pod_with_another_image_has_the_new_policies() -> None:
    """Else its node would restart its containers by the old ones."""
    own = template("1", image="b:2", **RESTART)
    written = changed(workload("StatefulSet", template=own, **ON_DELETE), LARGE)
    found = plan(written, [pod("db-0", own, "r1")], r1=own)
    assert words(found) == ["adjust db-0", "resize db-0"]
    assert isinstance(found.actions[0], AdjustPod)
    patched = found.actions[0].patch["spec"]["containers"]
    assert patched == [{"name": "app", "resizePolicy": None}]


def test_a_pod_that_has_not_begun_to_run_has_not_failed_to_restart() -> None:
    """For want of room, for instance, which the resize of the others may make."""
    sized = [pod("db-0", SMALL_R, "r1"), pod("db-1", SMALL_R, "r1")]
    pending = evolve(pod("db-2", LARGE_R, "r1", ready=False), ("status", "phase"), "Pending")
    found = plan(changed(workload("StatefulSet", template=SMALL_R), LARGE_R), [*sized, pending])
    assert words(found) == ["label r2 db-2", "resize db-1"]
    running = evolve(pending, ("status", "phase"), "Running")
    found = plan(
        changed(workload("StatefulSet", template=SMALL_R), LARGE_R), [*sized, running], r1=SMALL_R
    )
    assert words(found) == []


def test_annotations_that_the_template_has_lost_are_taken_off_the_pods_of_a_deployment() -> None:
    """An action Restart that stayed on a pod would restart its containers at the next resize."""
    owner = changed(workload("Deployment"), LARGE)
    asked = evolve(pod("db-0", LARGE), (*ANNOTATIONS, "resizeAction"), "Restart")
    others = (*ANNOTATIONS, "example.com/own")
    view = deployment_view(owner, [replica_set("new", LARGE)], owned(evolve(asked, others, "kept")))
    (action,) = [one for one in plan_workload(view, NOW).actions if isinstance(one, AdjustPod)]
    assert action.patch == {"metadata": {"annotations": {"resizeAction": None}}}


def test_a_replica_set_does_not_contradict_its_new_template() -> None:
    """Its copy of the annotation is as old as its template; the API server would refuse both."""
    old = evolve(replica_set("new", SMALL), (*ANNOTATIONS, "livesize.dev/resize-policy"), "{}")
    for action, expected in (("InPlaceResize", None), ("", LIVE_POLICY)):
        owner = changed(workload("Deployment", action), LARGE)
        found = plan_workload(deployment_view(owner, [old], owned(*three("old"))), NOW)
        (written,) = [one for one in found.actions if isinstance(one, SetReplicaSetTemplate)]
        said = lookup(written.replica_set, *ANNOTATIONS, "livesize.dev/resize-policy")
        assert said == expected


def test_a_deployment_whose_pods_are_about_to_be_made_is_not_released() -> None:
    """Scaled from 0 and resized in one write: its controller makes the pods from the old template,
    and would roll out at once."""
    owner = evolve(changed(workload("Deployment"), LARGE), ("status",), {"observedGeneration": 2})
    empty = replica_set("new", SMALL, 0)
    assert words(plan_workload(deployment_view(owner, [empty], []), NOW)) == []
    assert words(plan_workload(deployment_view(owner, [], []), NOW)) == ["release"]
    none = evolve(owner, ("spec", "replicas"), 0)
    assert words(plan_workload(deployment_view(none, [empty], []), NOW)) == ["release"]


def test_a_pod_is_given_free_only_when_all_above_it_serve() -> None:
    """While db-2 leaves there may be room for db-1 soon, and then it need not be recreated."""
    seen = changed(workload("StatefulSet"), LARGE)
    assert words(plan(seen, three("old", "late", "done"))) == ["resize db-0", "hold at 1"]
    for above in ("leaving", "missing"):
        assert words(plan(seen, three("old", "late", above))) == ["resize db-0"]
    starting = pod("db-2", LARGE, "r2", ready=False)
    assert words(plan(seen, [*three("old", "late"), starting])) == ["resize db-0"]


def test_a_requested_resize_is_what_is_going_back_from() -> None:
    """Sizes are compared on the pod itself."""
    asked = evolve(requested(pod("db-2", SMALL, "r1"), LARGE_R), NOTED, "r2")
    assert "resize db-2" in words(plan(back(), [*three("old", "old"), asked], r2=LARGE_R))


def test_a_pod_that_has_no_room_does_not_wait_for_those_that_wait_for_it() -> None:
    """db-1 is to be recreated by policies that came later, and db-2 comes when db-1 is ready. With
    the size that it has it never is; left to its controller, it comes back with the new one once
    it is deleted."""
    policies = ("spec", "containers", 0, "resources", "resizePolicy")
    target = evolve(LARGE, policies, {"memory": "LiveResizeable"})
    written = changed(resized(), target)
    serving = [pod("db-0", SMALL, "r1"), pod("db-1", SMALL, "r1")]
    pending = evolve(pod("db-1", SMALL, "r1", ready=False), ("status", "phase"), "Pending")
    assert words(plan(written, [serving[0], pending])) == ["hold at 1"]
    assert words(plan(written, serving)) == [], "db-2 comes"
    parallel = evolve(written, ("spec", "podManagementPolicy"), "Parallel")
    assert words(plan(parallel, [serving[0], pending])) == [], "db-2 comes"
