"""ARK, container part, on the real system: a node filled to the last millicore, and the actor.

Each test quotes the sentences it checks; the kernel's files are the witness. What else the document
promises of containers is quoted in test_ark_first_light.py and test_ark_admission.py, or here:

    "allow to change Pod resource requests & limits without restarting its Containers"
        tests/machine/test_pods_of_three.py: both runtimes, by pid and start time
    "If Kubelet were to restart amidst handling a Pod resize [...] all Pods are admitted at their
    current [...] ResourcesAllocated values, and resizes are handled after all existing Pods have
    been added."
        tests/machine/test_up_crashes.py, test_containerd_crashes.py: killed at every step;
        tests/unit/agent/test_agent_restart.py: the order
    "Kubelet will use a control loop to set the memory limits near usage in order to force a
    reclaim, and update the Pod's Status.ContainerStatuses[i].Resources only when limit is at
    desired value."
        tests/machine/test_shrink_under_pressure.py, tests/guest/inside_narrow.py; every try forces
        the reclaim, and the limit stays until what is held fits (docs/adr/0040 says why)
    "setting defaults for ResourcesAllocated and ResizePolicy fields"
        tests/unit/api/test_defaults.py
    "added validation allowing only CPU and memory resource changes"
        tests/unit/api/test_validation_resize.py
    "extend NodeRestriction plugin limiting Node's update access to PodSpec only to the
    ResourcesAllocated field"
        tests/unit/apiserver/test_answers.py
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from system.groups import group_of, start_time
from system.up import Up, container, running_up

pytestmark = pytest.mark.containers

MIB = 1 << 20
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up"), allocatable="cpu=2,memory=512Mi") as running:
        yield running


@pytest.fixture(autouse=True)
def _empty(up: Up) -> Iterator[None]:
    yield
    for pod in up.request("GET", PODS)[1]["items"]:
        up.delete_pod(pod["metadata"]["name"])


def both(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts, "limits": amounts}


def ask(up: Up, name: str, **amounts: str) -> int:
    """PATCH; the generation that was asked."""
    patch = {"spec": {"containers": [{"name": "app", "resources": both(**amounts)}]}}
    code, answer = up.patch_resize(name, patch)
    assert code == 200, answer
    return int(answer["metadata"]["generation"])


def is_done(up: Up, name: str, generation: int) -> bool:
    state = up.pod(name)["status"]["resizeState"]
    return bool(state["phase"] == "Done" and state["generation"] == generation)


def is_deferred(up: Up, name: str) -> bool:
    pending = [c for c in up.pod(name)["status"]["conditions"] if c["type"] == "PodResizePending"]
    return bool(pending and pending[0]["reason"] == "Deferred")


def cpu_milli(up: Up, name: str) -> int:
    group = group_of(up, name, "app")
    quota_us = group.cpu_quota_us()
    assert quota_us == group.pod().cpu_quota_us()
    assert quota_us is not None
    return quota_us // 100


# Kubelet and API Server Interaction


def test_a_node_filled_to_the_last_millicore(up: Up) -> None:
    """Kubelet first checks if the new desired resources can fit the Node allocable resources by
    computing the sum of resources allocated (Pod.Spec.Containers[i].ResourcesAllocated) for all
    Pods in the Node, except the Pod being resized. [...] If new desired resources don't fit,
    Kubelet rejects the resize, and no further action is taken. Kubelet retries the Pod resize at a
    later time."""
    for name, cpu in (("a", "1200m"), ("b", "500m"), ("c", "300m")):
        up.create_pod(name, [container("app", cpu, "16Mi")])
    lived = {name: group_of(up, name, "app").main_pid() for name in ("a", "b", "c")}
    asked = ask(up, "b", cpu="501m")
    up.wait_until(lambda: is_deferred(up, "b"), "one millicore too many waits")
    assert cpu_milli(up, "b") == 500

    # A neighbour shrinks by exactly that: it is done at once, without anybody asking again.
    began = time.monotonic()
    ask(up, "a", cpu="1199m")
    up.wait_until(lambda: is_done(up, "b", asked), "it has its millicore")
    assert time.monotonic() - began < 2.0
    assert {name: cpu_milli(up, name) for name in ("a", "b", "c")} == {
        "a": 1199,
        "b": 501,
        "c": 300,
    }

    # A neighbour goes: the same.
    asked = ask(up, "b", cpu="1700m")
    up.wait_until(lambda: is_deferred(up, "b"), "it waits again")
    up.delete_pod("a")
    up.wait_until(lambda: is_done(up, "b", asked), "it has what is left")
    assert cpu_milli(up, "b") == 1700
    assert group_of(up, "b", "app").main_pid() == lived["b"]
    assert group_of(up, "c", "app").main_pid() == lived["c"]


def test_several_pods_are_resized_in_the_order_of_their_requests(up: Up) -> None:
    """If multiple Pods need resizing, they are handled sequentially in the order in which Pod
    additions and updates arrive at Kubelet."""
    for name in ("a", "b", "c"):
        up.create_pod(name, [container("app", "500m", "16Mi")])
    first, second = ask(up, "b", cpu="900m"), ask(up, "a", cpu="900m")
    up.wait_until(lambda: is_done(up, "b", first), "the first request is done")
    up.wait_until(lambda: is_deferred(up, "a"), "for the second there is no room")
    third = ask(up, "c", cpu="600m")
    up.wait_until(lambda: is_done(up, "c", third), "the third fits, and does not wait for it")
    up.delete_pod("c")
    up.wait_until(lambda: is_done(up, "a", second), "the second is done when there is room")


def test_resources_allocated_of_a_new_pod_are_left_alone(up: Up) -> None:
    """Kubelet does not set Pod's ResourcesAllocated after admitting a new Pod."""
    up.create_pod("new", [container("app", "200m", "16Mi")])
    pod = up.pod("new")
    assert pod["spec"]["containers"][0]["resourcesAllocated"] == {"cpu": "200m", "memory": "16Mi"}
    assert pod["metadata"]["generation"] == 1
    assert pod["status"]["resizeState"]["phase"] == "None"


