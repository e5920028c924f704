"""What a real kube-apiserver answers to a resize, row by row, over the wire.

ROWS is the table of facts D.4; each row has a test of its name, which quotes it. Three rows are
answered otherwise on purpose (decisions 3): over the node's allocatable, a plain PATCH of
resources, and a changed resizePolicy.
"""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.node import NODES
from unit.apiserver.conftest import ADMIN, Rig

ROWS = (
    "every_patch_put_get_and_dry_run_is_200_post_and_delete_405",
    "a_real_change_raises_the_generation_another_spelling_does_not",
    "a_pod_without_resize_policy_stays_without",
    "image_and_labels_in_the_body_are_silently_unchanged",
    "a_removed_request_whose_limit_exists_becomes_the_limit",
    "a_removed_request_without_limit_and_a_removed_limit_are_422",
    "request_above_limit",
    "qos_change",
    "bad_quantity",
    "negative",
    "over_node_allocatable",
    "pod_bound_to_an_unknown_node",
    "windows_node_and_mirror_pod",
    "running_container_without_status_resources",
    "unscheduled_pod_to_200_cpus_and_terminal_pod",
    "stale_version_in_put",
    "over_quota_and_limit_range",
    "pod_level_resize",
    "pod_level_resources_null",
    "plain_patch_of_resources",
    "a_changed_resize_policy",
    "kubectl_patch_subresource_resize",
)
DEFAULT = "/api/v1/namespaces/default"
PODS = f"{DEFAULT}/pods"
POD = f"{PODS}/u"
RESIZE = f"{POD}/resize"
REQUESTS = "spec.containers[0].resources.requests"
LIMITS = "spec.containers[0].resources.limits"


def test_every_row_has_its_test() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(ROWS) == tests - {"every_row_has_its_test"}


def sized(requests: Any = None, limits: Any = None, **container: Any) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    given = {side: value for side, value in resources.items() if value is not None}
    return {"spec": {"containers": [{"name": "app", "resources": given, **container}]}}


async def resize(rig: Rig, patch: Any, kind: str = "strategic", **query: str) -> Any:
    return await rig.patch(RESIZE, patch, kind, **query)


async def refused(rig: Rig, patch: Any) -> dict[str, Any]:
    """The Status of a refused resize, which has changed nothing."""
    before = (await rig.get(POD)).json
    answer = await resize(rig, patch)
    status: dict[str, Any] = answer.json
    assert answer.status == status["code"] >= 400
    assert status["kind"] == "Status"
    assert (await rig.get(POD)).json == before
    return status


def causes(status: dict[str, Any]) -> list[tuple[str, str]]:
    found = status["details"]["causes"]
    return [(one["reason"], one.get("field", "")) for one in found]


def resources_of(answer: Any) -> Any:
    assert answer.status == 200, answer.json
    return answer.json["spec"]["containers"][0]["resources"]


@pytest.fixture
async def u(rig: Rig) -> Any:
    """Bound, Burstable, requests 500m/32Mi, limits 1/64Mi."""
    return await rig.add_pod("u", node="n1", requests={"cpu": "500m", "memory": "32Mi"})


