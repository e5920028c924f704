"""A field that no kind has is kept where nobody asks for strictness. A strict patch of something
else, which is what kubectl sends, was refused because of it, for ever."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
LABEL = {"metadata": {"labels": {"new": "yes"}}}
JSON_LABEL = [{"op": "add", "path": "/metadata/labels/new", "value": "yes"}]
STRICT = {"fieldValidation": "Strict"}


@pytest.fixture
async def odd(rig: Rig) -> Rig:
    body = pod("web", initContainers=[{"name": "first", "image": "a", "odd": [1]}], odd={"a": 1})
    body["spec"]["containers"][0]["odd"] = "x"
    assert (await rig.request("POST", PODS, body)).status == 201
    return rig


@pytest.mark.parametrize(
    ("patch", "kind"),
    [(LABEL, "merge"), (LABEL, "strategic"), (JSON_LABEL, "json")],
    ids=["merge", "strategic", "json"],
)
async def test_another_field_is_patched(odd: Rig, patch: Any, kind: str) -> None:
    answer = await odd.patch(f"{PODS}/web", patch, kind, **STRICT)
    assert (answer.status, answer.json["metadata"]["labels"]["new"]) == (200, "yes")
    assert "warning" not in answer.headers
    assert answer.json["spec"]["containers"][0]["odd"] == "x"


async def test_beside_it_too(odd: Rig) -> None:
    """The element of the list is another one then, and the field the same."""
    container = {"name": "app", "image": "other:1"}
    answer = await odd.patch(f"{PODS}/web", {"spec": {"containers": [container]}}, "strategic",
                             **STRICT)  # fmt: skip
    assert (answer.status, answer.json["spec"]["containers"][0]["odd"]) == (200, "x")


async def test_so_is_a_size(odd: Rig) -> None:
    size = {"name": "app", "resources": {"requests": {"cpu": "400m"}}}
    patch = {"spec": {"containers": [size]}}
    answer = await odd.patch(f"{PODS}/web/resize", patch, "strategic", **STRICT)
    assert answer.status == 200


@pytest.mark.parametrize("value", [{"a": 2}, 1, {"a": 1}], ids=["other", "else", "as stored"])
@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_the_field_itself_is_not(odd: Rig, value: Any, kind: str) -> None:
    answer = await odd.patch(f"{PODS}/web", {"spec": {"odd": value}}, kind, **STRICT)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "patch")
    assert 'strict decoding error: unknown field "spec.odd"' in answer.json["message"]