# Flow Control, the initiating actor


def allocated_matches(pod: dict[str, Any]) -> bool:
    (one,) = pod["spec"]["containers"]
    return bool(one["resourcesAllocated"] == one["resources"]["requests"])


def is_complete(pod: dict[str, Any]) -> bool:
    (status,) = pod["status"]["containerStatuses"]
    return bool(status["resources"] == pod["spec"]["containers"][0]["resources"])


class Actor:
    """Knows no more than the document says it may look at."""

    def __init__(self, up: Up) -> None:
        self._up = up

    def resize(self, name: str, timeout_seconds: float, **amounts: str) -> str:
        """What it sees: complete, accepted or unchanged, at the latest after its own timeout."""
        ask(self._up, name, **amounts)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            pod = self._up.pod(name)
            if allocated_matches(pod) and is_complete(pod):
                return "complete"
            time.sleep(0.01)
        return "accepted" if allocated_matches(self._up.pod(name)) else "unchanged"

    def evict(self, name: str) -> dict[str, Any]:
        """The container of a replacement, with what the pod's spec desired."""
        (desired,) = self._up.pod(name)["spec"]["containers"]
        path = f"/api/v1/namespaces/default/pods/{name}"
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}}
        assert self._up.request("POST", f"{path}/eviction", body)[0] == 201
        self._up.wait_until(lambda: self._up.request("GET", path)[0] == 404, f"{name} is gone")
        return {key: desired[key] for key in ("name", "image", "command", "resources")}


def test_the_actor_sees_that_it_was_accepted_and_then_complete(up: Up) -> None:
    """Case 1: Pod's Spec.Containers[i].ResourcesAllocated values have changed and matches
    Spec.Containers[i].Resources.Requests, signifying that desired resize has been accepted, and
    Pod is being resized. The resize operation is complete when Pod's
    Status.ContainerStatuses[i].Resources and Spec.Containers[i].Resources match."""
    hold = (
        "trap 'rm /dev/shm/x' USR1; head -c 40m /dev/zero > /dev/shm/x; while :; do sleep 1; done"
    )
    up.create_pod("db", [container("app", "500m", "64Mi", command=hold)])
    group = group_of(up, "db", "app")
    before = group.main_pid(), start_time(group.main_pid())
    up.wait_until(lambda: group.memory_usage_bytes() > 40 * MIB, "it holds its memory")
    actor = Actor(up)
    assert actor.resize("db", 10.0, cpu="600m") == "complete"
    assert actor.resize("db", 0.5, memory="16Mi") == "accepted"
    assert not is_complete(up.pod("db"))
    os.kill(before[0], signal.SIGUSR1)
    up.wait_until(lambda: is_complete(up.pod("db")), "the memory is given up")
    assert group.memory_limit_bytes() == 16 * MIB
    assert (group.main_pid(), start_time(before[0])) == before


def test_the_actor_evicts_and_the_replacement_has_the_new_size(up: Up) -> None:
    """Case 2: Pod's Spec.Containers[i].ResourcesAllocated remains unchanged, and continues to
    differ from desired Spec.Containers[i].Resources.Requests. After a certain (user defined)
    timeout, initiating actor may take alternate action. [...] Evict the Pod to trigger a
    replacement Pod with new desired resources"""
    up.create_pod("other", [container("app", "1", "16Mi")])
    up.create_pod("db", [container("app", "600m", "16Mi")])
    actor = Actor(up)
    assert actor.resize("db", 0.5, cpu="1500m") == "unchanged"
    assert cpu_milli(up, "db") == 600
    replacement = actor.evict("db")
    up.delete_pod("other")  # there is room now; elsewhere, it would be on another node
    up.create_pod("db-2", [replacement])
    assert cpu_milli(up, "db-2") == 1500
    assert up.pod("db-2")["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "1500m"


def test_the_actor_does_nothing_and_the_retry_comes(up: Up) -> None:
    """Do nothing and let Kubelet back off and later retry the in-place resize."""
    up.create_pod("other", [container("app", "1", "16Mi")])
    up.create_pod("db", [container("app", "600m", "16Mi")])
    assert Actor(up).resize("db", 0.3, cpu="1500m") == "unchanged"
    up.delete_pod("other")
    up.wait_until(lambda: is_complete(up.pod("db")), "it was tried again")
    assert cpu_milli(up, "db") == 1500
