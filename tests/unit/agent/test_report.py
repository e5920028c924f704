"""Status from what was read back, and what a container is started with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observation import PodSnapshot
from livesize.agent.pods.config import (
    ContainerInputs,
    container_config,
    oom_score_adj,
    scored_size,
    start_limits,
)
from livesize.agent.report import (
    Ending,
    StatusFacts,
    WaitingReason,
    actual_resources,
    build_status,
    changed_status,
    judged_status,
)
from livesize.agent.resize.answers import event_message, failure_message
from livesize.agent.resize.plan import PodObservation
from livesize.agent.volumes.environment import ReferenceContext, environment
from livesize.api.conditions import find_condition
from livesize.api.kernel_units import CgroupVersion, KernelLimits, to_kernel
from livesize.api.objects import Object, evolve
from livesize.api.resources import parse_resources
from livesize.machinery.steps import StepOutcome, StepRecord
from livesize.runtime.interface import (
    ContainerPhase,
    ContainerView,
    MemoryInUseError,
    PodView,
)

V2 = CgroupVersion.V2


def sized(cpu: str, memory: str, name: str = "app") -> Object:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "requests": amounts, "limits": amounts}


def pod(**container: Any) -> Object:
    size = sized("500m", "64Mi")
    resources = {"requests": size["requests"], "limits": size["limits"]}
    return {
        "kind": "Pod",
        "metadata": {"name": "db", "namespace": "default", "uid": "u", "generation": 3},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "app", "image": "i", "resources": resources, **container}],
        },
        "status": {},
    }


def view(phase: ContainerPhase = ContainerPhase.RUNNING, **more: Any) -> ContainerView:
    known = {"attempt": 0, "id": "c0", **more}
    return ContainerView(
        pod_uid="u",
        name="app",
        phase=phase,
        image="i",
        image_id="sha256:1",
        hash="h",
        hash_without_resources="hw",
        pid=7,
        started_at=0.0,
        **known,
    )


ALLOCATION = Allocation("u", "default", "db", 3, (sized("500m", "64Mi"),), (sized("500m", "64Mi"),))


def facts(found: ContainerView | None, the_pod: Object | None = None, **more: Any) -> StatusFacts:
    kernel = to_kernel(parse_resources(ALLOCATION.allocated[0]), V2)
    running = found is not None and found.phase is ContainerPhase.RUNNING
    groups = PodObservation(kernel, {"app": kernel} if running else {})
    shown = PodView("u", "default", "db", () if found is None else (found,))
    known: dict[str, Any] = {
        "allocation": ALLOCATION,
        "waiting": {},
        "ending": None,
        **more,
    }
    return StatusFacts(
        pod=the_pod or pod(),
        snapshot=PodSnapshot(shown, groups),
        cgroup_version=V2,
        runtime_name="process",
        host_ip="127.0.0.1",
        now=100.0,
        **known,
    )


@pytest.mark.parametrize(
    ("given", "phase", "state", "ready"),
    [
        pytest.param(facts(None), "Pending", "waiting", "False", id="not started"),
        pytest.param(facts(view()), "Running", "running", "True", id="runs"),
        pytest.param(
            facts(
                view(ContainerPhase.EXITED, exit_code=1, finished_at=5.0),
                waiting={"app": WaitingReason("CrashLoopBackOff")},
            ),
            "Running",
            "waiting",
            "False",
            id="between two starts",
        ),
        pytest.param(
            facts(
                view(ContainerPhase.EXITED, exit_code=0, finished_at=5.0),
                ending=Ending("Succeeded"),
            ),
            "Succeeded",
            "terminated",
            "False",
            id="ended",
        ),
        pytest.param(
            facts(None, ending=Ending("Failed", "OutOfcpu", "no")),
            "Failed",
            "waiting",
            "False",
            id="rejected",
        ),
    ],
)
def test_phase_state_and_readiness(given: StatusFacts, phase: str, state: str, ready: str) -> None:
    status = build_status(given)
    assert status["phase"] == phase
    assert list(status["containerStatuses"][0]["state"]) == [state]
    condition = find_condition({"status": status}, "Ready")
    assert condition is not None
    assert condition["status"] == ready


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"exit_code": 0}, "Completed"),
        ({"exit_code": 3}, "Error"),
        ({"exit_code": 137, "oom_killed": True}, "OOMKilled"),
    ],
)
def test_why_a_container_ended(more: Object, reason: str) -> None:
    ended = view(ContainerPhase.EXITED, finished_at=5.0, **more)
    status = build_status(facts(ended, ending=Ending("Failed")))
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert terminated["reason"] == reason
    assert terminated["exitCode"] == more["exit_code"]


def test_the_same_facts_change_nothing_and_others_conditions_stay() -> None:
    other: Object = {"type": "example.com/Other", "status": "True"}
    first = evolve(pod(), ("status", "conditions"), [other])
    reported = {**first, "status": build_status(facts(view(), first))}
    assert other in reported["status"]["conditions"]
    later = msgspec.structs.replace(facts(view(), reported), now=500.0)
    assert changed_status(reported, build_status(later)) == {}


def test_how_the_last_start_ended_is_kept_from_the_last_report() -> None:
    ended = view(ContainerPhase.EXITED, exit_code=4, finished_at=5.0)
    before = {**pod(), "status": build_status(facts(ended))}
    status = build_status(facts(view(id="c1", attempt=1), before))
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 4
    again = {**pod(), "status": status}
    status = build_status(facts(view(id="c1", attempt=1), again))
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 4


def test_observed_generation_stays_behind_while_a_resize_waits_to_be_judged() -> None:
    asked = {"resizeState": {"phase": "Requested", "generation": 3}, "observedGeneration": 2}
    waiting = {**pod(), "status": asked}
    assert build_status(facts(view(), waiting))["observedGeneration"] == 2
    judged = evolve(waiting, ("status", "resizeState", "phase"), "Deferred")
    assert build_status(facts(view(), judged))["observedGeneration"] == 3


@pytest.mark.parametrize(
    ("cpu", "memory", "limits"),
    [
        pytest.param("old", "old", {"cpu": "0.1", "memory": "64Mi"}, id="nothing applied yet"),
        pytest.param("new", "old", {"cpu": "2", "memory": "64Mi"}, id="half applied"),
        pytest.param("new", "new", {"cpu": "2", "memory": "128Mi"}, id="applied"),
        pytest.param("odd", "old", {"cpu": "300m", "memory": "64Mi"}, id="somebody else's value"),
    ],
)
def test_actual_is_said_in_the_quantity_it_came_from(cpu: str, memory: str, limits: Object) -> None:
    old, new = sized("0.1", "64Mi"), sized("2", "128Mi")
    kernel = {
        "old": to_kernel(parse_resources(old), V2),
        "new": to_kernel(parse_resources(new), V2),
        "odd": KernelLimits(7, 30_000, None),
    }
    observed = KernelLimits(
        kernel[cpu].cpu_weight, kernel[cpu].cpu_quota_us, kernel[memory].memory_limit_bytes
    )
    actual = actual_resources(new, old, observed, V2)
    assert actual["limits"] == limits
    assert actual["requests"]["memory"] == "64Mi", "memory requests are reported as actuated"


def test_a_container_that_starts_in_the_middle_of_a_resize_gets_the_smaller_size() -> None:
    moving = ALLOCATION.accepted([sized("1", "32Mi")], 4)
    limits = start_limits(moving, "app", V2)
    assert (limits.cpu_quota_us, limits.memory_limit_bytes) == (50_000, 32 * 1024 * 1024)


def test_variables_are_expanded_as_kubernetes_does() -> None:
    env = [
        {"name": "A", "value": "one"},
        {"name": "B", "value": "$(A)-$(NOPE)-$$(A)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    made = pod(env=env, command=["run", "$(B)"], args=["$(POD)"])
    container = made["spec"]["containers"][0]
    references = ReferenceContext(made, {}, {}, {})
    config = container_config(
        made,
        container,
        ALLOCATION,
        KernelLimits(1, None, None),
        ContainerInputs(environment(container, references)),
        attempt=2,
    )
    assert dict(config.env) == {"A": "one", "B": "one-$(NOPE)-$(A)", "POD": "db"}
    assert config.command == ("run", "one-$(NOPE)-$(A)")
    assert config.args == ("db",)


@pytest.mark.parametrize(
    ("requests", "limits", "score"),
    [
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, -997),
        ({}, {}, 1000),
        ({"memory": "1Gi"}, {}, 750),
        ({"cpu": "1"}, {}, 999),
    ],
)
def test_the_more_memory_was_asked_for_the_later_it_is_killed(
    requests: Object, limits: Object, score: int
) -> None:
    made = evolve(
        pod(), ("spec", "containers", 0, "resources"), {"requests": requests, "limits": limits}
    )
    size = {"name": "app", "requests": requests, "limits": limits}
    assert oom_score_adj(made, size, 4 * 1024**3) == score


@pytest.mark.parametrize(
    ("app", "other", "side", "score"),
    [
        ("1Gi", "2Gi", "512Mi", 750),
        ("2Gi", "1Gi", "512Mi", 750),
        ("1Gi", "1Gi", "2Gi", 500),
    ],
    ids=["at least the smallest container's", "whichever that is", "its own, if more"],
)
def test_a_sidecar_is_not_killed_before_those_it_serves(
    app: str, other: str, side: str, score: int
) -> None:
    asked = {"app": app, "other": other, "side": side}
    sizes = {name: {"name": name, "requests": {"memory": one}} for name, one in asked.items()}
    containers = [{"name": name, "resources": sizes[name]} for name in ("app", "other")]
    beside = [{"name": "side", "restartPolicy": "Always", "resources": sizes["side"]}]
    made = {"spec": {"containers": containers, "initContainers": beside}}
    scored = scored_size(made, "side", sizes.__getitem__)
    assert oom_score_adj(made, scored, 4 * 1024**3) == score
    assert scored_size(made, "app", sizes.__getitem__) is sizes["app"]


def test_events_say_what_is_resized_as_kubernetes_does() -> None:
    sizes = [{"name": "c", "limits": {"cpu": "1"}}]
    assert event_message("started", {"spec": {}}, sizes, 7) == (
        'Pod resize started: {"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}],'
        '"generation":7}'
    )
    beside = {"spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}}
    sizes.append({"name": "side", "limits": {"cpu": "2"}})
    assert event_message("started", beside, sizes, 7) == (
        'Pod resize started: {"initContainers":[{"name":"side","resources":{"limits":{"cpu":"2"}}}]'
        ',"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}],"generation":7}'
    )


def test_a_verdict_says_of_each_condition_of_ours_that_the_newest_request_was_seen() -> None:
    """In the commit of the verdict itself: no client sees one without the other."""
    told = [{"type": name, "observedGeneration": 2} for name in ("Ready", "PodScheduled", "other")]
    status = judged_status(evolve(pod(), ("status", "conditions"), told))
    assert status["observedGeneration"] == 3
    seen = {one["type"]: one["observedGeneration"] for one in status["conditions"]}
    assert seen == {"Ready": 3, "PodScheduled": 3, "other": 2}


@pytest.mark.parametrize(
    ("step", "holder"), [("container:app:memory", "app"), ("pod:memory", "the pod")]
)
def test_held_memory_says_who_holds_it(step: str, holder: str) -> None:
    failed = StepRecord(step, 0.0, 0.0, StepOutcome.FAILED)
    held = MemoryInUseError("group", 64 << 20, 100 << 20, None)
    assert failure_message([failed], held) == f"{holder} holds 100Mi, 36Mi to free: {held}"
