"""The state machine of a resize: who may move it where, and what is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.objects import Object, evolve
from livesize.api.resize_state import (
    MAXIMUM_STEPS,
    REQUEST_STATUS,
    TRANSITIONS,
    IllegalTransitionError,
    ResizePhase,
    apply_resizing,
    bind_allocated,
    check_transition,
    phase_of,
    request_resize,
    resize_state,
)

NOW, LATER = "2026-08-01T10:00:00Z", "2026-08-01T10:00:05Z"
SMALL = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}


def bound(*, generation: int = 1, node: str = "n1", **sizes: Object) -> Object:
    pod: Object = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "uid": "u-1", "generation": generation},
        "spec": {
            "containers": [
                {"name": name, "image": "i", "resources": size}
                for name, size in (sizes or {"a": SMALL}).items()
            ]
        },
        "status": {"phase": "Pending"},
    }
    if not node:
        return pod
    return bind_allocated(evolve(pod, ("spec", "nodeName"), node))


def ask(pod: Object, *, now: str = NOW, **sizes: Object) -> Object:
    """What the API server stores when somebody asks for other sizes."""
    new = pod
    for index, container in enumerate(pod["spec"]["containers"]):
        if container["name"] in sizes:
            path = ("spec", "containers", index, "resources")
            new = evolve(new, path, sizes[container["name"]])
    generation = pod["metadata"]["generation"] + 1
    new = evolve(new, ("metadata", "generation"), generation)
    return request_resize(pod, new, requested_by="ann", now=now)


def answer(status: str, /, **fields: Any) -> Object:
    return {"kind": "Resizing", "request": {"requestStatus": status}, **fields}


def refusal(pod: Object, body: Object, **options: Any) -> StatusError:
    before = copy.deepcopy(pod)
    with pytest.raises(StatusError) as caught:
        apply_resizing(pod, body, now=LATER, **options)
    assert pod == before, "a refused answer changes nothing"
    return caught.value


def test_binding_records_what_the_spec_asks_as_allocated() -> None:
    state = resize_state(bound(a=SMALL, b={}))
    assert state == {
        "generation": 1,
        "phase": "None",
        "allocated": [{"name": "a", **SMALL}, {"name": "b"}],
    }


def test_binding_twice_keeps_what_was_allocated() -> None:
    asked = ask(bound(), a=LARGE)
    assert bind_allocated(asked) == asked


def test_a_request_keeps_allocated_and_names_the_changed_containers() -> None:
    asked = ask(bound(a=SMALL, b=SMALL), a=LARGE)
    assert resize_state(asked) == {
        "generation": 2,
        "requestedBy": "ann",
        "desired": [{"name": "a", **LARGE}],
        "allocated": [{"name": "a", **SMALL}, {"name": "b", **SMALL}],
        "phase": "Requested",
        "message": "The resize has been asked for and not judged yet.",
        "transitionTime": NOW,
        "steps": [],
    }


def test_another_spelling_of_the_same_quantities_asks_for_nothing() -> None:
    same = {
        "requests": {"cpu": "0.5", "memory": "65536Ki"},
        "limits": {"cpu": "1000m", "memory": "128Mi"},
    }
    assert phase_of(ask(bound(), a=same)) is ResizePhase.NONE


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(bound(node=""), id="not bound: allocated follows the requests"),
        pytest.param(evolve(bound(), ("status", "phase"), "Succeeded"), id="ended"),
    ],
)
def test_nobody_is_asked_about_a_pod_that_does_not_run(pod: Object) -> None:
    asked = ask(pod, a=LARGE)
    assert asked["spec"]["containers"][0]["resources"] == LARGE
    assert phase_of(asked) is ResizePhase.NONE


def test_a_newer_request_still_names_what_is_unfinished() -> None:
    first = ask(bound(a=SMALL, b=SMALL), a=LARGE)
    second = ask(first, b=LARGE)
    assert [size["name"] for size in resize_state(second)["desired"]] == ["a", "b"]
    assert resize_state(second)["generation"] == 3


def test_going_back_to_the_old_size_is_a_request_too() -> None:
    back = ask(ask(bound(), a=LARGE), a=SMALL)
    assert phase_of(back) is ResizePhase.REQUESTED
    assert resize_state(back)["desired"] == [{"name": "a", **SMALL}]


def test_accepted_by_the_node_allocates_all_that_is_asked() -> None:
    done = apply_resizing(ask(bound(), a=LARGE), answer("Accepted", generation=2), now=LATER)
    state = resize_state(done)
    assert state["phase"] == "InProgress"
    assert state["allocated"] == [{"name": "a", **LARGE}]
    assert state["transitionTime"] == LATER
    assert state["observedGeneration"] == 2


def test_accepted_by_the_scheduler_allocates_nothing() -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer("Accepted"), now=LATER, from_node=False)
    assert resize_state(pod)["phase"] == "Accepted"
    assert resize_state(pod)["allocated"] == [{"name": "a", **SMALL}]


def test_the_node_may_say_itself_what_it_allocated() -> None:
    pod = ask(bound(a=SMALL, b=SMALL), a=LARGE)
    body = answer("Rejected", phase="Deferred", allocated=[{"name": "b", **LARGE}])
    state = resize_state(apply_resizing(pod, body, now=LATER))
    assert state["allocated"] == [{"name": "a", **SMALL}, {"name": "b", **LARGE}]


def test_done_comes_with_the_status_in_one_piece() -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer("Accepted"), now=NOW)
    status = {
        "observedGeneration": 2,
        "containerStatuses": [
            {"name": "a", "resources": LARGE, "allocatedResources": {"cpu": "9"}}
        ],
        "resizeState": {"phase": "None"},
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodResized", "status": "x"}],
    }
    steps = [{"name": "cpu", "outcome": "Done"}]
    done = apply_resizing(pod, answer("Done", status=status, steps=steps), now=LATER)
    assert done["status"]["containerStatuses"] == [{"name": "a", "resources": LARGE}]
    assert done["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    assert done["status"]["observedGeneration"] == 2
    assert done["status"]["phase"] == "Pending"
    assert resize_state(done)["phase"] == "Done"
    assert resize_state(done)["steps"] == steps


def test_the_same_answer_twice_changes_nothing() -> None:
    pod = ask(bound(), a=LARGE)
    once = apply_resizing(pod, answer("Accepted", generation=2), now=NOW)
    twice = apply_resizing(once, answer("Accepted", generation=2), now=LATER)
    assert twice == once


def test_steps_are_bounded() -> None:
    steps = [{"name": str(number)} for number in range(MAXIMUM_STEPS + 10)]
    pod = apply_resizing(ask(bound(), a=LARGE), answer("Accepted", steps=steps), now=NOW)
    assert resize_state(pod)["steps"] == steps[-MAXIMUM_STEPS:]


@pytest.mark.parametrize(
    ("status", "fields", "phase"),
    [
        ("Rejected", {}, "Deferred"),
        ("Rejected", {"reason": "Infeasible"}, "Infeasible"),
        ("Rejected", {"phase": "Infeasible"}, "Infeasible"),
        ("Accepted", {"phase": "Error", "message": "no"}, "Error"),
        ("Done", {}, "Done"),
    ],
)
def test_words_of_an_answer(status: str, fields: Object, phase: str) -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer(status, **fields), now=LATER)
    assert resize_state(pod)["phase"] == phase
    assert resize_state(pod)["message"]


@pytest.mark.parametrize(
    ("body", "options", "code"),
    [
        pytest.param(answer("Accepted", generation=1), {}, 409, id="older than what is asked"),
        pytest.param(answer("Accepted", generation=9), {}, 409, id="newer than the pod"),
        pytest.param(answer("Accepted", metadata={"uid": "other"}), {}, 409, id="another pod"),
        pytest.param(
            {"request": {"requestStatus": "Accepted", "newResources": [{"name": "a", **SMALL}]}},
            {},
            409,
            id="judged other resources",
        ),
        pytest.param(answer("Requested"), {}, 422, id="nobody may ask here"),
        pytest.param(answer("Done", phase="Deferred"), {}, 422, id="words that contradict"),
        pytest.param(answer("Done", phase="Great"), {}, 422, id="unknown phase"),
        pytest.param(answer("Done", generation="2"), {}, 422, id="generation is text"),
        pytest.param(answer("Done", allocated=[{"name": "z"}]), {}, 422, id="unknown container"),
        pytest.param(
            answer("Done", allocated=[{"name": "a", "requests": {"cpu": "x"}}]),
            {},
            422,
            id="bad quantity",
        ),
        pytest.param(answer("Done", status={"containerStatuses": 1}), {}, 422, id="bad status"),
        pytest.param(
            answer("Done", status={"initContainerStatuses": [{"resources": {"limits": 1}}]}),
            {},
            422,
            id="bad status of a sidecar",
        ),
        pytest.param({}, {}, 422, id="empty body"),
        pytest.param(answer("Done"), {"from_node": False}, 403, id="a scheduler is never done"),
        pytest.param(
            answer("Accepted", phase="InProgress"),
            {"from_node": False},
            403,
            id="a scheduler applies nothing",
        ),
        pytest.param(
            answer("Accepted", allocated=[]), {"from_node": False}, 403, id="nor allocates"
        ),
        pytest.param(
            answer("Rejected", status={"phase": "Failed"}),
            {"from_node": False},
            403,
            id="nor writes status",
        ),
    ],
)
def test_refused_answers(body: Object, options: Object, code: int) -> None:
    assert refusal(ask(bound(), a=LARGE), body, **options).code == code


def test_a_scheduler_that_comes_late_does_not_overrule_the_node() -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer("Rejected"), now=NOW)
    assert refusal(pod, answer("Accepted"), from_node=False).code == 409
    again = ask(pod, a=SMALL)
    assert phase_of(apply_resizing(again, answer("Accepted"), now=LATER, from_node=False)) == (
        ResizePhase.ACCEPTED
    )


@pytest.mark.parametrize("verdict", ["Accepted", "Rejected"])
def test_a_verdict_of_the_scheduler_never_stops_the_node(verdict: str) -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer(verdict), now=NOW, from_node=False)
    for status, phase in (("Rejected", "Deferred"), ("Accepted", "InProgress"), ("Done", "Done")):
        pod = apply_resizing(pod, answer(status), now=LATER)
        assert phase_of(pod) == phase


def test_an_answer_nobody_asked_for_is_a_conflict() -> None:
    assert refusal(bound(), answer("Done")).code == 409


def test_what_is_being_applied_cannot_be_rejected() -> None:
    pod = apply_resizing(ask(bound(), a=LARGE), answer("Accepted"), now=NOW)
    error = refusal(pod, answer("Rejected"))
    assert error.code == 409
    assert "a resize that is InProgress cannot become Deferred" in error.message


@pytest.mark.parametrize("current", ResizePhase)
def test_the_table_of_transitions(current: ResizePhase) -> None:
    assert TRANSITIONS.keys() == set(ResizePhase)
    assert not TRANSITIONS[current] & {ResizePhase.NONE, ResizePhase.REQUESTED}
    for wanted in ResizePhase:
        if wanted in TRANSITIONS[current]:
            check_transition(current, wanted)
        else:
            with pytest.raises(IllegalTransitionError):
                check_transition(current, wanted)


phases = st.sampled_from([phase for phase in ResizePhase if phase not in ("None", "Requested")])


@given(st.lists(st.tuples(phases, st.integers(1, 4)), max_size=12))
def test_any_sequence_of_answers_keeps_the_state_legal(
    answers: list[tuple[ResizePhase, int]],
) -> None:
    pod = ask(bound(), a=LARGE)
    for phase, generation in answers:
        before = phase_of(pod)
        body = answer(REQUEST_STATUS[phase], phase=phase.value, generation=generation)
        try:
            pod = apply_resizing(pod, body, now=LATER)
        except StatusError:
            assert generation != 2 or phase not in TRANSITIONS[before]
            continue
        assert generation == 2
        assert phase in TRANSITIONS[before]
        applied = phase in ("InProgress", "Error", "Done")
        if applied:
            assert resize_state(pod)["allocated"] == [{"name": "a", **LARGE}]
