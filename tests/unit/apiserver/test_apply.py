"""Server-side apply by requests: who owns what, conflicts, force, and what goes away again."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.conftest import pod

PODS = "/api/v1/namespaces/default/pods"
WEB = f"{PODS}/web"


def part(**metadata: Any) -> Any:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def sized(cpu: str, memory: str = "64Mi") -> Any:
    size = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "64Mi"}}
    container = {"name": "app", "image": "busybox:1", "resources": size}
    return {**part(labels={"app": "web"}), "spec": {"containers": [container]}}


async def apply(rig: Any, body: Any, manager: str = "kubectl", path: str = WEB, **more: Any) -> Any:
    return await rig.patch(path, body, "apply", fieldManager=manager, **more)


def owners(answer: Any) -> Any:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in answer.json["metadata"].get("managedFields", [])
    }


async def test_apply_creates_and_then_changes(rig: Any) -> None:
    made = await apply(rig, sized("500m"))
    assert made.status == 201
    entry = made.json["metadata"]["managedFields"][0]
    assert entry == {
        "manager": "kubectl",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2027-01-15T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"app"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:resources": {
                            "f:requests": {"f:cpu": {}, "f:memory": {}},
                            "f:limits": {"f:cpu": {}, "f:memory": {}},
                        },
                    }
                }
            },
        },
    }
    changed = await apply(rig, sized("600m"))
    assert changed.status == 200
    assert changed.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "600m"
    assert changed.json["metadata"]["generation"] == 2


async def test_applying_the_same_again_writes_nothing(rig: Any) -> None:
    made = await apply(rig, sized("500m"))
    await rig.clock.sleep(60)
    again = await apply(rig, sized("0.5"))
    assert again.status == 200
    assert again.json == made.json


async def test_a_field_of_another_manager_is_a_conflict_in_kubernetes_words(rig: Any) -> None:
    await apply(rig, sized("500m"))
    refused = await apply(rig, sized("600m"), "other")
    assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    path = '.spec.containers[name="app"].resources.requests.cpu'
    assert refused.json["message"] == (
        f'Apply failed with 1 conflict: conflict with "kubectl": {path}'
    )
    assert refused.json["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl"', "field": path}
    ]
    unchanged = (await rig.get(WEB)).json["spec"]["containers"][0]["resources"]["requests"]
    assert unchanged["cpu"] == "500m"
    two = await apply(rig, sized("600m", "32Mi"), "other")
    assert two.json["message"] == (
        'Apply failed with 2 conflicts: conflicts with "kubectl":\n'
        '- .spec.containers[name="app"].resources.requests.cpu\n'
        '- .spec.containers[name="app"].resources.requests.memory'
    )


async def test_force_takes_the_field(rig: Any) -> None:
    await apply(rig, sized("500m"))
    forced = await apply(rig, sized("600m"), "other", force="true")
    assert forced.status == 200
    mine = owners(forced)[("kubectl", "Apply", "")]
    size = mine["f:spec"]["f:containers"]['k:{"name":"app"}']["f:resources"]
    assert "f:cpu" not in size["f:requests"]
    assert "f:cpu" in size["f:limits"], "what both say alike both own"


async def test_the_same_value_is_shared(rig: Any) -> None:
    await apply(rig, sized("500m"))
    shared = await apply(rig, sized("500m"), "other")
    assert shared.status == 200
    assert set(owners(shared)) == {("kubectl", "Apply", ""), ("other", "Apply", "")}


async def test_what_is_no_longer_applied_goes_unless_another_owns_it(rig: Any) -> None:
    await rig.request("POST", PODS, pod(), fieldManager="maker")
    await apply(rig, part(labels={"a": "1", "b": "2"}))
    await apply(rig, part(labels={"b": "2"}), "other")
    after = await apply(rig, part(annotations={"n": "1"}))
    assert after.json["metadata"]["labels"] == {"app": "web", "b": "2"}
    assert after.json["metadata"]["annotations"] == {"n": "1"}
    gone = await apply(rig, part())
    assert "annotations" not in gone.json["metadata"]
    assert ("kubectl", "Apply", "") not in owners(gone)


async def test_an_element_that_is_no_longer_applied_goes_with_its_defaults(rig: Any) -> None:
    await rig.request("POST", PODS, pod(), fieldManager="maker")
    body = part(finalizers=["x.dev/a", "x.dev/b"])
    both = await apply(rig, body)
    assert both.json["metadata"]["finalizers"] == ["x.dev/a", "x.dev/b"]
    one = await apply(rig, part(finalizers=["x.dev/b"]))
    assert one.json["metadata"]["finalizers"] == ["x.dev/b"]
    assert owners(one)[("kubectl", "Apply", "")]["f:metadata"] == {
        "f:finalizers": {'v:"x.dev/b"': {}}
    }


async def test_updates_are_tracked_and_take_over(rig: Any) -> None:
    await apply(rig, sized("500m"))
    patch = {"metadata": {"labels": {"app": "db"}}}
    agent = {"user-agent": "curl/8.1 (linux)"}
    patched = await rig.patch(WEB, patch, headers=agent)
    assert owners(patched)[("curl", "Update", "")] == {"f:metadata": {"f:labels": {"f:app": {}}}}
    assert "f:metadata" not in owners(patched)[("kubectl", "Apply", "")]
    refused = await apply(rig, sized("500m"))
    assert refused.status == 409
    assert refused.json["details"]["causes"][0]["message"] == 'conflict with "curl" using v1'


async def test_pods_resize_is_applied_with_its_subresource(rig: Any) -> None:
    await rig.add_pod(node="n1")
    size = {"requests": {"cpu": "700m"}}
    body = {
        **part(labels={"ignored": "yes"}),
        "spec": {"containers": [{"name": "app", "resources": size}]},
    }
    first = await apply(rig, body, "me", f"{WEB}/resize")
    assert first.status == 409, "whoever made the pod owns its size"
    assert "before-first-apply" in first.json["message"]
    resized = await apply(rig, body, "me", f"{WEB}/resize", force="true")
    assert resized.status == 200
    container = resized.json["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "700m", "memory": "64Mi"}
    assert "ignored" not in resized.json["metadata"]["labels"]
    mine = owners(resized)[("me", "Apply", "resize")]
    assert set(mine) == {"f:spec"}
    assert resized.json["status"]["resizeState"]["phase"] == "Requested"


async def test_a_node_and_the_scheduler_are_not_tracked(rig: Any) -> None:
    await rig.add_pod(node="n1")
    status = {"status": {"message": "here"}}
    patched = await rig.patch(f"{WEB}/status", status, token="n1", fieldManager="agent")
    assert patched.status == 200
    assert "managedFields" not in patched.json["metadata"]


async def test_ownership_survives_untracked_writes_and_clients_without_it(rig: Any) -> None:
    made = (await apply(rig, sized("500m"))).json
    bare = {**made, "metadata": {**made["metadata"], "annotations": {"x": "y"}}}
    del bare["metadata"]["managedFields"]
    put = await rig.request("PUT", WEB, bare, fieldManager="old")
    assert ("kubectl", "Apply", "") in owners(put)
    assert owners(put)[("old", "Update", "")] == {"f:metadata": {"f:annotations": {"f:x": {}}}}


async def test_a_client_may_hand_on_or_drop_ownership(rig: Any) -> None:
    made = (await rig.request("POST", PODS, pod(), fieldManager="kubectl-client-side-apply")).json
    entry = {**made["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    handed = await rig.patch(WEB, patch, "json", fieldManager="kubectl")
    assert set(owners(handed)) == {("kubectl", "Apply", "")}
    nonsense = [{"op": "replace", "path": "/metadata/managedFields", "value": [{"x": 1}]}]
    assert set(owners(await rig.patch(WEB, nonsense, "json"))) == {("kubectl", "Apply", "")}
    dropped = await rig.patch(WEB, {"metadata": {"managedFields": [{}]}})
    assert owners(dropped) == {}


@pytest.mark.parametrize(
    ("body", "query", "code", "words"),
    [
        (part(), {}, 422, "fieldManager: Required value: is required for apply patch"),
        (part(), {"fieldManager": "x" * 129}, 422, "may not be more than 128 bytes"),
        (part(), {"fieldManager": "a\nb"}, 422, "printable"),
        ({"kind": "Pod"}, {"fieldManager": "m"}, 400, "apiVersion"),
        ([], {"fieldManager": "m"}, 400, "object"),
        (part(name="other"), {"fieldManager": "m"}, 400, "does not match"),
        (part(managedFields=[{}]), {"fieldManager": "m"}, 400, "must be nil"),
        ({**part(), "spec": {"containers": {}}}, {"fieldManager": "m"}, 422, "containers"),
        (
            {**part(), "spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
            {"fieldManager": "m"},
            400,
            ".spec.containers",
        ),
        (part(resourceVersion="1"), {"fieldManager": "m"}, 409, "modified"),
    ],
)
async def test_refused(rig: Any, body: Any, query: Any, code: int, words: str) -> None:
    await rig.add_pod()
    answer = await rig.patch(WEB, body, "apply", **query)
    assert (answer.status, words in answer.json["message"]) == (code, True), answer.json["message"]


async def test_force_is_for_apply_alone(rig: Any) -> None:
    await rig.add_pod()
    answer = await rig.patch(WEB, {}, force="true")
    assert answer.status == 422
    assert "may not be specified for non-apply patch" in answer.json["message"]


async def test_a_subresource_of_nothing_is_404_and_a_viewer_may_not_apply(rig: Any) -> None:
    assert (await apply(rig, sized("1"), path=f"{WEB}/resize")).status == 404
    assert (await apply(rig, sized("1"), token="viewer")).status == 403


async def test_a_dry_run_stores_nothing(rig: Any) -> None:
    made = await apply(rig, sized("500m"), dryRun="All")
    assert made.status == 201
    assert (await rig.get(WEB)).status == 404


async def test_yaml_and_json_bodies(rig: Any) -> None:
    text = b"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {name: app, image: 'b:1'}\n"
    assert (await apply(rig, text)).status == 201
    flow = b"{apiVersion: v1, kind: Pod, metadata: {labels: {a: b}}}"
    assert (await apply(rig, flow, "flow")).status == 200
    answer = await rig.request(
        "PATCH",
        WEB,
        part(labels={"c": "d"}),
        content_type="application/apply-patch+json",
        fieldManager="json",
    )
    assert answer.json["metadata"]["labels"] == {"a": "b", "c": "d"}


async def test_too_many_updaters_are_put_together(rig: Any) -> None:
    await rig.request("POST", PODS, pod(), fieldManager="maker")
    for number in range(12):
        await rig.clock.sleep(1)
        patch = {"metadata": {"labels": {f"l{number}": "x"}}}
        answer = await rig.patch(WEB, patch, fieldManager=f"m{number:02}")
    managers = [manager for manager, _, _ in owners(answer)]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert "m11" in managers
