"""A PUT by a client that does not know resizePolicy erased it (F27, ARK: "mutates any updates to
ResourcesAllocated & ResizePolicy fields to maintain compatibility with older versions")."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import evolve
from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
ARK = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
IBM = {"cpu": "LiveResizeable", "memory": "ContainerRestartOnly"}
LIST = ("spec", "containers", 0, "resizePolicy")
MAP = ("spec", "containers", 0, "resources", "resizePolicy")


async def _make(rig: Rig, path: tuple[str | int, ...], policy: Any) -> Any:
    await rig.add_node("n1")
    made = await rig.request("POST", PODS, evolve(pod(nodeName="n1"), path, policy))
    assert made.status == 201
    return made.json


@pytest.mark.parametrize("door", ["", "/resize"])
@pytest.mark.parametrize(("path", "policy"), [(LIST, ARK), (MAP, IBM)], ids=["list", "map"])
async def test_put_without_the_policy_keeps_it(
    rig: Rig, door: str, path: tuple[str | int, ...], policy: Any
) -> None:
    await _make(rig, path, policy)
    asked = pod(nodeName="n1", requests={"cpu": "600m", "memory": "64Mi"})
    answer = await rig.request("PUT", f"{PODS}/web{door}", asked)
    assert answer.status == 200, answer.json
    container = answer.json["spec"]["containers"][0]
    assert container["resources"]["requests"]["cpu"] == "600m"
    kept = container["resources"].get("resizePolicy") if path == MAP else container["resizePolicy"]
    assert kept == policy
    assert answer.json["metadata"]["generation"] == 2


async def test_a_client_that_names_another_policy_changes_it(rig: Rig) -> None:
    """From IBM's words to today's: what is not said again is gone, not mixed with the new."""
    await _make(rig, MAP, IBM)
    asked = evolve(pod(nodeName="n1"), LIST, [{**ARK[0], "resourceName": "cpu"}])
    answer = await rig.request("PUT", f"{PODS}/web", asked)
    assert answer.status == 200, answer.json
    container = answer.json["spec"]["containers"][0]
    assert container["resizePolicy"] == asked["spec"]["containers"][0]["resizePolicy"]
    assert "resizePolicy" not in container["resources"]
