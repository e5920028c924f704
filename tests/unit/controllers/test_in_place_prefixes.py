"""Every prefix of every plan of a StatefulSet is safe."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.objects import Object, lookup, name_of
from livesize.api.workload_resize import HELD, held, hold_of
from livesize.controllers.in_place.actions import (
    AdjustPod,
    WriteWorkload,
)
from unit.controllers.workload_objects import (
    ANNOTATIONS,
    LARGE,
    LARGE_R,
    PARTITION,
    ROLLING,
    SMALL,
    SMALL_R,
    budget,
    changed,
    plan,
    three,
    workload,
)

KINDS = ["old", "done", "sized", "asked", "applying", "deferred", "late", "failing", "failed"]
KINDS += ["long", "never", "leaving", "unready", "missing"]


@settings(max_examples=300, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    action=st.sampled_from(["", "InPlaceResize", "InPlaceResizePreferred"]),
    on_deadline=st.sampled_from(["", "Keep", "Revert", "Restart", "Evict"]),
    partition=st.integers(0, 3),
    lowered=st.integers(0, 6),
    parallelism=st.integers(1, 3),
    budgets=st.lists(st.integers(0, 1), max_size=2),
    restarts=st.booleans(),
    parallel=st.booleans(),
)
def test_every_prefix_of_every_plan_is_safe(
    *,
    kinds: list[str],
    action: str,
    on_deadline: str,
    partition: int,
    lowered: int,
    parallelism: int,
    budgets: list[int],
    restarts: bool,
    parallel: bool,
) -> None:
    """No pod that need not be recreated is left to the controller of StatefulSets, and the user's
    own strategy is what comes back."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    small, large = (SMALL_R, LARGE_R) if restarts else (SMALL, LARGE)
    annotations = {"livesize.dev/resize-parallelism": str(parallelism)}
    if on_deadline:
        annotations["livesize.dev/on-deadline"] = on_deadline
    management = "Parallel" if parallel else "OrderedReady"
    steady = workload(
        "StatefulSet",
        action,
        replicas=len(kinds),
        template=small,
        updateStrategy=strategy,
        podManagementPolicy=management,
    )
    seen = changed(steady, large, **annotations)
    pods = three(*kinds, target=large, own=small)
    seen = lower(seen, pods, lowered)
    found = plan(seen, pods, budgets=map(budget, budgets), r1=small)
    may_go = on_deadline in ("Restart", "Evict") or not (on_deadline or action == "InPlaceResize")
    due = {f"db-{index}" for index, kind in enumerate(kinds) if may_go and kind in DUE}
    labels = {name_of(one): lookup(one, *REVISION) for one in pods}
    for done in range(len(found.actions) + 1):
        if done:
            match found.actions[done - 1]:
                case AdjustPod(pod=about, patch=patch):
                    labels[name_of(about)] = lookup(patch, *REVISION)
                case WriteWorkload(workload=written):
                    seen = written
                case _:
                    pass
        check_safe(seen, pods, labels, due, strategy)


DUE = ("never", "late", "failed")
REVISION = ("metadata", "labels", "controller-revision-hash")


def lower(seen: Object, pods: list[Object], to: int) -> Object:
    """As an earlier plan may have left it: for pods that were due then."""
    hold = hold_of(seen)
    assert hold is not None
    covered = [int(name_of(one)[3:]) for one in pods if lookup(one, *REVISION) == "r1"]
    to = max([to, *(index + 1 for index in covered)])
    if to >= hold.partition:
        return seen
    return held(seen, msgspec.structs.replace(hold, partition=to))


def check_safe(
    seen: Object, pods: list[Object], labels: dict[str, Any], due: set[str], strategy: Object
) -> None:
    hold = json.loads(lookup(seen, *ANNOTATIONS, HELD, default="null"))
    assert (seen["spec"]["updateStrategy"] if hold is None else hold["strategy"]) == strategy
    partition = lookup(seen, *PARTITION)
    first = strategy["rollingUpdate"]["partition"]
    for one in pods:
        name = name_of(one)
        index = int(name[3:])
        leaving = lookup(one, "metadata", "deletionTimestamp")
        if index >= max(partition, first) and labels[name] != "r2" and not leaving:
            assert name in due, f"{name} would be recreated"


def test_the_checker_sees_a_release_that_comes_too_early() -> None:
    pods = three("done", "old")
    with pytest.raises(AssertionError, match="db-1 would be recreated"):
        check_safe(workload("StatefulSet"), pods, {"db-0": "r2", "db-1": "r1"}, set(), ROLLING)
