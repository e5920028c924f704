"""pods/X/resize and pods/X: each row of facts/api-shapes D.4 as decisions 3 keeps it."""

from __future__ import annotations

from typing import Any

import pytest

WEB = "/api/v1/namespaces/default/pods/web"
RESIZE = f"{WEB}/resize"


def sized(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    given = {side: value for side, value in resources.items() if value is not None}
    return {"spec": {"containers": [{"name": "app", "resources": given}]}}


@pytest.fixture
async def web(rig: Any) -> dict[str, Any]:
    await rig.add_node()
    return await rig.add_pod(node="n1")


@pytest.mark.parametrize("path", [RESIZE, WEB], ids=["resize", "pod"])
@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", sized({"cpu": "800m"})),
        ("json", [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu",
                   "value": "800m"}]),
    ],
    ids=["strategic", "json"],
)  # fmt: skip
async def test_a_change_of_resources_is_a_request_with_the_next_generation(
    rig: Any, web: Any, path: str, kind: str, patch: Any
) -> None:
    answer = await rig.patch(path, patch, kind, token="editor")
    assert answer.status == 200
    served = answer.json
    assert served["metadata"]["generation"] == web["metadata"]["generation"] + 1
    assert served["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "800m"
    assert served["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "500m"
    assert served["spec"]["resizeRequest"]["requestStatus"] == "Requested"
    state = served["status"]["resizeState"]
    assert state["phase"] == "Requested"
    assert state["requestedBy"] == "ed"
    assert state["generation"] == served["metadata"]["generation"]


async def test_merge_patch_and_put_resize_too(rig: Any, web: Any) -> None:
    containers = web["spec"]["containers"]
    container = {**containers[0], "resources": {
        "requests": {"cpu": "600m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"},
    }}  # fmt: skip
    merged = await rig.patch(RESIZE, {"spec": {"containers": [container]}}, "merge")
    assert merged.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "600m"
    whole = merged.json
    whole["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "700m"
    put = await rig.request("PUT", RESIZE, whole)
    assert put.status == 200
    assert put.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "700m"
    assert (await rig.get(RESIZE)).json == (await rig.get(WEB)).json == put.json


@pytest.mark.parametrize("cpu", ["500m", "0.5"])
async def test_the_same_amount_changes_nothing(rig: Any, web: Any, cpu: str) -> None:
    answer = await rig.patch(RESIZE, sized({"cpu": cpu}), "strategic")
    assert answer.status == 200
    assert answer.json == web


async def test_dry_run_answers_and_keeps_nothing(rig: Any, web: Any) -> None:
    answer = await rig.patch(RESIZE, sized({"cpu": "800m"}), "strategic", dryRun="All")
    assert answer.json["metadata"]["generation"] == 2
    assert (await rig.get(WEB)).json == web


async def test_image_and_labels_in_a_resize_are_dropped_in_silence(rig: Any, web: Any) -> None:
    patch = sized({"cpu": "800m"})
    patch["metadata"] = {"labels": {"app": "other"}}
    patch["spec"]["containers"][0]["image"] = "other:1"
    answer = await rig.patch(RESIZE, patch, "strategic")
    assert answer.status == 200
    assert answer.json["metadata"]["labels"] == {"app": "web"}
    assert answer.json["spec"]["containers"][0]["image"] == "busybox:1"


async def test_a_removed_request_becomes_the_limit(rig: Any) -> None:
    await rig.add_pod(node="n1", requests={"cpu": "500m", "memory": "32Mi"})
    answer = await rig.patch(RESIZE, sized({"cpu": None}), "strategic")
    assert answer.status == 200
    assert answer.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


INVALID = 'Pod "web" is invalid: '
QOS = "Pod QOS Class may not change as a result of resizing"
REQUESTS = "spec.containers[0].resources.requests"
LIMITS = "spec.containers[0].resources.limits"
REFUSED = [
    (
        "a limit is removed",
        sized(limits={"cpu": None}),
        ("FieldValueForbidden", LIMITS),
        f"{INVALID}{LIMITS}: Forbidden: resource limits cannot be removed",
    ),
    (
        "request above limit",
        sized({"cpu": "2"}),
        ("FieldValueInvalid", REQUESTS),
        f'{INVALID}{REQUESTS}: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        "QoS would change",
        sized({"cpu": "1"}),
        ("FieldValueInvalid", "spec"),
        f'{INVALID}spec: Invalid value: "Burstable": {QOS}',
    ),
    ("not a quantity", sized({"cpu": "many"}), ("FieldValueInvalid", "patch"), None),
    ("negative", sized({"cpu": "-1"}), ("FieldValueInvalid", f"{REQUESTS}[cpu]"), None),
]


@pytest.mark.parametrize(
    ("patch", "cause", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
async def test_refused(rig: Any, web: Any, patch: Any, cause: Any, message: str | None) -> None:
    answer = await rig.patch(RESIZE, patch, "strategic")
    status = answer.json
    assert (answer.status, status["code"], status["reason"]) == (422, 422, "Invalid")
    got = [(one["reason"], one["field"]) for one in status["details"]["causes"]]
    assert got == [cause]
    if message is not None:
        assert status["message"] == message
    assert (await rig.get(WEB)).json == web


async def test_a_request_without_a_limit_cannot_be_removed(rig: Any) -> None:
    await rig.add_pod(limits=False)
    answer = await rig.patch(RESIZE, sized({"cpu": None}), "strategic")
    assert answer.status == 422
    assert "resource requests cannot be removed" in answer.json["message"]


async def test_bad_quantity_has_an_empty_name(rig: Any, web: Any) -> None:
    answer = await rig.patch(RESIZE, sized({"cpu": "many"}), "strategic")
    assert answer.json["message"].startswith(' "" is invalid: patch: Invalid value: "map[spec:')
    assert "quantities must match the regular expression" in answer.json["message"]


@pytest.mark.parametrize(
    ("containers", "field"),
    [
        ([{"name": "app"}, {"name": "more", "image": "x"}], "spec.containers"),
        ([{"name": "other", "image": "x"}], "spec.containers[0].name"),
    ],
    ids=["added", "renamed"],
)
async def test_containers_stay(rig: Any, web: Any, containers: Any, field: str) -> None:
    whole = {**web, "spec": {**web["spec"], "containers": containers}}
    answer = await rig.request("PUT", RESIZE, whole)
    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_no_other_methods(rig: Any, web: Any, method: str) -> None:
    answer = await rig.request(method, RESIZE, {})
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


async def test_a_stale_version_is_a_conflict_in_kubernetes_words(rig: Any, web: Any) -> None:
    await rig.patch(WEB, {"metadata": {"labels": {"new": "label"}}})
    answer = await rig.request("PUT", RESIZE, web)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on pods "web": the object has been modified; please apply'
        " your changes to the latest version and try again"
    )


async def test_an_unbound_pod_is_resized_without_a_request(rig: Any) -> None:
    await rig.add_pod()
    answer = await rig.patch(RESIZE, sized({"cpu": "200m"}), "strategic")
    assert answer.status == 200
    assert answer.json["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "200m"
    assert answer.json["spec"]["resizeRequest"] == {"requestStatus": "None"}


async def test_more_than_any_node_has_is_stored(rig: Any, web: Any) -> None:
    answer = await rig.patch(RESIZE, sized(limits={"cpu": "500"}), "strategic")
    assert answer.status == 200
    assert answer.json["status"]["resizeState"]["phase"] == "Requested"


async def test_the_plain_pod_keeps_its_other_fields(rig: Any, web: Any) -> None:
    answer = await rig.patch(WEB, {"spec": {"schedulerName": "mine"}})
    assert answer.status == 422
    assert "pod updates may not change fields other than" in answer.json["message"]
