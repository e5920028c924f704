"""A pod on a node that is not there, or runs Windows, was resized as if somebody could do it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.node import NODES
from unit.apiserver.conftest import ADMIN, Rig

POD = "/api/v1/namespaces/default/pods/web"
BIGGER = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "600m"}}}]}}
ENDPOINTS = pytest.mark.parametrize("endpoint", ["", "/resize"])


async def _ask(rig: Rig, endpoint: str) -> tuple[Any, Any]:
    before = (await rig.get(POD)).json
    answer = await rig.patch(POD + endpoint, BIGGER, "strategic")
    assert (await rig.get(POD)).json == before, "a refusal changes nothing"
    return answer.status, answer.json


@ENDPOINTS
async def test_an_unknown_node(rig: Rig, endpoint: str) -> None:
    await rig.add_pod(node="ghost", with_node=False)
    status, body = await _ask(rig, endpoint)
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"] == 'pods "web" is forbidden: node "ghost" not found'


@ENDPOINTS
@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"status": {"nodeInfo": {"operatingSystem": "windows"}}}, id="node info"),
        pytest.param({"metadata": {"labels": {"kubernetes.io/os": "windows"}}}, id="label"),
    ],
)
async def test_a_windows_node(rig: Rig, endpoint: str, node: Any) -> None:
    named = {**node, "metadata": {"name": "w1", **node.get("metadata", {})}}
    await rig.service.create(ADMIN, NODES, "", named)
    await rig.add_pod(node="w1", with_node=False)
    status, body = await _ask(rig, endpoint)
    assert status == 403
    assert body["details"]["causes"][0]["reason"] == "UnsupportedPlatform"
    assert 'only supported on linux nodes, node "w1" is "windows"' in body["message"]


async def test_what_is_no_resize_needs_no_node(rig: Rig) -> None:
    await rig.add_pod(node="ghost", with_node=False)
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert (await rig.patch(POD, labelled)).status == 200
    assert (await rig.patch(f"{POD}/resize", {})).status == 200
