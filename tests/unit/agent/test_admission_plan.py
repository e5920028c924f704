"""What a node takes in: tables by rule, and the property that it never promises too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.admission.plan import (
    UNSUPPORTED,
    Accept,
    Admit,
    Defer,
    Infeasible,
    NodeRoom,
    Reject,
    judge_new,
    judge_resize,
    order_after_restart,
    retry_key,
)
from livesize.agent.admission.support import unsupported_field
from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.judge import Judge
from livesize.api.objects import Object, evolve
from livesize.api.resize_state import ResizePhase, bind_allocated, request_resize
from livesize.api.resources import Amounts

GIB = 1024**3
EMPTY = Amounts(0, 0)


def pod(name: str = "db", cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Object:
    size = {"cpu": cpu, "memory": memory}
    container = {"name": "app", "resources": {"requests": size, "limits": size}}
    made = {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"nodeName": "n", "containers": [container], **spec},
    }
    return bind_allocated(made)


def asks(before: Object, cpu: str, memory: str = "1Gi") -> Object:
    size = {"cpu": cpu, "memory": memory}
    resources = {"requests": size, "limits": size}
    new = evolve(before, ("spec", "containers", 0, "resources"), resources)
    generation = before["metadata"]["generation"] + 1
    new = evolve(new, ("metadata", "generation"), generation)
    return request_resize(before, new, requested_by="test", now="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("used", "verdict"),
    [
        pytest.param(EMPTY, Admit(), id="fits"),
        pytest.param(Amounts(3000, GIB), Admit(), id="fits exactly"),
        pytest.param(
            Amounts(3001, 0),
            Reject(
                "OutOfcpu",
                "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000,"
                " used: 3001, capacity: 4000",
            ),
            id="no cpu left",
        ),
        pytest.param(
            Amounts(0, GIB + 1),
            Reject(
                "OutOfmemory",
                "Pod was rejected: Node didn't have enough resource: memory,"
                f" requested: {GIB}, used: {GIB + 1}, capacity: {2 * GIB}",
            ),
            id="no memory left",
        ),
    ],
)
def test_a_new_pod(used: Amounts, verdict: Admit | Reject) -> None:
    assert judge_new(pod(), NodeRoom(Amounts(4000, 2 * GIB), used)) == verdict


def test_overhead_counts_in_the_fit() -> None:
    room = NodeRoom(Amounts(4000, 2 * GIB), Amounts(2500, 0))
    assert isinstance(judge_new(pod(overhead={"cpu": "500m"}), room), Admit)
    assert isinstance(judge_new(pod(overhead={"cpu": "501m"}), room), Reject)


@pytest.mark.parametrize(
    ("desired", "held", "used", "kind"),
    [
        pytest.param((2000, 100), (1000, 100), (2000, 0), Accept, id="fits exactly"),
        pytest.param((2000, 100), (1000, 100), (2001, 0), Defer, id="no room now"),
        pytest.param((4001, 100), (1000, 100), (0, 0), Infeasible, id="never fits"),
        pytest.param((500, 50), (1000, 100), (9000, 9000), Accept, id="a pure shrink never waits"),
        pytest.param((1000, 50), (1000, 100), (9000, 9000), Accept, id="going back never waits"),
        pytest.param((2000, 50), (1000, 100), (2000, 9000), Accept, id="only what grows is judged"),
        pytest.param((2000, 50), (1000, 100), (2500, 0), Defer, id="the part that grows waits"),
    ],
)
def test_a_resize(
    desired: tuple[int, int], held: tuple[int, int], used: tuple[int, int], kind: type
) -> None:
    room = NodeRoom(Amounts(4000, 1000), Amounts(*used))
    assert isinstance(judge_resize(Amounts(*desired), Amounts(*held), room), kind)


def test_deferred_ones_are_tried_by_priority_then_class_then_age() -> None:
    """Decisions 42."""
    resources = ("spec", "containers", 0, "resources")
    burstable = evolve(pod("b"), (*resources, "limits"), {})
    keys = {
        "important": retry_key(evolve(pod(priority=10), resources, {}), 5),
        "guaranteed, second": retry_key(pod(), 4),
        "guaranteed, first": retry_key(pod(), 3),
        "burstable, before them": retry_key(burstable, 2),
        "best effort, before all": retry_key(evolve(pod(), resources, {}), 1),
    }
    assert sorted(keys, key=lambda name: keys[name]) == [
        "important",
        "guaranteed, first",
        "guaranteed, second",
        "burstable, before them",
        "best effort, before all",
    ]


def test_after_a_restart_what_was_deferred_comes_first_then_all_as_they_were_asked() -> None:
    def asked(phase: str, version: str, **more: Any) -> Object:
        state = {"phase": phase, "requestedVersion": version}
        return evolve(pod(**more), ("status", "resizeState"), state)

    order = {
        "new, second": order_after_restart(asked("Requested", "12", priority=9)),
        "new, first": order_after_restart(asked("Requested", "11")),
        "deferred": order_after_restart(asked("Deferred", "2")),
        "deferred, important": order_after_restart(asked("Deferred", "3", priority=9)),
    }
    assert sorted(order, key=lambda name: order[name]) == [
        "deferred, important",
        "deferred",
        "new, first",
        "new, second",
    ]


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.ephemeralContainers", {"ephemeralContainers": [{"name": "i"}]}),
        ("spec.volumes[0]", {"volumes": [{"name": "v", "nfs": {}}]}),
        (
            "spec.volumes[0].hostPath.type",
            {"volumes": [{"name": "v", "hostPath": {"path": "/x", "type": "Moon"}}]},
        ),
        (
            "spec.containers[0].readinessProbe.grpc",
            {"containers": [{"readinessProbe": {"grpc": {"port": 1}}}]},
        ),
        (
            "spec.securityContext.seccompProfile.type",
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
        ),
        (
            "spec.containers[0].securityContext.seccompProfile.type",
            {"containers": [{"securityContext": {"seccompProfile": {"type": "Localhost"}}}]},
        ),
        (
            "spec.containers[0].env[0].valueFrom",
            {"containers": [{"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}]},
        ),
    ],
)
def test_what_would_be_left_undone_is_refused_by_name(field: str, spec: Object) -> None:
    assert unsupported_field({"spec": spec}).startswith(field + ":")
    verdict = judge_new({"spec": spec}, NodeRoom(Amounts(1, 1), EMPTY))
    assert isinstance(verdict, Reject)
    assert verdict.reason == UNSUPPORTED


def test_a_deferred_resize_blocks_nobody_and_the_better_key_goes_first() -> None:
    ledger = Ledger(Amounts(4000, 8 * GIB))
    judge = Judge(ledger)
    pods = {name: pod(name, priority=priority) for name, priority in (("a", 0), ("b", 5), ("c", 0))}
    for one in pods.values():
        assert judge.admit(one, already_runs=False) == Admit()
    assert judge.consider(asks(pods["a"], "3"))
    assert judge.consider(asks(pods["b"], "2500m"))
    assert judge.consider(asks(pods["c"], "1500m"))
    assert judge.refusal("c") is None, "it fits, though others wait"
    for name in ("a", "b"):
        refusal = judge.refusal(name)
        assert refusal is not None
        assert refusal.phase is ResizePhase.DEFERRED
    ledger.release("c")
    assert judge.retry() == ["b"]
    assert judge.refusal("a") is not None


class Walk:
    """Random asks and completions; the books must never promise more than there is."""

    def __init__(self) -> None:
        self.ledger = Ledger(Amounts(4000, 4 * GIB))
        self.judge = Judge(self.ledger)
        self.pods: dict[str, Object] = {}

    def step(self, word: tuple[str, str, int]) -> None:
        action, name, cpu_milli = word
        if action == "ask" and name not in self.pods:
            made = pod(name, cpu=f"{cpu_milli}m", memory="1Mi")
            if isinstance(self.judge.admit(made, already_runs=False), Admit):
                self.pods[name] = made
        elif action == "ask":
            self.pods[name] = asks(self.pods[name], f"{cpu_milli}m", "1Mi")
            self.judge.consider(self.pods[name])
        elif action == "apply" and name in self.pods:
            entry = self.ledger.get(name)
            assert entry is not None
            self.ledger.record(entry.applied(entry.allocated))
            self.judge.retry()
        elif action == "remove" and self.pods.pop(name, None):
            self.judge.forget(name)
            self.ledger.release(name)
            self.judge.retry()


words = st.tuples(
    st.sampled_from(["ask", "ask", "apply", "remove"]),
    st.sampled_from("abcd"),
    st.integers(1, 5000),
)


@given(st.lists(words, max_size=30))
def test_the_node_never_promises_more_than_it_has(script: list[tuple[str, str, int]]) -> None:
    walk = Walk()
    for word in script:
        walk.step(word)
        assert (walk.ledger.used.cpu_milli or 0) <= 4000
        total = sum(_cpu_milli(entry) for entry in walk.ledger.entries())
        assert total <= (walk.ledger.used.cpu_milli or 0)


def _cpu_milli(entry: Allocation) -> int:
    return sum(int(size["requests"]["cpu"].rstrip("m")) for size in entry.allocated)
