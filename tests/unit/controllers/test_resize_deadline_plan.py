"""What becomes of a resize that takes too long, as a table; and what may be said about it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
from livesize.api.resize_progress import ResizeProgress, actual_sizes, report_of
from livesize.api.validation.pod import validate_pod_spec
from livesize.controllers.resize_deadline.began import (
    BEGAN,
    ResizeBegan,
    began_of,
    format_began,
)
from livesize.controllers.resize_deadline.plan import Evict, LeaveAlone, Revert, Wait, plan_deadline

AFTER = {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Gi"}}
BACK = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": None}}


FORMER = {"app": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}


def conditions(phase: str) -> list[Object]:
    """As Kubernetes writes them."""
    if phase == "Done":
        return []
    if phase in ("Deferred", "Infeasible"):
        return [{"type": "PodResizePending", "status": "True", "reason": phase}]
    reason = {"reason": "Error"} if phase == "Error" else {}
    return [{"type": "PodResizeInProgress", "status": "True", **reason}]


def pod(action: str = "", deadline: str = "", phase: str = "Deferred", **metadata: Any) -> Object:
    annotations = {ON_DEADLINE: action, DEADLINE: deadline}
    given = {key: value for key, value in annotations.items() if value}
    return {
        "metadata": {"name": "db", "annotations": given, **metadata},
        "spec": {"containers": [{"name": "app", "image": "a", "resources": AFTER}]},
        "status": {"conditions": conditions(phase)},
    }


REVERT = Revert({"spec": {"containers": [{"name": "app", "resources": BACK}]}})


@pytest.mark.parametrize(
    ("seen", "waited", "plan"),
    [
        pytest.param(pod(), 99.0, LeaveAlone(), id="nothing said"),
        pytest.param(pod("Keep", "1s"), 99.0, LeaveAlone(), id="keeps trying"),
        pytest.param(pod(deadline="1s"), 99.0, LeaveAlone(), id="a deadline and nothing to do"),
        pytest.param(pod("Revert"), 10.0, Wait(20.0), id="half a minute by default"),
        pytest.param(pod("Revert", "1m30s"), 10.0, Wait(80.0), id="as long as it says"),
        pytest.param(pod("Revert", "5s"), 5.0, REVERT, id="back"),
        pytest.param(pod("Revert", "5s", "Error"), 5.0, REVERT, id="back from an error"),
        pytest.param(pod("Revert", "5s", "InProgress"), 5.0, REVERT, id="back from half way"),
        pytest.param(pod("Revert", "5s", "Infeasible"), 0.0, REVERT, id="never fits: at once"),
        pytest.param(pod("Revert", "5s", "Done"), 99.0, LeaveAlone(), id="done"),
        pytest.param(pod("Evict", "5s"), 4.0, Wait(1.0), id="not gone yet"),
        pytest.param(pod("Evict", "5s"), 5.0, Evict(), id="gone"),
        pytest.param(pod("Restart", "5s"), 9.0, LeaveAlone(), id="restarts are the node's"),
        pytest.param(
            pod("Evict", "5s", deletionTimestamp="now"), 9.0, LeaveAlone(), id="leaves already"
        ),
    ],
)
def test_what_is_done(seen: Object, waited: float, plan: object) -> None:
    assert plan_deadline(seen, waited, FORMER) == plan


def test_a_sidecar_goes_back_in_its_own_list() -> None:
    seen = pod("Revert", "5s")
    seen["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": AFTER},
        {"name": "init", "resources": AFTER},
    ]
    former = {**FORMER, "side": FORMER["app"]}
    back = {"initContainers": [{"name": "side", "resources": BACK}]}
    assert isinstance(REVERT, Revert)
    assert plan_deadline(seen, 9.0, former) == Revert({"spec": {**REVERT.patch["spec"], **back}})


def test_going_back_is_asked_once() -> None:
    seen = pod("Revert", "5s")
    seen["spec"]["containers"][0]["resources"] = FORMER["app"]
    assert plan_deadline(seen, 9.0, FORMER) == LeaveAlone()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(pod("Revert", "5m"), "", id="well"),
        pytest.param(pod("Revert", "soon"), DEADLINE, id="no duration"),
        pytest.param(pod("Explode"), ON_DEADLINE, id="no such action"),
    ],
)
def test_what_may_be_said(given: Object, field: str) -> None:
    found = [error.field for error in validate_pod_spec(given)]
    assert found == ([f"metadata.annotations[{field}]"] if field else [])


def test_what_never_restarts_does_not_at_a_deadline_either() -> None:
    given = pod("Restart")
    given["spec"]["restartPolicy"] = "Never"
    assert [error.field for error in validate_pod_spec(given)] == [
        f"metadata.annotations[{ON_DEADLINE}]"
    ]


RUNNING = {"name": "app", "allocatedResources": {"cpu": "1"}, "resources": FORMER["app"]}


@pytest.mark.parametrize(
    ("status", "progress"),
    [
        pytest.param({}, "settled", id="not started"),
        pytest.param({"containerStatuses": [RUNNING]}, "unjudged", id="asked, not judged"),
        pytest.param(
            {"containerStatuses": [RUNNING], "observedGeneration": 2}, "unjudged", id="not yet"
        ),
        pytest.param(
            {"containerStatuses": [RUNNING], "observedGeneration": 3},
            "settled",
            id="judged, and nothing pending",
        ),
        pytest.param(
            {
                "containerStatuses": [{**RUNNING, "allocatedResources": {"cpu": "2000m"}}],
                "observedGeneration": 2,
            },
            "unjudged",
            id="limits alone",
        ),
        pytest.param({"conditions": conditions("Infeasible")}, "infeasible", id="never"),
        pytest.param(
            {"conditions": [{**conditions("Infeasible")[0], "observedGeneration": 2}]},
            "unjudged",
            id="an older request never fitted",
        ),
        pytest.param(
            {"conditions": [{**conditions("Deferred")[0], "status": "False"}]},
            "settled",
            id="not true any more",
        ),
    ],
)
def test_how_far_a_resize_is_in_the_words_of_kubernetes(status: Object, progress: str) -> None:
    seen = {**pod("Revert", generation=3), "status": status}
    assert report_of(seen).progress.value == progress


@pytest.mark.parametrize("phase", ["Deferred", "Infeasible", "Error"])
def test_what_keeps_a_resize_is_told_with_its_reason_and_its_time(phase: str) -> None:
    said = {"message": "no room", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    seen = {"status": {"conditions": [{**conditions(phase)[0], **said}]}}
    report = report_of(seen)
    assert report.progress is ResizeProgress[phase.upper()]
    assert (report.message, report.since) == ("no room", "2026-01-31T12:00:00Z")


def test_sizes_as_the_node_reports_them() -> None:
    seen = {**pod("Revert"), "status": {"containerStatuses": [RUNNING, {"name": "gone"}]}}
    assert actual_sizes(seen) == FORMER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "nonsense",
        '{"generation": "3"}',
        '{"generation": 3, "time": "soon", "former": {}}',
        '{"generation": 3, "time": "2026-01-31T12:00:00Z", "former": {"app": {"limits": "x"}}}',
        '{"generation": 3, "time": "2026-01-31", "former": {"app": {"limits": {"cpu": "x"}}}}',
        '{"generation": 3, "time": "2026-01-31T12:00:00Z", "former": {}, "desired": {"app": 1}}',
    ],
)
def test_an_annotation_that_makes_no_sense_counts_as_none(text: str) -> None:
    seen = pod("Revert")
    seen["metadata"]["annotations"][BEGAN] = text
    assert began_of(seen) is None


def test_what_is_noted_is_read_again() -> None:
    began = ResizeBegan(3, "2026-01-31T12:00:00Z", FORMER, {"app": AFTER})
    seen = pod("Revert")
    seen["metadata"]["annotations"][BEGAN] = format_began(began)
    assert began_of(seen) == began
