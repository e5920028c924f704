"""pods/X/resizing, pods/X/status and resourcesAllocated: who may say what about a resize."""

from __future__ import annotations

from typing import Any

import pytest

WEB = "/api/v1/namespaces/default/pods/web"
RESIZING = f"{WEB}/resizing"


@pytest.fixture
async def asked(rig: Any) -> dict[str, Any]:
    """A bound pod with a resize from 500m to 800m asked at generation 2."""
    await rig.add_node()
    await rig.add_pod(node="n1")
    patch = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "800m"}}}]}}
    answer = await rig.patch(f"{WEB}/resize", patch, "strategic")
    assert answer.status == 200
    pod: dict[str, Any] = answer.json
    return pod


def answered(request_status: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "Resizing",
        "apiVersion": "v1",
        "request": {"requestStatus": request_status},
        **more,
    }


def condition(pod: Any, kind: str) -> Any:
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == kind]
    return found[0] if found else None


async def test_accepted_allocates_and_done_finishes_in_one_commit_with_status(
    rig: Any, asked: Any
) -> None:
    accepted = await rig.request("POST", RESIZING, answered("Accepted", generation=2), token="n1")
    assert accepted.status == 201
    pod = accepted.json
    assert pod["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "800m"
    assert condition(pod, "PodResizeInProgress")["observedGeneration"] == 2
    before = rig.cache.revision
    actual = {"requests": {"cpu": "800m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
    statuses = [{"name": "app", "resources": actual}]
    done = await rig.request(
        "POST",
        RESIZING,
        answered("Done", generation=2, status={"containerStatuses": statuses}),
        token="n1",
    )
    assert rig.cache.revision == before + 1
    assert condition(done.json, "PodResizeInProgress") is None
    assert condition(done.json, "PodResized")["status"] == "Done"
    assert done.json["status"]["containerStatuses"][0]["resources"] == actual
    assert done.json["metadata"]["generation"] == 2


async def test_an_answer_to_an_older_request_is_a_conflict(rig: Any, asked: Any) -> None:
    answer = await rig.request("POST", RESIZING, answered("Accepted", generation=1), token="n1")
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert (await rig.get(WEB)).json == asked


@pytest.mark.parametrize(
    ("token", "body", "code"),
    [
        ("scheduler", answered("Accepted"), 201),
        ("scheduler", answered("Rejected", reason="Infeasible"), 201),
        ("scheduler", answered("Done"), 403),
        ("scheduler", answered("Accepted", allocated=[]), 403),
        ("n2", answered("Accepted"), 403),
        ("editor", answered("Accepted"), 403),
        ("n1", answered("Perhaps"), 422),
        ("n1", {"request": {"requestStatus": 7}}, 400),
        ("n1", answered("Accepted", metadata={"uid": "another"}), 409),
    ],
)
async def test_who_may_answer(rig: Any, asked: Any, token: str, body: Any, code: int) -> None:
    assert (await rig.request("POST", RESIZING, body, token=token)).status == code


async def test_what_is_allocated_is_not_the_users(rig: Any, asked: Any) -> None:
    patch = [
        {"op": "replace", "path": "/spec/containers/0/resourcesAllocated/cpu", "value": "800m"}
    ]
    refused = await rig.patch(WEB, patch, "json", token="editor")
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    taken = await rig.patch(WEB, patch, "json", token="n1")
    assert taken.status == 200
    assert taken.json["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "800m"
    assert taken.json["status"]["resizeState"]["phase"] == "InProgress"


async def test_a_node_changes_nothing_else_of_its_pods(rig: Any, asked: Any) -> None:
    answer = await rig.patch(WEB, {"metadata": {"labels": {"by": "node"}}}, token="n1")
    assert answer.status == 403
    other = await rig.patch(f"{WEB}/status", {"status": {"phase": "Running"}}, token="n2")
    assert other.status == 403


async def test_status_is_written_without_touching_spec_or_the_resize(rig: Any, asked: Any) -> None:
    patch = {
        "status": {"phase": "Running"},
        "metadata": {"labels": {"x": "y"}},
        "spec": {"schedulerName": "mine"},
    }
    answer = await rig.patch(f"{WEB}/status", patch, token="n1")
    assert answer.status == 200, answer.json
    assert answer.json["status"]["phase"] == "Running"
    state = dict(answer.json["status"]["resizeState"])
    assert state.pop("requestedVersion") == asked["metadata"]["resourceVersion"]
    assert state == asked["status"]["resizeState"]
    assert answer.json["spec"] == asked["spec"]
    assert answer.json["metadata"]["labels"] == asked["metadata"]["labels"]
    assert answer.json["metadata"]["generation"] == 2


async def test_the_state_of_a_resize_is_not_written_with_the_status(rig: Any, asked: Any) -> None:
    patch = {"status": {"resizeState": {"phase": "Done"}}}
    assert (await rig.patch(f"{WEB}/status", patch, token="n1")).status == 403
    without = {**asked, "status": {"phase": "Running"}}
    answer = await rig.request("PUT", f"{WEB}/status", without, token="n1")
    state = dict(answer.json["status"]["resizeState"])
    assert state.pop("requestedVersion") == asked["metadata"]["resourceVersion"]
    assert state == asked["status"]["resizeState"]


async def test_old_clients_erase_nothing(rig: Any, asked: Any) -> None:
    """A whole PUT from a client that knows none of the dialects."""
    old = {**asked, "spec": {**asked["spec"]}}
    del old["spec"]["resizeRequest"]
    del old["status"]
    old["spec"]["containers"] = [
        {key: value for key, value in container.items() if key != "resourcesAllocated"}
        for container in asked["spec"]["containers"]
    ]
    answer = await rig.request("PUT", WEB, old, token="editor")
    assert answer.status == 200
    assert answer.json == asked


async def test_create_with_another_allocation_is_invalid(rig: Any) -> None:
    from_user = {
        "metadata": {"name": "web"},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "x:1",
                    "resources": {"requests": {"cpu": "1"}},
                    "resourcesAllocated": {"cpu": "2"},
                }
            ]
        },
    }
    path = "/api/v1/namespaces/default/pods"
    answer = await rig.request("POST", path, from_user)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    from_user["spec"]["containers"][0]["resourcesAllocated"] = {"cpu": "1000m"}
    assert (await rig.request("POST", path, from_user)).status == 201


async def test_binding_happens_once(rig: Any) -> None:
    await rig.add_pod()
    body = {"target": {"kind": "Node", "name": "n1"}}
    bound = await rig.request("POST", f"{WEB}/binding", body, token="scheduler")
    assert bound.status == 201
    assert bound.json["spec"]["nodeName"] == "n1"
    assert bound.json["metadata"]["generation"] == 1
    assert condition(bound.json, "PodScheduled")["status"] == "True"
    again = await rig.request("POST", f"{WEB}/binding", body, token="scheduler")
    assert (again.status, again.json["reason"]) == (409, "Conflict")
    nowhere = await rig.request("POST", f"{WEB}/binding", {"target": {}}, token="scheduler")
    assert nowhere.status == 422


EVENTS = "/api/v1/namespaces/default/events"


def told(name: str = "web", **more: Any) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"{name}.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
        "reason": "ResizeCompleted",
        "message": "Pod resize completed",
        "type": "Normal",
        "count": 1,
        **more,
    }


