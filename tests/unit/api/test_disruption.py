"""Which budgets protect a pod, and what an eviction may take of them."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.disruption import (
    Charged,
    Disputed,
    Protected,
    Unprotected,
    judge_eviction,
    protects,
)
from livesize.api.objects import Object, evolve

NOW = "2026-01-01T00:00:00Z"


def pod(name: str = "web-0", *, ready: bool = True, **labels: str) -> Object:
    return {
        "metadata": {"name": name, "labels": labels or {"app": "web"}},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def budget(name: str = "web", **status: Any) -> Object:
    counted = {"observedGeneration": 1, "currentHealthy": 3, "desiredHealthy": 2}
    return {
        "metadata": {"name": name, "generation": 1},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        "status": {**counted, "disruptionsAllowed": 1, **status},
    }


@pytest.mark.parametrize(("selector", "labels", "protected"), [
    (None, {"app": "web"}, False),
    ({}, {}, True),
    ({"matchLabels": {"app": "web"}}, {"app": "web", "more": "x"}, True),
    ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}, {"app": "a"}, True),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {}, True),
    ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}, False),
    ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]},
     {"a": "b", "c": "d"}, False),
])  # fmt: skip
def test_which_pods_a_budget_protects(selector: Any, labels: Any, protected: bool) -> None:
    spec = {} if selector is None else {"selector": selector}
    assert protects({"spec": spec}, {"metadata": {"labels": labels}}) is protected


def test_one_disruption_is_taken_and_noted() -> None:
    verdict = judge_eviction(pod(), [budget("other", x=1) | {"spec": {}}, budget()], NOW)
    assert isinstance(verdict, Charged)
    assert verdict.budget["metadata"]["name"] == "web"
    assert verdict.budget["status"]["disruptionsAllowed"] == 0
    assert verdict.budget["status"]["disruptedPods"] == {"web-0": NOW}


def ending(**metadata: Any) -> Object:
    return {**pod(), "metadata": {**pod()["metadata"], **metadata}}


@pytest.mark.parametrize("leaving", [
    pytest.param(ending(deletionTimestamp=NOW), id="leaves anyhow"),
    pytest.param(evolve(pod(), ("status", "phase"), "Failed"), id="has ended"),
    pytest.param(evolve(pod(), ("status", "phase"), "Pending"), id="does not run yet"),
    pytest.param(pod(app="db"), id="is not protected"),
])  # fmt: skip
def test_who_serves_nobody_may_go(leaving: Object) -> None:
    assert judge_eviction(leaving, [budget(disruptionsAllowed=0)], NOW) == Unprotected()


@pytest.mark.parametrize(("status", "why"), [
    ({"disruptionsAllowed": 0}, "needs 2 healthy pods and has 3 currently"),
    ({"observedGeneration": 0}, "is still being processed by the server"),
    ({"disruptedPods": dict.fromkeys(map(str, range(2001)), NOW)}, "too many evictions"),
    ({"disruptionsAllowed": 0, "conditions": [
        {"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "set a number"}]},
     "cannot be counted: set a number"),
])  # fmt: skip
def test_why_a_protected_pod_stays(status: Any, why: str) -> None:
    verdict = judge_eviction(pod(), [budget(**status)], NOW)
    assert isinstance(verdict, Protected)
    assert why in verdict.why


@pytest.mark.parametrize(("policy", "healthy", "goes"), [
    ("", 2, True), ("IfHealthyBudget", 1, False), ("AlwaysAllow", 1, True),
])  # fmt: skip
def test_a_pod_that_is_not_ready(policy: str, healthy: int, goes: bool) -> None:
    """It goes without taking a disruption: it serves nobody."""
    one = budget(disruptionsAllowed=0, currentHealthy=healthy)
    if policy:
        one = evolve(one, ("spec", "unhealthyPodEvictionPolicy"), policy)
    verdict = judge_eviction(pod(ready=False), [one], NOW)
    assert (verdict == Unprotected()) is goes


def test_two_budgets_are_one_too_many() -> None:
    assert judge_eviction(pod(), [budget("b"), budget("a")], NOW) == Disputed(("a", "b"))