async def test_every_patch_put_get_and_dry_run_is_200_post_and_delete_405(rig: Rig, u: Any) -> None:
    """strategic merge, JSON patch, merge patch, apply (?fieldManager=me&force=true), PUT, GET,
    ?dryRun=All: 200; POST and DELETE 405 MethodNotAllowed"""
    container = {**u["spec"]["containers"][0], "resources": {"requests": {"cpu": "620m"},
                 "limits": {"cpu": "1", "memory": "64Mi"}}}  # fmt: skip
    place = "/spec/containers/0/resources/requests/cpu"
    asked: list[tuple[str, Any, str, dict[str, str]]] = [
        ("strategic", sized({"cpu": "600m"}), "600m", {}),
        ("json", [{"op": "replace", "path": place, "value": "610m"}], "610m", {}),
        ("merge", {"spec": {"containers": [container]}}, "620m", {}),
        (
            "apply",
            {"apiVersion": "v1", "kind": "Pod", **sized({"cpu": "630m"})},
            "630m",
            {"fieldManager": "me", "force": "true"},
        ),
        ("strategic", sized({"cpu": "640m"}), "640m", {"dryRun": "All"}),
    ]
    for kind, patch, cpu, query in asked:
        answer = await resize(rig, patch, kind, **query)
        assert resources_of(answer)["requests"]["cpu"] == cpu
    now = await rig.get(RESIZE)
    assert resources_of(now)["requests"]["cpu"] == "630m", "the dry run has kept nothing"
    assert now.json == (await rig.get(POD)).json
    whole = now.json
    whole["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "650m"
    assert resources_of(await rig.request("PUT", RESIZE, whole))["requests"]["cpu"] == "650m"
    for method in ("POST", "DELETE"):
        answer = await rig.request(method, RESIZE, {})
        assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


async def test_a_real_change_raises_the_generation_another_spelling_does_not(
    rig: Rig, u: Any
) -> None:
    """real change / no-op or 800m→0.8: generation +1 / generation unchanged, still 200"""
    for cpu, generation in (("800m", 2), ("800m", 2), ("0.8", 2), ("0.9", 3)):
        answer = await resize(rig, sized({"cpu": cpu}))
        assert (answer.status, answer.json["metadata"]["generation"]) == (200, generation)


async def test_a_pod_without_resize_policy_stays_without(rig: Rig, u: Any) -> None:
    """created pod without resizePolicy: field stays absent (no defaulting)"""
    assert "resizePolicy" not in u["spec"]["containers"][0]
    answer = await resize(rig, sized({"cpu": "600m"}))
    assert "resizePolicy" not in answer.json["spec"]["containers"][0]


async def test_image_and_labels_in_the_body_are_silently_unchanged(rig: Rig, u: Any) -> None:
    """image and labels also in the body: 200, image and labels silently unchanged; managedFields
    entry has subresource: resize"""
    patch = sized({"cpu": "600m"}, image="other:1")
    patch["metadata"] = {"labels": {"app": "other"}}
    answer = await resize(rig, patch, fieldManager="me")
    assert answer.status == 200
    assert answer.json["spec"]["containers"][0]["image"] == u["spec"]["containers"][0]["image"]
    assert answer.json["metadata"]["labels"] == u["metadata"]["labels"]
    entries = answer.json["metadata"]["managedFields"]
    assert [one["subresource"] for one in entries if one["manager"] == "me"] == ["resize"]


async def test_a_removed_request_whose_limit_exists_becomes_the_limit(rig: Rig, u: Any) -> None:
    """remove a request whose limit exists (cpu: null): 200: the request is defaulted to the limit
    (no refusal)"""
    assert resources_of(await resize(rig, sized({"cpu": None})))["requests"]["cpu"] == "1"


async def test_a_removed_request_without_limit_and_a_removed_limit_are_422(rig: Rig) -> None:
    """remove a request with no limit / remove a limit: 422 `resource requests cannot be removed` /
    `resource limits cannot be removed`"""
    await rig.add_pod("u", node="n1", limits=False)
    status = await refused(rig, sized({"cpu": None}))
    assert causes(status) == [("FieldValueForbidden", REQUESTS)]
    assert status["message"] == (
        f'Pod "u" is invalid: {REQUESTS}: Forbidden: resource requests cannot be removed'
    )
    await rig.request("DELETE", POD, {"gracePeriodSeconds": 0})
    await rig.add_pod("u", node="n1")
    status = await refused(rig, sized(limits={"cpu": None}))
    assert causes(status) == [("FieldValueForbidden", LIMITS)]
    assert status["message"] == (
        f'Pod "u" is invalid: {LIMITS}: Forbidden: resource limits cannot be removed'
    )


async def test_request_above_limit(rig: Rig, u: Any) -> None:
    """request > limit: 422 `spec.containers[0].resources.requests: Invalid value: "2": must be less
    than or equal to cpu limit of 1`; errors accumulate in one list `[a, b]`"""
    cpu = f'{REQUESTS}: Invalid value: "2": must be less than or equal to cpu limit of 1'
    status = await refused(rig, sized({"cpu": "2"}))
    assert (status["reason"], status["message"]) == ("Invalid", f'Pod "u" is invalid: {cpu}')
    assert causes(status) == [("FieldValueInvalid", REQUESTS)]
    memory = f'{REQUESTS}: Invalid value: "1Gi": must be less than or equal to memory limit of 64Mi'
    both = await refused(rig, sized({"cpu": "2", "memory": "1Gi"}))
    assert both["message"] == f'Pod "u" is invalid: [{cpu}, {memory}]'
    assert causes(both) == [("FieldValueInvalid", REQUESTS)] * 2


async def test_qos_change(rig: Rig, u: Any) -> None:
    """QoS change: 422 `spec: Invalid value: "Burstable": Pod QOS Class may not change as a result
    of resizing` (the value printed is the *old* class)"""
    status = await refused(rig, sized({"cpu": "1", "memory": "64Mi"}))
    assert status["message"] == (
        'Pod "u" is invalid: spec: Invalid value: "Burstable": Pod QOS Class may not change as a'
        " result of resizing"
    )
    assert causes(status) == [("FieldValueInvalid", "spec")]


async def test_bad_quantity(rig: Rig, u: Any) -> None:
    """bad quantity: 422, name empty: ` "" is invalid: patch: Invalid value: "map[…]": quantities
    must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`"""
    status = await refused(rig, sized({"cpu": "many"}))
    assert (status["code"], status["details"].get("name", "")) == (422, "")
    assert status["message"].startswith(' "" is invalid: patch: Invalid value: "map[')
    assert status["message"].endswith(
        "quantities must match the regular expression"
        " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    assert causes(status) == [("FieldValueInvalid", "patch")]


async def test_negative(rig: Rig, u: Any) -> None:
    """negative: 422 `spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be
    greater than or equal to 0`"""
    status = await refused(rig, sized({"cpu": "-1"}))
    assert status["message"] == (
        f'Pod "u" is invalid: {REQUESTS}[cpu]: Invalid value: "-1": must be greater than or equal'
        " to 0"
    )
    assert causes(status) == [("FieldValueInvalid", f"{REQUESTS}[cpu]")]


async def test_over_node_allocatable(rig: Rig, u: Any) -> None:
    """over node allocatable. Decisions 3: "accepted and stored on both doors, and becomes Rejected
    / Unresizable / Infeasible"; what it becomes is the node's to say."""
    for path in (RESIZE, POD):
        answer = await rig.patch(path, sized(limits={"cpu": "500"}), "strategic")
        assert answer.status == 200
        assert answer.json["spec"]["resizeRequest"]["requestStatus"] == "Requested"


async def test_pod_bound_to_an_unknown_node(rig: Rig) -> None:
    """pod bound to an unknown node: 403 `node "ghost" not found`"""
    await rig.add_pod("u", node="ghost", with_node=False)
    status = await refused(rig, sized({"cpu": "600m"}))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == 'pods "u" is forbidden: node "ghost" not found'


async def test_windows_node_and_mirror_pod(rig: Rig) -> None:
    """windows node / mirror pod: 403 cause UnsupportedPlatform / 422 `static pods cannot be
    resized`"""
    windows = {"metadata": {"name": "w"}, "status": {"nodeInfo": {"operatingSystem": "windows"}}}
    await rig.service.create(ADMIN, NODES, "", windows)
    await rig.add_pod("u", node="w", with_node=False)
    status = await refused(rig, sized({"cpu": "600m"}))
    assert (status["code"], causes(status)) == (403, [("UnsupportedPlatform", "")])
    await rig.request("DELETE", POD, {"gracePeriodSeconds": 0})
    # A windows pod is not even stored here; tests/unit/api/test_validation_resize.py has the words.
    await rig.add_pod("u", node="n1")
    mirror = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}}
    assert (await rig.patch(POD, mirror)).status == 200
    status = await refused(rig, sized({"cpu": "600m"}))
    assert (status["code"], causes(status)) == (422, [("FieldValueForbidden", "[]")])
    assert "static pods cannot be resized" in status["message"]


