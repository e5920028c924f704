"""A client that keeps fieldsV1 as the text it came in (the typed one of Go) and one that reads it
as JSON and writes it again, by name (the dynamic one), have to find the same."""

from __future__ import annotations

import json

from livesize.api.objects import Object
from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


def texts(body: bytes) -> list[str]:
    return [_text(one["fieldsV1"]) for one in json.loads(body)["metadata"]["managedFields"]]


def _text(fields: Object, *, by_name: bool = False) -> str:
    return json.dumps(fields, separators=(",", ":"), sort_keys=by_name)


async def test_typed_and_dynamic_clients_agree(rig: Rig) -> None:
    await rig.add_node("n1")
    made = pod(nodeName="n1")
    made["metadata"]["labels"] = {"z": "1", "a": "2", "m": "3"}
    made["spec"]["initContainers"] = [{"name": "first", "image": "busybox:1"}]
    await rig.request("POST", PODS, made, fieldManager="maker")
    size = {"name": "app", "resources": {"requests": {"memory": "32Mi", "cpu": "600m"}}}
    await rig.request(
        *("PATCH", f"{PODS}/web/resize", {"spec": {"containers": [size]}}),
        content_type=STRATEGIC,
        fieldManager="resizer",
    )
    labels = {"metadata": {"labels": {"b": "1", "a": "9"}}}
    answer = await rig.request(
        "PATCH", f"{PODS}/web", labels, content_type=STRATEGIC, fieldManager="labeller"
    )
    found = texts(answer.body)
    assert len(found) == 3
    assert found == [_text(json.loads(one), by_name=True) for one in found]
