"""A pod with restartPolicy Never was given IBM's RestartOnly, and a resize restarted all of it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import evolve
from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
MAP = ("spec", "containers", 0, "resources", "resizePolicy")
LIVE = {"cpu": "LiveResizeable", "memory": "LiveResizeable"}
RESTARTING: list[Any] = [
    {"cpu": "RestartOnly", "memory": "LiveResizeable"},
    {"cpu": "ContainerRestartOnly", "memory": "LiveResizeable"},
    {"memory": "LiveResizeable"},
]


def never(**metadata: Any) -> Any:
    return evolve(pod(nodeName="n1", **metadata), ("spec", "restartPolicy"), "Never")


@pytest.mark.parametrize("policy", RESTARTING)
async def test_a_policy_that_restarts_is_refused_when_the_pod_is_made(
    rig: Rig, policy: Any
) -> None:
    await rig.add_node("n1")
    refused = await rig.request("POST", PODS, evolve(never(), MAP, policy))
    assert refused.status == 422
    [cause] = refused.json["details"]["causes"]
    assert cause["field"] == "spec.containers[0].resources.resizePolicy[cpu]"
    made = await rig.request("POST", PODS, evolve(never(), MAP, LIVE))
    assert made.status == 201, made.json


@pytest.mark.parametrize("endpoint", ["", "/resize"])
@pytest.mark.parametrize("policy", RESTARTING)
async def test_and_when_it_is_changed(rig: Rig, policy: Any, endpoint: str) -> None:
    await rig.add_node("n1")
    made = await rig.request("POST", PODS, never())
    assert made.status == 201, made.json
    change = {"name": "app", "resources": {"resizePolicy": policy}}
    patch = {"spec": {"containers": [change]}}
    refused = await rig.patch(f"{PODS}/web{endpoint}", patch, "strategic")
    assert refused.status == 422, refused.json
    assert (await rig.get(f"{PODS}/web")).json == made.json


async def test_a_wish_to_restart_is_refused_too(rig: Rig) -> None:
    await rig.add_node("n1")
    await rig.request("POST", PODS, never())
    size = {"name": "app", "resources": {"requests": {"cpu": "600m"}}}
    for wish, code in (("Restart", 422), ("InPlaceResizePreferred", 200)):
        patch = {
            "metadata": {"annotations": {"resizeAction": wish}},
            "spec": {"containers": [size]},
        }
        answer = await rig.patch(f"{PODS}/web", patch, "strategic")
        assert answer.status == code, answer.json