async def test_done_that_was_never_accepted_is_told_as_both(rig: Any, asked: Any) -> None:
    version = asked["metadata"]["resourceVersion"]
    await rig.request("POST", RESIZING, answered("Done", generation=2), token="n1")
    again = await rig.request("POST", RESIZING, answered("Done", generation=2), token="n1")
    assert again.status == 201, "told twice, it is Done once"
    watch = await rig.watch(WEB.removesuffix("/web"), resourceVersion=version)
    pods = [(await watch.next())["object"] for _ in range(2)]
    await watch.hang_up()
    assert [pod["spec"]["resizeRequest"]["requestStatus"] for pod in pods] == ["Accepted", "Done"]
    assert condition(pods[0], "PodResizeInProgress")["observedGeneration"] == 2
    assert pods[0]["metadata"]["generation"] == 2


async def test_events_come_with_the_answer_in_one_commit(rig: Any, asked: Any) -> None:
    before = rig.cache.revision
    body = answered("Done", generation=2, events=[told()])
    done = await rig.request("POST", RESIZING, body, token="n1")
    assert done.status == 201
    assert rig.cache.revision == before + 2, "Accepted, then Done and its events"
    events = (await rig.get(EVENTS)).json["items"]
    assert [event["reason"] for event in events] == ["ResizeCompleted"]
    assert events[0]["metadata"]["resourceVersion"] == done.json["metadata"]["resourceVersion"]
    assert events[0]["metadata"]["uid"]
    assert "events" not in str(done.json)


@pytest.mark.parametrize(
    ("events", "code", "field"),
    [
        ([told("other")], 422, "events[0].involvedObject"),
        ([told(metadata={"name": f"e{one}"}) for one in range(17)], 422, "events"),
        ([told(metadata={"name": "NOT A NAME"})], 422, "metadata.name"),
        ([told(metadata={"name": "web.1", "namespace": "kube-system"})], 400, ""),
    ],
    ids=["about another pod", "too many", "a bad name", "another namespace"],
)
async def test_an_event_that_may_not_come_along_keeps_the_answer_out_too(
    rig: Any, asked: Any, events: Any, code: int, field: str
) -> None:
    body = answered("Done", generation=2, events=events)
    answer = await rig.request("POST", RESIZING, body, token="n1")
    assert answer.status == code
    if field:
        assert answer.json["details"]["causes"][0]["field"] == field
    assert (await rig.get(WEB)).json == asked
    assert (await rig.get(EVENTS)).json["items"] == []


async def test_a_refused_answer_leaves_no_event(rig: Any, asked: Any) -> None:
    body = answered("Done", generation=1, events=[told()])
    answer = await rig.request("POST", RESIZING, body, token="n1")
    assert answer.status == 409
    assert (await rig.get(EVENTS)).json["items"] == []