async def test_running_container_without_status_resources(rig: Rig, u: Any) -> None:
    """running container without status.resources: 422 `Pod running on node without support for
    resize`"""
    running = [{"name": "app", "state": {"running": {}}}]
    told = {"status": {"containerStatuses": running}}
    assert (await rig.patch(f"{POD}/status", told, token="n1")).status == 200
    status = await refused(rig, sized({"cpu": "600m"}))
    assert (status["code"], causes(status)) == (422, [("FieldValueForbidden", "spec")])
    assert "Pod running on node without support for resize" in status["message"]


async def test_unscheduled_pod_to_200_cpus_and_terminal_pod(rig: Rig) -> None:
    """unscheduled pod to 200 CPUs; terminal (Succeeded) pod: 200 (both accepted)"""
    await rig.add_pod("u")
    assert resources_of(await resize(rig, sized(limits={"cpu": "200"})))["limits"]["cpu"] == "200"
    await rig.request("DELETE", POD, {"gracePeriodSeconds": 0})
    await rig.add_pod("u", node="n1")
    ended = {"status": {"phase": "Succeeded"}}
    assert (await rig.patch(f"{POD}/status", ended, token="n1")).status == 200
    assert resources_of(await resize(rig, sized(limits={"cpu": "2"})))["limits"]["cpu"] == "2"


