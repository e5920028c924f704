"""The plan of a Deployment: its steps, its proportions, its conditions, what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.shares import share_of
from livesize.api.times import format_time
from livesize.controllers.deployment.plan import (
    DeploymentPlan,
    plan_deployment,
    plan_scaling,
    plan_step,
)
from livesize.controllers.deployment.replica_sets import (
    DESIRED,
    HISTORY,
    MOST,
    REVISION,
    make_rollout,
    max_surge,
    max_unavailable,
)

NOW = 1_700_000_000.0


def template(image: str) -> Object:
    container = {"name": "app", "image": image}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def deployment(replicas: int = 4, image: str = "new", **spec: Any) -> Object:
    """``surge``, ``missing``: of the rolling update; ``status``; the rest goes into the spec."""
    rolling = {"maxSurge": spec.pop("surge", 1), "maxUnavailable": spec.pop("missing", 1)}
    status, annotations = spec.pop("status", {}), spec.pop("annotations", {})
    strategy = spec.pop("strategy", {"type": "RollingUpdate", "rollingUpdate": rolling})
    metadata = {"name": "web", "namespace": "a", "uid": "d", "generation": 1}
    return {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
            "strategy": strategy,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            **spec,
        },
        "status": status,
    }


def replica_set(image: str, replicas: int, available: int | None = None, **more: Any) -> Object:
    """Its name is its image; ``age`` in seconds, ``revision``, ``desired``, ``most``."""
    available = replicas if available is None else available
    said = {REVISION: more.get("revision"), DESIRED: more.get("desired"), MOST: more.get("most")}
    return {
        "metadata": {
            "name": image,
            "uid": image,
            "generation": 1,
            "creationTimestamp": format_time(NOW - more.get("age", 0)),
            "annotations": {key: str(value) for key, value in said.items() if value is not None},
        },
        "spec": {"replicas": replicas, "template": template(image)},
        "status": {
            "replicas": more.get("actual", replicas),
            "readyReplicas": available,
            "availableReplicas": available,
            "terminatingReplicas": more.get("leaving", 0),
            "observedGeneration": more.get("seen", 1),
        },
    }


RECREATE = {"type": "Recreate"}


@pytest.mark.parametrize(("surge", "missing", "replicas", "fenceposts"), [
    (1, 0, 4, (1, 0)),
    ("25%", "25%", 10, (3, 2)),
    ("25%", "25%", 1, (1, 0)),
    (0, "10%", 4, (0, 1)),  # never both 0
    ("0%", "0%", 3, (0, 1)),
    ("150%", 9, 2, (3, 2)),
])  # fmt: skip
def test_surge_is_rounded_up_and_missing_down(
    surge: Any, missing: Any, replicas: int, fenceposts: tuple[int, int]
) -> None:
    made = deployment(replicas, surge=surge, missing=missing)
    assert (max_surge(made), max_unavailable(made)) == fenceposts


@pytest.mark.parametrize(("share", "up", "down"), [(3, 3, 3), ("50%", 3, 2), ("0%", 0, 0)])
def test_a_share_is_a_number_or_a_percentage(share: Any, up: int, down: int) -> None:
    assert share_of(share, 5, rounded_up=True) == up
    assert share_of(share, 5, rounded_up=False) == down


@pytest.mark.parametrize(
    ("wanted", "there", "sizes"),
    [
        pytest.param({}, [("old", 4), ("new", 0)], {"new": 1}, id="the new one takes the surge"),
        pytest.param({}, [("old", 4), ("new", 1, 0)], {"old": 3}, id="what may be missing goes"),
        pytest.param({}, [("old", 3), ("new", 1, 0)], {"new": 2}, id="and makes room"),
        pytest.param({}, [("old", 3), ("new", 2, 0)], {}, id="until new ones are available"),
        pytest.param({}, [("old", 3), ("new", 2, 1)], {"old": 2}, id="one came, one goes"),
        pytest.param({}, [("old", 0), ("new", 4)], {}, id="done"),
        pytest.param({}, [("new", 6)], {"new": 4}, id="too many new ones"),
        pytest.param(
            {"surge": 0}, [("old", 4), ("new", 0)], {"old": 3}, id="no surge: an old one goes first"
        ),
        pytest.param(
            {"missing": 0}, [("old", 4), ("new", 1, 0)], {}, id="none may be missing: all wait"
        ),
        pytest.param(
            {"missing": 0}, [("old", 4), ("new", 1)], {"old": 3}, id="none missing: one by one"
        ),
        pytest.param(
            {"missing": 0},
            [("old", 4, 2), ("new", 1, 0)],
            {},
            id="unhealthy old ones stay while the minimum is not reached",
        ),
        pytest.param(
            {"missing": 2, "surge": 2},
            [("older", 3, 0), ("old", 1), ("new", 2)],
            {"older": 0, "old": 0},
            id="unhealthy old ones go first",
        ),
        pytest.param(
            {"missing": 1},
            [("older", 2), ("old", 2), ("new", 1, 0)],
            {"older": 1},
            id="the oldest shrinks first",
        ),
        pytest.param(
            {"strategy": RECREATE}, [("old", 4), ("new", 0)], {"old": 0}, id="recreate: all go"
        ),
        pytest.param(
            {"strategy": RECREATE}, [("old", 0, 0, {"leaving": 1}), ("new", 0)], {}, id="and end"
        ),
        pytest.param(
            {"strategy": RECREATE}, [("old", 0, 0, {"seen": 0}), ("new", 0)], {}, id="really"
        ),
        pytest.param(
            {"strategy": RECREATE}, [("old", 0), ("new", 0)], {"new": 4}, id="before any comes"
        ),
    ],
)
def test_the_next_step(wanted: Any, there: list[Any], sizes: dict[str, int]) -> None:
    rollout = make_rollout(deployment(**wanted), _replica_sets(there))
    assert plan_step(rollout) == sizes


@pytest.mark.parametrize(
    ("replicas", "there", "sizes"),
    [
        pytest.param(15, [("old", 5, 13), ("new", 8, 13)], {"new": 11, "old": 7}, id="grows"),
        pytest.param(4, [("old", 5, 13), ("new", 8, 13)], {"new": 4, "old": 3}, id="shrinks"),
        pytest.param(0, [("old", 5, 13), ("new", 8, 13)], {"old": 0, "new": 0}, id="to nothing"),
        pytest.param(10, [("old", 5, 13), ("new", 8, 13)], {"old": 5, "new": 8}, id="the same"),
        pytest.param(11, [("old", 6, 13), ("new", 6, 13)], {"new": 8, "old": 6}, id="newer first"),
        pytest.param(8, [("old", 6, 13), ("new", 6, 13)], {"old": 5, "new": 6}, id="older first"),
        pytest.param(7, [("new", 4, 13)], {"new": 7}, id="only one has pods: it gets all"),
        pytest.param(7, [("old", 4, 13), ("new", 0, 13)], {"old": 7}, id="be it an old one"),
        pytest.param(7, [("old", 0, 13), ("new", 0, 13)], {"new": 7}, id="none has: the new one"),
        pytest.param(7, [("older", 0, 13), ("old", 0, 13)], {"old": 7}, id="or the newest"),
    ],
)
def test_a_change_of_replicas_is_shared_by_size(
    replicas: int, there: list[Any], sizes: dict[str, int]
) -> None:
    made = [
        replica_set(image, size, most=most, desired=10, age=9 - index)
        for index, (image, size, most) in enumerate(there)
    ]
    rollout = make_rollout(deployment(replicas, surge=3), made)
    assert plan_scaling(rollout) == sizes
    if len(rollout.active) > 1:
        assert sum(sizes.values()) == (replicas + 3 if replicas else 0)


def _replica_sets(there: list[Any]) -> list[Object]:
    """(image, replicas, available, more), oldest first."""
    made = []
    for index, one in enumerate(there):
        image, replicas, available, more = (*one, None, {})[:4] if len(one) < 4 else one
        made.append(replica_set(image, replicas, available, age=9 - index, **(more or {})))
    return made


SHARES = st.one_of(st.integers(0, 5), st.sampled_from(["0%", "25%", "50%", "100%"]))
SIZES = st.tuples(st.integers(0, 6), st.integers(0, 6))


@settings(max_examples=150)
@given(
    replicas=st.integers(0, 8),
    surge=SHARES,
    missing=SHARES,
    old=st.lists(SIZES, max_size=3),
    new=SIZES,
    data=st.data(),
)
def test_a_rollout_ends_and_is_never_short_of_pods_nor_has_too_many(
    replicas: int, surge: Any, missing: Any, old: list[Any], new: Any, data: Any
) -> None:
    """Whatever there is at the beginning, and in whatever order pods become available or break."""
    wanted = deployment(replicas, surge=surge, missing=missing)
    sets = {f"old{index}": [size, min(up, size)] for index, (size, up) in enumerate(old)}
    sets["new"] = [new[0], min(new)]
    least, most = replicas - max_unavailable(wanted), replicas + max_surge(wanted)
    for turn in range(100):
        before = {name: list(one) for name, one in sets.items()}
        there = [(name, *one) for name, one in sets.items()]
        sizes = plan_step(make_rollout(wanted, _replica_sets(there)))
        for name, size in sizes.items():
            sets[name] = [size, min(sets[name][1], size)]
        _check_step(before, sets, least, most)
        unready = [name for name, (size, up) in sets.items() if up < size]
        if not sizes and (not unready or turn > 50):
            break
        if unready and (turn > 50 or data.draw(st.booleans())):
            sets[data.draw(st.sampled_from(unready))][1] += 1
        elif unready and data.draw(st.booleans()):
            broken = sets[data.draw(st.sampled_from(sorted(sets)))]
            broken[1] = max(0, broken[1] - 1)
    if not unready:
        assert {name: size for name, (size, _) in sets.items() if size} == (
            {"new": replicas} if replicas else {}
        )


def _check_step(before: Any, after: Any, least: int, most: int) -> None:
    """A step makes no more pods than there may be, and takes no available one that is needed."""

    def total(sets: Any, part: int) -> int:
        return sum(one[part] for one in sets.values())

    assert total(after, 0) <= max(most, total(before, 0))
    if after["new"][0] >= before["new"][0]:
        assert total(after, 1) >= min(least, total(before, 1))


# The whole plan


def shown(plan: DeploymentPlan) -> dict[str, int]:
    changed = {name_of(one.after): one.after["spec"]["replicas"] for one in plan.change}
    if plan.create is not None:
        changed["created"] = plan.create["spec"]["replicas"]
    return changed


def test_the_first_replica_set_has_the_template_its_hash_and_an_owner() -> None:
    kept = {"kubernetes.io/change-cause": "because"}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", MOST: "9"}
    made = deployment(3, minReadySeconds=5, annotations={**kept, **applied})
    plan = plan_deployment(made, [], NOW)
    created = plan.create
    assert created is not None
    assert (plan.change, plan.delete, plan.revision) == ((), (), "1")
    name, label = name_of(created), created["metadata"]["labels"]["pod-template-hash"]
    assert name == f"web-{label}"
    assert created["metadata"]["annotations"] == {
        **kept, REVISION: "1", DESIRED: "3", MOST: "4"
    }  # fmt: skip
    assert created["metadata"]["ownerReferences"][0]["uid"] == "d"
    spec = created["spec"]
    assert (spec["replicas"], spec["minReadySeconds"]) == (3, 5)
    assert spec["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": label}
    assert spec["template"]["metadata"]["labels"] == spec["selector"]["matchLabels"]
    assert plan.status is not None
    assert reasons(plan) == {
        "Progressing": "NewReplicaSetCreated",
        "Available": "MinimumReplicasUnavailable",
    }
    assert plan.wait_seconds == 601
    again = plan_deployment(evolve(made, ("status", "collisionCount"), 1), [], NOW)
    assert again.create is not None
    assert name_of(again.create) != name


def reasons(plan: DeploymentPlan) -> dict[str, str]:
    assert plan.status is not None
    return {one["type"]: one["reason"] for one in plan.status["conditions"]}


def test_a_template_that_was_there_before_gets_the_newest_revision() -> None:
    there = [
        replica_set("new", 0, revision=1, age=9),
        replica_set("old", 4, revision=2),
        replica_set("new", 0, revision=0),  # a younger one of the same template is not looked at
    ]
    there[2]["metadata"]["name"] = "same"
    plan = plan_deployment(deployment(annotations={REVISION: "2"}), there, NOW)
    assert plan.create is None
    (change,) = plan.change
    assert name_of(change.after) == "new"
    annotations = change.after["metadata"]["annotations"]
    assert (annotations[REVISION], annotations[HISTORY], plan.revision) == ("3", "1", "3")
    assert change.after["spec"]["replicas"] == 1


def test_the_hash_of_pods_is_no_part_of_a_template() -> None:
    labelled = replica_set("new", 4, desired=4, most=5, revision=1)
    path = ("spec", "template", "metadata", "labels", "pod-template-hash")
    plan = plan_deployment(deployment(), [evolve(labelled, path, "abc")], NOW)
    assert (plan.create, shown(plan)) == (None, {})


def test_a_paused_deployment_scales_and_rolls_nothing_out() -> None:
    there = [replica_set("old", 4, revision=1, desired=4, most=5)]
    assert shown(plan_deployment(deployment(paused=True), there, NOW)) == {}
    plan = plan_deployment(deployment(6, paused=True), there, NOW)
    assert shown(plan) == {"old": 6}
    assert reasons(plan)["Progressing"] == "DeploymentPaused"
    assert plan.wait_seconds is None
    resumed = deployment(4, status=plan.status)
    plan = plan_deployment(resumed, there, NOW)
    assert shown(plan) == {"created": 1, "old": 3}


def test_a_deployment_that_goes_does_nothing_any_more() -> None:
    leaving = evolve(deployment(), ("metadata", "deletionTimestamp"), format_time(NOW))
    plan = plan_deployment(leaving, [replica_set("old", 4)], NOW)
    assert (plan.create, plan.change, plan.delete, plan.revision) == (None, (), (), None)


DONE = {"updatedReplicas": 4, "replicas": 4, "availableReplicas": 4, "observedGeneration": 1}


@pytest.mark.parametrize(("limit", "deleted"), [
    (0, ["c", "b", "a"]),
    (1, ["c", "b"]),
    (3, []),
    (2**31 - 1, []),
])  # fmt: skip
def test_the_lowest_revisions_are_deleted_when_all_is_done(limit: int, deleted: list[str]) -> None:
    there = [
        replica_set(name, 0, revision=revision)
        for name, revision in zip("abc", (3, 2, 1), strict=True)
    ]
    there.append(replica_set("new", 4, revision=4))
    done = deployment(status=DONE, revisionHistoryLimit=limit)
    assert list(map(name_of, plan_deployment(done, there, NOW).delete)) == deleted
    undone = deployment(revisionHistoryLimit=limit)
    assert plan_deployment(undone, there, NOW).delete == ()


@pytest.mark.parametrize("more", [{"actual": 1}, {"seen": 0}, {"leaving": 1}])
def test_a_replica_set_with_pods_is_not_deleted(more: Object) -> None:
    there = [replica_set("old", 0, revision=1, **more), replica_set("new", 4, revision=2)]
    done = deployment(status=DONE, revisionHistoryLimit=0)
    assert plan_deployment(done, there, NOW).delete == ()


def progressing(reason: str, since: float, status: str = "True") -> Object:
    times = {key: format_time(since) for key in ("lastUpdateTime", "lastTransitionTime")}
    condition = {"type": "Progressing", "status": status, "reason": reason, **times}
    counts = {"replicas": 5, "updatedReplicas": 1, "readyReplicas": 4, "availableReplicas": 4}
    return {"conditions": [condition], **counts}


@pytest.mark.parametrize(
    ("status", "there", "said"),
    [
        pytest.param(
            progressing("ReplicaSetUpdated", NOW - 100),
            [("old", 4), ("new", 1, 0)],
            ("True", "ReplicaSetUpdated", 100.0, 501.0),
            id="nothing has happened",
        ),
        pytest.param(
            progressing("ReplicaSetUpdated", NOW - 100),
            [("old", 3), ("new", 1, 0)],
            ("True", "ReplicaSetUpdated", 0.0, 601.0),
            id="an old pod is gone",
        ),
        pytest.param(
            progressing("NewReplicaSetCreated", NOW - 601),
            [("old", 4), ("new", 1, 0)],
            ("False", "ProgressDeadlineExceeded", 0.0, None),
            id="for too long",
        ),
        pytest.param(
            {**progressing("ProgressDeadlineExceeded", NOW - 900, "False"), "updatedReplicas": 0},
            [("old", 4), ("new", 1, 0)],
            ("True", "ReplicaSetUpdated", 0.0, 601.0),
            id="late, and yet",
        ),
        pytest.param(
            progressing("ReplicaSetUpdated", NOW - 100),
            [("new", 4)],
            ("True", "NewReplicaSetAvailable", 0.0, None),
            id="done",
        ),
        pytest.param(
            {**progressing("NewReplicaSetAvailable", NOW - 900), "replicas": 4},
            [("new", 4, 3)],
            ("True", "NewReplicaSetAvailable", 900.0, None),
            id="what was done stays so, whatever becomes of its pods",
        ),
        pytest.param(
            progressing("DeploymentPaused", NOW - 900, "Unknown"),
            [("old", 4), ("new", 1, 0)],
            ("Unknown", "DeploymentResumed", 0.0, 601.0),
            id="the time of a pause does not count",
        ),
        pytest.param({}, [("new", 0)], ("True", "FoundNewReplicaSet", 0.0, 601.0), id="found"),
    ],
)
def test_progress(status: Object, there: list[Any], said: tuple[Any, ...]) -> None:
    plan = plan_deployment(deployment(status=status), _replica_sets(there), NOW)
    condition = find_condition({"status": plan.status or status}, "Progressing")
    assert condition is not None
    since = format_time(NOW - said[2])
    assert (condition["status"], condition["reason"], condition["lastUpdateTime"]) == (
        *said[:2], since
    )  # fmt: skip
    assert plan.wait_seconds == said[3]


def test_without_a_deadline_there_is_no_progress_to_judge() -> None:
    never = deployment(
        status=progressing("ReplicaSetUpdated", NOW), progressDeadlineSeconds=2**31 - 1
    )
    plan = plan_deployment(never, [replica_set("new", 1, 0)], NOW)
    assert ("Progressing" in reasons(plan), plan.wait_seconds) == (False, None)


def test_the_failure_of_a_replica_set_is_the_deployments() -> None:
    there = replica_set("new", 4, 0)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    failure |= {"message": "quota", "lastTransitionTime": format_time(NOW)}
    there = evolve(there, ("status", "conditions"), [failure])
    plan = plan_deployment(deployment(), [there], NOW)
    assert plan.status is not None
    found = find_condition({"status": plan.status}, "ReplicaFailure")
    assert found == {**failure, "lastUpdateTime": format_time(NOW)}
    healed = plan_deployment(deployment(status=plan.status), [replica_set("new", 4)], NOW)
    assert "ReplicaFailure" not in reasons(healed)


def test_a_status_says_what_the_replica_sets_say() -> None:
    there = [replica_set("old", 2, leaving=3), replica_set("new", 3, 1)]
    plan = plan_deployment(deployment(surge=1, missing=0), there, NOW)
    assert plan.status is not None
    counts = {key: value for key, value in plan.status.items() if key != "conditions"}
    assert counts == {
        "observedGeneration": 1,
        "replicas": 5,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "unavailableReplicas": 2,
        "terminatingReplicas": 3,
    }


def test_a_plan_that_was_carried_out_plans_nothing_more() -> None:
    made = deployment(annotations={REVISION: "1"})
    there = [replica_set("new", 4, revision=1, desired=4, most=5)]
    first = plan_deployment(made, there, NOW)
    assert first.status is not None
    again = plan_deployment(evolve(made, ("status",), first.status), there, NOW + 999)
    assert again == DeploymentPlan()
    assert lookup(first.status, "conditions", 0, "reason")
