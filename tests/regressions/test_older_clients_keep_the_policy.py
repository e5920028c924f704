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


@pytest.mark.parametrize("endpoint", ["", "/resize"])
@pytest.mark.parametrize(("path", "policy"), [(LIST, ARK), (MAP, IBM)], ids=["list", "map"])
async def test_put_without_the_policy_keeps_it(
    rig: Rig, endpoint: str, path: tuple[str | int, ...], policy: Any
) -> None:
    await _make(rig, path, policy)
    asked = pod(nodeName="n1", requests={"cpu": "600m", "memory": "64Mi"})
    answer = await rig.request("PUT", f"{PODS}/web{endpoint}", asked)
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


@pytest.mark.parametrize("endpoint", ["", "/resize"])
@pytest.mark.parametrize(
    ("path", "policy", "patch", "kind"),
    [
        (LIST, ARK, [{"op": "remove", "path": "/spec/containers/0/resizePolicy"}], "json"),
        (MAP, IBM, [{"op": "remove", "path": "/spec/containers/0/resources/resizePolicy"}], "json"),
        (
            LIST,
            ARK,
            {"spec": {"containers": [{"name": "app", "resizePolicy": None}]}},
            "strategic",
        ),
        (
            MAP,
            IBM,
            {"spec": {"containers": [{"name": "app", "resources": {"resizePolicy": None}}]}},
            "strategic",
        ),
    ],
    ids=["json list", "json map", "strategic list", "strategic map"],
)
async def test_who_removes_it_by_name_removes_it(
    rig: Rig, endpoint: str, path: tuple[str | int, ...], policy: Any, patch: Any, kind: str
) -> None:
    """It was answered 200 and silently undone."""
    await _make(rig, path, policy)
    answer = await rig.patch(f"{PODS}/web{endpoint}", patch, kind)
    assert answer.status == 200, answer.json
    container = (await rig.get(f"{PODS}/web")).json["spec"]["containers"][0]
    assert "resizePolicy" not in container
    assert "resizePolicy" not in container["resources"]
    assert container["resources"]["requests"]["cpu"] == "500m"
    assert answer.json["metadata"]["generation"] == 2
    assert answer.json["spec"]["resizeRequest"]["requestStatus"] == "None", "no resize"


@pytest.mark.parametrize(("path", "policy"), [(LIST, ARK), (MAP, IBM)], ids=["list", "map"])
async def test_who_applies_without_it_removes_what_it_applied(
    rig: Rig, path: tuple[str | int, ...], policy: Any
) -> None:
    await rig.add_node("n1")
    manifest = {"apiVersion": "v1", "kind": "Pod", **pod(nodeName="n1")}

    async def apply(part: Any, manager: str = "kubectl") -> Any:
        answer = await rig.request(
            "PATCH",
            f"{PODS}/web",
            part,
            content_type="application/apply-patch+yaml",
            fieldManager=manager,
        )
        assert answer.status in (200, 201), answer.json
        return answer.json["spec"]["containers"][0]

    await apply(evolve(manifest, path, policy))
    other = {**manifest, "spec": {"containers": [{"name": "app"}]}}
    kept = await apply(other, "another")
    assert "resizePolicy" in (kept if path == LIST else kept["resources"]), "not theirs to remove"
    container = await apply(manifest)
    assert "resizePolicy" not in container
    assert "resizePolicy" not in container["resources"]


@pytest.mark.parametrize(("path", "policy"), [(LIST, ARK), (MAP, IBM)], ids=["list", "map"])
async def test_a_patch_that_does_not_speak_of_it_keeps_it(
    rig: Rig, path: tuple[str | int, ...], policy: Any
) -> None:
    """A list that is replaced as a whole says as little of what it leaves out as a PUT."""
    await _make(rig, path, policy)
    containers = pod(requests={"cpu": "600m", "memory": "64Mi"})["spec"]["containers"]
    for patch, kind in (
        ({"spec": {"containers": containers}}, "merge"),
        ([{"op": "replace", "path": "/spec/containers", "value": containers}], "json"),
    ):
        answer = await rig.patch(f"{PODS}/web", patch, kind)
        assert answer.status == 200, answer.json
        container = answer.json["spec"]["containers"][0]
        assert container["resources"]["requests"]["cpu"] == "600m"
        place = container["resources"] if path == MAP else container
        assert place["resizePolicy"] == policy


async def test_a_put_removes_it_by_saying_that_there_is_none(rig: Rig) -> None:
    await _make(rig, LIST, ARK)
    answer = await rig.request("PUT", f"{PODS}/web", evolve(pod(nodeName="n1"), LIST, []))
    assert answer.status == 200, answer.json
    assert not answer.json["spec"]["containers"][0].get("resizePolicy")


@pytest.mark.parametrize("endpoint", ["", "/resize"])
async def test_the_policy_of_a_sidecar_is_kept_too(rig: Rig, endpoint: str) -> None:
    side = {"name": "side", "image": "busybox:1", "restartPolicy": "Always"}
    await rig.add_node("n1")
    made = pod(nodeName="n1", initContainers=[{**side, "resizePolicy": ARK}])
    assert (await rig.request("POST", PODS, made)).status == 201
    answer = await rig.request(
        "PUT", f"{PODS}/web{endpoint}", pod(nodeName="n1", initContainers=[side])
    )
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["initContainers"][0]["resizePolicy"] == ARK