async def test_stale_version_in_put(rig: Rig, u: Any) -> None:
    """stale resourceVersion in PUT: 409 Conflict `Operation cannot be fulfilled on pods "u": the
    object has been modified; …`"""
    assert (await resize(rig, sized({"cpu": "600m"}))).status == 200
    answer = await rig.request("PUT", RESIZE, u)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on pods "u": the object has been modified; please apply your'
        " changes to the latest version and try again"
    )


async def test_over_quota_and_limit_range(rig: Rig) -> None:
    """over quota / LimitRange: 403 `exceeded quota: q, requested: requests.cpu=150m, used:
    requests.cpu=200m, limited: requests.cpu=300m` (requested = the delta) / `maximum cpu usage per
    Container is 500m, but limit is 600m`, `minimum cpu usage per Container is 50m, but request is
    20m`"""
    size = {"cpu": "200m", "memory": "64Mi"}
    await rig.add_pod("u", node="n1", requests=size, limits=size)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "300m"}}}
    await rig.request("POST", f"{DEFAULT}/resourcequotas", quota)
    status = await refused(rig, sized({"cpu": "350m"}, {"cpu": "350m"}))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'pods "u" is forbidden: exceeded quota: q, requested: requests.cpu=150m, used:'
        " requests.cpu=200m, limited: requests.cpu=300m"
    )
    await rig.request("DELETE", f"{DEFAULT}/resourcequotas/q")
    item = {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}}
    limit_range = {"metadata": {"name": "l"}, "spec": {"limits": [item]}}
    await rig.request("POST", f"{DEFAULT}/limitranges", limit_range)
    for cpu, sentence in (
        ("600m", "maximum cpu usage per Container is 500m, but limit is 600m"),
        ("20m", "minimum cpu usage per Container is 50m, but request is 20m"),
    ):
        status = await refused(rig, sized({"cpu": cpu}, {"cpu": cpu}))
        assert status["code"] == 403
        assert sentence in status["message"]


async def test_pod_level_resize(rig: Rig, u: Any) -> None:
    """pod-level resize. Decisions 3: "Pod-level spec.resources is refused with a sentence for
    now"."""
    status = await refused(rig, {"spec": {"resources": {"limits": {"cpu": "1"}}}})
    assert (status["code"], causes(status)) == (422, [("FieldValueForbidden", "spec.resources")])
    assert "pod-level resources are not supported" in status["message"]


async def test_pod_level_resources_null(rig: Rig, u: Any) -> None:
    """pod-level `resources: null`: 200, silently kept (old-client protection)"""
    answer = await resize(rig, {"spec": {"resources": None}})
    assert (answer.status, answer.json) == (200, u)


async def test_plain_patch_of_resources(rig: Rig, u: Any) -> None:
    """plain PATCH of the pod with other resources. Decisions 3: "pods/resize and PATCH/PUT/apply of
    the pod both take resources"; other fields of the spec are 422 `pod updates may not change
    fields other than …`"""
    answer = await rig.patch(POD, sized({"cpu": "600m"}), "strategic")
    assert resources_of(answer)["requests"]["cpu"] == "600m"
    assert answer.json["metadata"]["generation"] == 2
    answer = await rig.patch(POD, {"spec": {"schedulerName": "mine"}})
    assert answer.status == 422
    assert "pod updates may not change fields other than" in answer.json["message"]


async def test_a_changed_resize_policy(rig: Rig, u: Any) -> None:
    """Decisions 2: "It may be changed later on its own (IBM), which restarts nothing"."""
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    answer = await resize(rig, {"spec": {"containers": [{"name": "app", "resizePolicy": policy}]}})
    assert answer.status == 200
    assert answer.json["spec"]["containers"][0]["resizePolicy"] == policy


async def test_kubectl_patch_subresource_resize(rig: Rig, u: Any) -> None:
    """kubectl 1.32 `patch pod u --subresource resize --patch …` works: what it sends, a strategic
    merge patch with its field manager after a GET of the subresource. (With the real kubectl:
    tests/integration/test_kubectl.py.)"""
    assert (await rig.get(RESIZE)).json == u
    answer = await resize(rig, sized({"cpu": "600m"}), fieldManager="kubectl-patch")
    assert resources_of(answer)["requests"]["cpu"] == "600m"
