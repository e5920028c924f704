"""What becomes of a resize that takes too long, as a table; and what may be said about it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
from livesize.api.validation.pod import validate_pod_spec
from livesize.controllers.resize_deadline.plan import Evict, Rest, Revert, Wait, plan_deadline

BEFORE = {"name": "app", "requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
AFTER = {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Gi"}}
BACK = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": None}}


def pod(action: str = "", deadline: str = "", phase: str = "Deferred", **metadata: Any) -> Object:
    annotations = {ON_DEADLINE: action, DEADLINE: deadline}
    given = {key: value for key, value in annotations.items() if value}
    return {
        "metadata": {"name": "db", "annotations": given, **metadata},
        "spec": {"containers": [{"name": "app", "image": "a", "resources": AFTER}]},
        "status": {"resizeState": {"phase": phase, "previous": [BEFORE]}},
    }


REVERT = Revert({"spec": {"containers": [{"name": "app", "resources": BACK}]}})


@pytest.mark.parametrize(
    ("seen", "waited", "plan"),
    [
        pytest.param(pod(), 99.0, Rest(), id="nothing said"),
        pytest.param(pod("Keep", "1s"), 99.0, Rest(), id="keeps trying"),
        pytest.param(pod(deadline="1s"), 99.0, Rest(), id="a deadline and nothing to do"),
        pytest.param(pod("Revert"), 10.0, Wait(20.0), id="half a minute by default"),
        pytest.param(pod("Revert", "1m30s"), 10.0, Wait(80.0), id="as long as it says"),
        pytest.param(pod("Revert", "5s"), 5.0, REVERT, id="back"),
        pytest.param(pod("Revert", "5s", "Error"), 5.0, REVERT, id="back from an error"),
        pytest.param(pod("Revert", "5s", "InProgress"), 5.0, REVERT, id="back from half way"),
        pytest.param(pod("Revert", "5s", "Infeasible"), 0.0, REVERT, id="never fits: at once"),
        pytest.param(pod("Revert", "5s", "Done"), 99.0, Rest(), id="done"),
        pytest.param(pod("Evict", "5s"), 4.0, Wait(1.0), id="not gone yet"),
        pytest.param(pod("Evict", "5s"), 5.0, Evict(), id="gone"),
        pytest.param(pod("Restart", "5s"), 9.0, Rest(), id="restarts are the node's"),
        pytest.param(pod("Evict", "5s", deletionTimestamp="now"), 9.0, Rest(), id="leaves already"),
    ],
)
def test_what_is_done(seen: Object, waited: float, plan: object) -> None:
    assert plan_deadline(seen, waited) == plan


def test_a_sidecar_goes_back_in_its_own_list() -> None:
    seen = pod("Revert", "5s")
    seen["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": AFTER},
        {"name": "init", "resources": AFTER},
    ]
    seen["status"]["resizeState"]["previous"] += [{**BEFORE, "name": "side"}]
    back = {"initContainers": [{"name": "side", "resources": BACK}]}
    assert isinstance(REVERT, Revert)
    assert plan_deadline(seen, 9.0) == Revert({"spec": {**REVERT.patch["spec"], **back}})


def test_going_back_is_asked_once() -> None:
    seen = pod("Revert", "5s")
    seen["spec"]["containers"][0]["resources"] = {
        key: BEFORE[key] for key in ("requests", "limits")
    }
    assert plan_deadline(seen, 9.0) == Rest()


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
