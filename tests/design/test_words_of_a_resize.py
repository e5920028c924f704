"""One resize told in the documents' own words: ARK and IBM, over the pure functions alone.

Each test quotes the sentence it checks. The same sentences are checked again on the real system.
"""

from __future__ import annotations

import pytest

from livesize.api.accounting import Fits, NoRoomNow, fits, footprint, requests_of
from livesize.api.defaults import default_object
from livesize.api.dialects import derive_dialects
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve
from livesize.api.resize_policy import ResizeAction, action_for, strongest
from livesize.api.resize_state import apply_resizing, bind_allocated, request_resize
from livesize.api.resources import Amounts, resources_of
from livesize.api.validation.objects import validate_create, validate_update

T1, T2 = "2026-08-01T10:00:00Z", "2026-08-01T10:00:01Z"
CONTAINER = ("spec", "containers", 0)


def new_pod(cpu: str = "1") -> Object:
    size = {"cpu": cpu, "memory": "1Gi"}
    body = {
        "metadata": {"name": "p", "namespace": "d", "generation": 1},
        "spec": {
            "containers": [
                {"name": "c", "image": "i:1", "resources": {"requests": size, "limits": size}}
            ]
        },
    }
    return default_object(PODS, body)


def running_pod(cpu: str = "1") -> Object:
    return bind_allocated(evolve(new_pod(cpu), ("spec", "nodeName"), "n"))


def patched(pod: Object, cpu: str) -> Object:
    new = pod
    for side in ("requests", "limits"):
        new = evolve(new, (*CONTAINER, "resources", side, "cpu"), cpu)
    assert validate_update(PODS, new, pod) == []
    new = evolve(new, ("metadata", "generation"), pod["metadata"]["generation"] + 1)
    return request_resize(pod, new, requested_by="someone", now=T1)


def allocated(pod: Object) -> Object:
    shown: Object = derive_dialects(pod)["spec"]["containers"][0]["resourcesAllocated"]
    return shown


def test_ark_allocated_of_a_new_pod() -> None:
    """For a newly created Pod, Spec.Containers[i].ResourcesAllocated must match
    Spec.Containers[i].Resources.Requests."""
    pod = new_pod()
    assert allocated(pod) == pod["spec"]["containers"][0]["resources"]["requests"]
    other = evolve(pod, (*CONTAINER, "resourcesAllocated"), {"cpu": "7"})
    (error,) = validate_create(PODS, other)
    assert error.field == "spec.containers[0].resourcesAllocated"


def test_ark_api_server_updates_the_spec_and_leaves_allocated() -> None:
    """API Server updates PodSpec object with the new desired Resources."""
    asked = patched(running_pod(), "2")
    assert asked["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert allocated(asked)["cpu"] == "1"


def test_ark_case_1_kubelet_accepts() -> None:
    """It accepts the resize and sets Spec.Containers[i].ResourcesAllocated equal to the values of
    Spec.Containers[i].Resources.Requests."""
    body = {"request": {"requestStatus": "Accepted"}, "generation": 2}
    assert allocated(apply_resizing(patched(running_pod(), "2"), body, now=T2))["cpu"] == "2"


def test_ark_case_2_does_not_fit() -> None:
    """If Kubelet determines there isn't enough room, it simply retries the Pod resize at a later
    time."""
    asked, node = patched(running_pod(), "2"), Amounts(4000, 2**33)
    neighbour = running_pod("3")
    assert isinstance(fits([footprint(neighbour)], requests_of(asked), node), NoRoomNow)
    body = {"request": {"requestStatus": "Rejected"}, "phase": "Deferred", "generation": 2}
    deferred = apply_resizing(asked, body, now=T2)
    assert allocated(deferred)["cpu"] == "1"
    assert footprint(deferred) == footprint(running_pod())
    assert fits([], requests_of(deferred), node) == Fits()
    accepted = {"request": {"requestStatus": "Accepted"}, "generation": 2}
    assert allocated(apply_resizing(deferred, accepted, now=T2))["cpu"] == "2"


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        (("cpu",), ResizeAction.LIVE),
        (("memory",), ResizeAction.RESTART_POD),
        (("cpu", "memory"), ResizeAction.RESTART_POD),
    ],
)
def test_ibm_precedence(changes: tuple[str, ...], action: ResizeAction) -> None:
    """if two resources have been resized in the update to the spec and one of them has a policy of
    RestartOnly then the pod would be restarted to realize both updates."""
    policies = {"cpu": "LiveResizeable", "memory": "RestartOnly"}
    before = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "resizePolicy": policies}}
    after = before
    for name in changes:
        after = evolve(after, ("resources", "limits", name), "2Gi")
    assert action_for(after, resources_of(before), resources_of(after)) is action
    assert strongest([action, ResizeAction.LIVE]) is action


def test_ibm_request_status_and_condition_walk_together() -> None:
    """Basically, when the ResizeStatus is changed, the `Kubelet` updates the PodResized condition
    accordingly."""
    pod = patched(running_pod(), "2")
    seen = []
    for status in ("Requested", "Accepted", "Done"):
        if status != "Requested":
            pod = apply_resizing(pod, {"request": {"requestStatus": status}}, now=T2)
        served = derive_dialects(pod)
        conditions = {one["type"]: one["status"] for one in served["status"]["conditions"]}
        seen.append((served["spec"]["resizeRequest"]["requestStatus"], conditions["PodResized"]))
        assert served["spec"]["resizeRequest"]["newResources"][0]["requests"]["cpu"] == "2"
    assert seen == [(status, status) for status in ("Requested", "Accepted", "Done")]


def test_ibm_qos_class_change_by_resize_is_not_supported() -> None:
    """QoS class change by resize is not supported."""
    pod = running_pod()
    new = evolve(pod, (*CONTAINER, "resources", "requests", "cpu"), "500m")
    (error,) = validate_update(PODS, new, pod)
    assert error.sentence() == (
        'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'
    )
