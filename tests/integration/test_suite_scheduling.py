"""What Kubernetes' own suite checks of resizes beside a scheduler (test/e2e/node/pod_resize.go):
room that a resize makes or takes on the one node, by the whole system on a faked machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from livesize.api.quantity import cpu_milli, format_cpu, format_memory
from livesize.runtime.fake import FAKE_IMAGE
from system.up import Up

pytestmark = pytest.mark.apiserver

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
MEBIBYTE = 1 << 20


class Pods:
    """Pods of one container in a namespace of their own."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.namespace = f"suite-{secrets.token_hex(3)}"
        up.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.path = f"/api/v1/namespaces/{self.namespace}/pods"

    def available_milli(self) -> int:
        """As their GetNodeAllocatableAndAvailableQuantities: less what all pods ask for."""
        node = self.up.request("GET", f"/api/v1/nodes/{self.up.node}")[1]
        asked = 0
        for pod in self.up.request("GET", "/api/v1/pods")[1]["items"]:
            for one in pod["spec"]["containers"]:
                asked += cpu_milli(one["resources"].get("requests", {}).get("cpu", "0"))
        return cpu_milli(node["status"]["allocatable"]["cpu"]) - asked

    def create(self, name: str, milli: int, memory_mib: int = 0) -> None:
        container = {"name": "c", "image": FAKE_IMAGE, "resources": sized(milli, memory_mib)}
        made = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        code, answer = self.up.request("POST", self.path, made)
        assert code == 201, answer
        assert answer["metadata"]["generation"] == 1

    def resize(self, name: str, milli: int, memory_mib: int = 0) -> int:
        """The generation that the answer has."""
        spec = {"containers": [{"name": "c", "resources": sized(milli, memory_mib)}]}
        path = f"{self.path}/{name}/resize"
        code, answer = self.up.request("PATCH", path, {"spec": spec}, STRATEGIC)
        assert code == 200, answer
        return int(answer["metadata"]["generation"])

    def delete(self, *names: str) -> None:
        for name in names:
            self.up.request("DELETE", f"{self.path}/{name}?gracePeriodSeconds=1")
        for name in names:
            path = f"{self.path}/{name}"
            self.up.wait_until(lambda path=path: self.up.request("GET", path)[0] == 404, "gone")

    def condition(self, name: str, kind: str) -> Object:
        pod = self.up.request("GET", f"{self.path}/{name}")[1]
        listed = pod.get("status", {}).get("conditions", [])
        return next((one for one in listed if one["type"] == kind), {})

    def wait_running(self, name: str) -> None:
        path = f"{self.path}/{name}"

        def runs() -> bool:
            return bool(self.up.request("GET", path)[1]["status"]["phase"] == "Running")

        self.up.wait_until(runs, f"{name} runs")

    def wait_unschedulable(self, name: str) -> None:
        def waits() -> bool:
            return self.condition(name, "PodScheduled").get("reason") == "Unschedulable"

        self.up.wait_until(waits, f"{name} is unschedulable")
        assert self.condition(name, "PodScheduled")["observedGeneration"] == 1

    def wait_pending(self, name: str, reason: str) -> None:
        def waits() -> bool:
            return self.condition(name, "PodResizePending").get("reason") == reason

        self.up.wait_until(waits, f"the resize of {name} is {reason}")

    def wait_resized(self, name: str, milli: int, memory_mib: int = 0) -> None:
        wanted, path = sized(milli, memory_mib), f"{self.path}/{name}"

        def resized() -> bool:
            status = self.up.request("GET", path)[1]["status"]
            types = {one["type"] for one in status["conditions"]}
            (told,) = status["containerStatuses"]
            waits = types & {"PodResizePending", "PodResizeInProgress"}
            return told["resources"] == wanted and not waits

        self.up.wait_until(resized, f"{name} has {wanted}")


def sized(milli: int, memory_mib: int) -> Object:
    """CPU requests and limits alike; with memory requests only, as in their chain of resizes."""
    cpu = {"cpu": format_cpu(milli)}
    if memory_mib:
        return {"requests": {**cpu, "memory": format_memory(memory_mib * MEBIBYTE)}}
    return {"requests": cpu, "limits": cpu}


@pytest.fixture
def pods(fake_up: Up) -> Iterator[Pods]:
    made = Pods(fake_up)
    yield made
    fake_up.request("DELETE", f"/api/v1/namespaces/{made.namespace}")
    path = f"/api/v1/namespaces/{made.namespace}"
    fake_up.wait_until(lambda: fake_up.request("GET", path)[0] == 404, "the namespace is gone")


def test_pods_are_scheduled_by_what_resizes_leave(pods: Pods) -> None:
    """Theirs: "pod-resize-scheduler-tests"."""
    available = pods.available_milli()
    half = available // 2
    pods.create("testpod1", half)
    pods.wait_running("testpod1")
    pods.create("testpod2", available)
    pods.wait_unschedulable("testpod2")
    assert pods.resize("testpod2", half // 2) == 2
    pods.wait_running("testpod2")

    third = pods.available_milli() + half // 4
    pods.create("testpod3", third)
    pods.wait_unschedulable("testpod3")
    assert pods.resize("testpod1", half // 3) == 2
    pods.wait_running("testpod3")

    assert pods.resize("testpod1", half) == 3
    pods.wait_pending("testpod1", "Deferred")
    pods.delete("testpod2", "testpod3")
    pods.wait_resized("testpod1", half)
    pods.resize("testpod1", 2 * available)  # 1.35 stores it; newer ones answer 403
    pods.wait_pending("testpod1", "Infeasible")


def test_a_shrink_lets_a_deferred_resize_through(pods: Pods) -> None:
    """Theirs: "pod-resize-retry-deferred-test-1"."""
    part = pods.available_milli() // 10
    pods.create("a", 5 * part)
    pods.create("b", 3 * part)
    pods.wait_running("a")
    pods.wait_running("b")
    pods.resize("b", 6 * part)
    pods.wait_pending("b", "Deferred")
    assert pods.resize("a", 2 * part) == 2
    pods.wait_resized("b", 6 * part)


def test_a_chain_of_deferred_resizes(pods: Pods) -> None:
    """Theirs: "pod-resize-retry-deferred-test-3": each one that is done makes room for the next."""
    available, memory_mib = pods.available_milli(), 8 * 1024
    quarter, fifth = available // 4, memory_mib // 5
    names = ("one", "two", "three", "four")
    for name in names:
        pods.create(name, quarter, fifth)
    for name in names:
        pods.wait_running(name)
    pods.resize("two", available // 3, memory_mib // 24)
    pods.wait_pending("two", "Deferred")
    pods.resize("three", available // 24, 2 * memory_mib // 3)
    pods.wait_pending("three", "Deferred")
    pods.resize("four", 5 * available // 8, fifth)
    pods.wait_pending("four", "Deferred")
    pods.delete("one")
    pods.wait_resized("two", available // 3, memory_mib // 24)
    pods.wait_resized("three", available // 24, 2 * memory_mib // 3)
    pods.wait_resized("four", 5 * available // 8, fifth)
