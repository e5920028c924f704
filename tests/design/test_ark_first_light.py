"""ARK on the real system: `livesize up`, real containers, and the kernel's files as the witness.

Each test quotes the sentence of the document it checks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from design.writes import following_writes
from system.groups import GroupFiles, group_of, start_time
from system.up import Up, container, running_up

pytestmark = pytest.mark.containers

MIB = 1 << 20


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up"), allocatable="cpu=4,memory=1Gi") as running:
        yield running


@pytest.fixture(autouse=True)
def _empty(up: Up) -> Iterator[None]:
    """Each test leaves a node without pods."""
    yield
    for pod in up.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]:
        up.delete_pod(pod["metadata"]["name"])


def both(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts, "limits": amounts}


def ask(up: Up, name: str, **containers: dict[str, Any]) -> dict[str, Any]:
    """PATCH the resources of containers by name; the answer, which must be 200."""
    changes = [{"name": key, "resources": value} for key, value in containers.items()]
    code, answer = up.patch_resize(name, {"spec": {"containers": changes}})
    assert code == 200, answer
    return answer


def allocated(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["resourcesAllocated"] for one in pod["spec"]["containers"]}


def requests(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["resources"]["requests"] for one in pod["spec"]["containers"]}


def actual(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["resources"] for one in pod["status"]["containerStatuses"]}


def condition(up: Up, name: str, kind: str) -> Any:
    conditions = up.pod(name)["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), None)


def deferred(up: Up, name: str) -> Any:
    def seen() -> Any:
        pending = condition(up, name, "PodResizePending")
        return pending if pending and pending["reason"] == "Deferred" else None

    return up.wait_until(seen, f"the resize of {name} is deferred")


def lives(group: GroupFiles) -> tuple[int, int]:
    """Which process the container is, so that no other can be taken for it."""
    pid = group.main_pid()
    return pid, start_time(pid)


# Kubelet and API Server Interaction


def test_a_new_pod(up: Up) -> None:
    """For a newly created Pod, Spec.Containers[i].ResourcesAllocated must match
    Spec.Containers[i].Resources.Requests. [...] set Pod's Status.ContainerStatuses[i].Resources
    for Containers upon placing a new Pod on the Node"""
    up.create_pod("new", [container("app", "200m", "32Mi")])
    pod = up.pod("new")
    assert allocated(pod) == requests(pod) == {"app": {"cpu": "200m", "memory": "32Mi"}}
    assert actual(pod) == {"app": both(cpu="200m", memory="32Mi")}
    group = group_of(up, "new", "app")
    assert (group.cpu_quota_us(), group.memory_limit_bytes()) == (20_000, 32 * MIB)


def test_a_new_pod_loses_the_race(up: Up) -> None:
    """If this race condition occurs, Kubelet resolves it by rejecting that new Pod if the Node has
    no room after Pod resize."""
    up.create_pod("first", [container("app", "1", "32Mi")])
    ask(up, "first", app=both(cpu="3"))
    up.wait_resized("first")
    late = {
        "metadata": {"name": "late"},
        "spec": {"nodeName": up.node, "containers": [container("app", "2", "32Mi")]},
    }
    assert up.request("POST", "/api/v1/namespaces/default/pods", late)[0] == 201
    up.wait_until(lambda: up.pod("late")["status"].get("phase") == "Failed", "it is rejected")
    assert up.pod("late")["status"]["reason"] == "OutOfcpu"
    assert group_of(up, "first", "app").cpu_quota_us() == 300_000


def test_the_scheduler_counts_what_is_allocated(up: Up) -> None:
    """It uses the cached Pod's Spec.Containers[i].ResourcesAllocated values to compute the Node
    resources allocated to Pods."""
    up.create_pod("grown", [container("app", "1", "32Mi")])
    ask(up, "grown", app=both(cpu="3"))
    up.wait_resized("grown")
    waiting = {
        "metadata": {"name": "waiting"},
        "spec": {"containers": [container("a", "2", "8Mi")]},
    }
    assert up.request("POST", "/api/v1/namespaces/default/pods", waiting)[0] == 201
    said = up.wait_until(lambda: condition(up, "waiting", "PodScheduled"), "it cannot be placed")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert "Insufficient cpu" in said["message"]
    ask(up, "grown", app=both(cpu="1"))
    up.wait_running("waiting")
    # Wanted and not given, so not counted: a giant that waits blocks nobody.
    ask(up, "grown", app=both(cpu="64"))
    up.create_pod("another", [container("app", "1", "8Mi")])


# Flow Control


def test_flow_control_case_1(up: Up) -> None:
    """1. Initiating actor updates Pod's Spec.Containers[i].Resources via PATCH verb. [...]
    4. API Server updates PodSpec object with the new desired Resources. 5. [...] Case 1: [...] sets
    Spec.Containers[i].ResourcesAllocated equal to the values of
    Spec.Containers[i].Resources.Requests. It then applies the new cgroup limits to the Pod and its
    Containers, and once successfully done, sets Pod's Status.ContainerStatuses[i].Resources [...]
    The resize operation is complete when Pod's Status.ContainerStatuses[i].Resources and
    Spec.Containers[i].Resources match."""
    up.create_pod("db", [container("app", "200m", "64Mi")])
    group = group_of(up, "db", "app")
    before = lives(group)

    asked = ask(up, "db", app=both(cpu="500m", memory="128Mi"))

    assert requests(asked) == {"app": {"cpu": "500m", "memory": "128Mi"}}
    up.wait_resized("db")
    pod = up.pod("db")
    assert allocated(pod) == requests(pod)
    assert actual(pod) == {"app": both(cpu="500m", memory="128Mi")}
    assert (group.cpu_quota_us(), group.memory_limit_bytes()) == (50_000, 128 * MIB)
    assert group.pod().cpu_quota_us() == 50_000
    assert group.pod().memory_limit_bytes() == 128 * MIB
    assert lives(group) == before


def test_flow_control_step_2(up: Up) -> None:
    """API Server validates the new Resources. (e.g. Limits are not below Requests, QoS class
    doesn't change [...]) [...] API Server responds with an appropriate error message."""
    up.create_pod("db", [container("app", "200m", "64Mi")])
    before = up.pod("db")
    for resources, field in (
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            "spec.containers[0].resources.requests",
        ),
        ({"requests": {"cpu": "100m"}}, "spec"),
    ):
        change = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
        code, answer = up.patch_resize("db", change)
        assert code == 422
        assert field in [cause["field"] for cause in answer["details"]["causes"]]
    assert up.pod("db")["spec"] == before["spec"]
    assert group_of(up, "db", "app").cpu_quota_us() == 20_000


def test_flow_control_case_2(up: Up) -> None:
    """Case 2: Pod's Spec.Containers[i].ResourcesAllocated remains unchanged, and continues to
    differ from desired Spec.Containers[i].Resources.Requests. [...] it simply retries the Pod
    resize at a later time."""
    up.create_pod("big", [container("app", "2", "16Mi")], priority=0)
    up.create_pod("small", [container("app", "1", "16Mi")])
    up.create_pod("other", [container("app", "500m", "16Mi")])
    group, others = group_of(up, "small", "app"), group_of(up, "other", "app")
    before, neighbour = lives(group), lives(group_of(up, "big", "app"))

    ask(up, "small", app=both(cpu="2"))
    deferred(up, "small")
    pod = up.pod("small")
    assert allocated(pod)["app"]["cpu"] == "1"
    assert requests(pod)["app"]["cpu"] == "2"
    assert group.cpu_quota_us() == 100_000

    # Judged one after the other, and the one that waits blocks nobody.
    ask(up, "other", app=both(cpu="750m"))
    up.wait_resized("other")
    assert others.cpu_quota_us() == 75_000
    # Non-goal: "eviction of lower priority Pods to facilitate Pod resize".
    assert lives(group_of(up, "big", "app")) == neighbour

    ask(up, "big", app=both(cpu="1"))
    up.wait_resized("small")
    assert group.cpu_quota_us() == 200_000
    assert lives(group) == before


# Container resource limit update ordering

# Both begin at 250m and 64Mi. Eighths of a CPU are whole CPU shares, so sums are exact.
ORDERS = [
    pytest.param(
        {"a": both(cpu="125m", memory="32Mi"), "b": both(cpu="500m", memory="128Mi")},
        ["pod:cpu", "a:cpu", "b:cpu", "pod:memory", "a:memory", "b:memory"],
        id="net increase: pod first",
    ),
    pytest.param(
        {"a": both(cpu="375m", memory="72Mi"), "b": both(cpu="50m", memory="16Mi")},
        ["b:cpu", "a:cpu", "pod:cpu", "b:memory", "a:memory", "pod:memory"],
        id="net decrease: pod last",
    ),
    pytest.param(
        {"a": both(cpu="375m", memory="96Mi"), "b": both(cpu="125m", memory="32Mi")},
        ["b:cpu", "a:cpu", "b:memory", "a:memory"],
        id="no net change: the pod is not written",
    ),
    pytest.param(
        {"a": both(cpu="500m", memory="32Mi"), "b": both(cpu="250m", memory="64Mi")},
        ["pod:cpu", "a:cpu", "a:memory", "pod:memory"],
        id="each resource by itself",
    ),
]


@pytest.mark.parametrize(("sizes", "written"), ORDERS)
def test_update_ordering(up: Up, sizes: dict[str, Any], written: list[str]) -> None:
    """If resource resizing results in net-increase of a resource type (CPU or Memory), Kubelet
    first updates Pod-level cgroup limit for the resource type, and then updates the Container [...]
    In all the above cases, Kubelet applies Container resource limit decreases before applying limit
    increases."""
    up.create_pod("two", [container("a", "250m", "64Mi"), container("b", "250m", "64Mi")])
    a, b = group_of(up, "two", "a"), group_of(up, "two", "b")
    with following_writes() as writes:
        writes.follow("pod", a.pod()).follow("a", a).follow("b", b)
        ask(up, "two", **sizes)
        up.wait_resized("two")
        assert writes.taken() == written
    assert actual(up.pod("two")) == sizes


def test_update_failure_handling(up: Up) -> None:
    """Kubelet does not attempt to update limits for containers that are lined up for update after
    the failing container. This ensures that sum of the container limits does not exceed Pod-level
    cgroup limit at any point."""
    held = "/dev/shm/held"
    hold = f"trap 'rm {held}' USR1; head -c 40m /dev/zero > {held}; while :; do sleep 0.1; done"
    full = container("a", "100m", "96Mi", command=hold)
    up.create_pod("two", [full, container("b", "100m", "96Mi")])
    a, b = group_of(up, "two", "a"), group_of(up, "two", "b")
    before = lives(a), lives(b)
    up.wait_until(lambda: a.memory_usage_bytes() > 40 * MIB, "a holds its memory")

    ask(up, "two", a=both(cpu="200m", memory="24Mi"), b=both(cpu="100m", memory="24Mi"))

    def failed() -> Any:
        found = condition(up, "two", "PodResizeInProgress")
        return found if found and found["reason"] == "Error" else None

    assert "below current usage" in up.wait_until(failed, "it says what failed")["message"]
    limits = [group.memory_limit_bytes() for group in (a, b, a.pod())]
    assert limits == [96 * MIB, 96 * MIB, 192 * MIB]
    # Partial success is visible: CPU has moved, memory has not, and is not said to have.
    now = actual(up.pod("two"))
    assert now["a"]["limits"] == {"cpu": "200m", "memory": "96Mi"}
    assert now["b"]["limits"] == {"cpu": "100m", "memory": "96Mi"}

    os.kill(a.main_pid(), signal.SIGUSR1)
    up.wait_resized("two")
    limits = [group.memory_limit_bytes() for group in (a, b, a.pod())]
    assert limits == [24 * MIB, 24 * MIB, 48 * MIB]
    assert (lives(a), lives(b)) == before


# Resize Policy


def test_resize_policy(up: Up) -> None:
    """If more than one resource type with different policies are updated, then RestartContainer
    policy takes precedence over NoRestart policy."""
    policy = [
        {"name": "cpu", "policy": "NoRestart"},
        {"name": "memory", "policy": "RestartContainer"},
    ]
    java = {**container("java", "100m", "32Mi"), "resizePolicy": policy}
    up.create_pod("mixed", [java, container("side", "100m", "32Mi")])
    side = lives(group_of(up, "mixed", "side"))
    first = lives(group_of(up, "mixed", "java"))

    ask(up, "mixed", java=both(cpu="200m"))
    up.wait_resized("mixed")
    assert lives(group_of(up, "mixed", "java")) == first

    ask(up, "mixed", java=both(cpu="300m", memory="64Mi"))
    up.wait_resized("mixed")
    group = group_of(up, "mixed", "java")
    assert (group.cpu_quota_us(), group.memory_limit_bytes()) == (30_000, 64 * MIB)
    assert lives(group) != first
    assert lives(group_of(up, "mixed", "side")) == side
    statuses = up.pod("mixed")["status"]["containerStatuses"]
    assert {one["name"]: one["restartCount"] for one in statuses} == {"java": 1, "side": 0}


def test_resize_policy_of_a_pod_that_is_never_restarted(up: Up) -> None:
    """Additionally, if RestartPolicy is 'Never', ResizePolicy should be set to NoRestart in order
    to pass validation."""
    once = container("app", "100m", "32Mi")
    once["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    pod = {"metadata": {"name": "once"}, "spec": {"restartPolicy": "Never", "containers": [once]}}
    code, answer = up.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert code == 422
    fields = [cause["field"] for cause in answer["details"]["causes"]]
    assert any(field.startswith("spec.containers[0].resizePolicy") for field in fields)
    assert up.request("GET", "/api/v1/namespaces/default/pods/once")[0] == 404


# Notes


def test_the_latest_desired_state_wins(up: Up) -> None:
    """If additional resize requests arrive when a Pod is being resized, those requests are handled
    after completion of the resize that is in progress. And resize is driven towards the latest
    desired state."""
    up.create_pod("db", [container("app", "100m", "32Mi")])
    group = group_of(up, "db", "app")
    before = lives(group)
    for cpu in (*range(150, 600, 50), 350):
        asked = ask(up, "db", app=both(cpu=f"{cpu}m"))
    generation = asked["metadata"]["generation"]

    def finished() -> bool:
        state = up.pod("db")["status"]["resizeState"]
        return bool(state["generation"] == generation and state["phase"] == "Done")

    up.wait_until(finished, "the newest is done")
    assert group.cpu_quota_us() == group.pod().cpu_quota_us() == 35_000
    assert lives(group) == before


def test_pod_overhead(up: Up) -> None:
    """Impact of Pod Overhead: Kubelet adds Pod Overhead to the resize request to determine if
    in-place resize is possible."""
    up.create_pod("heavy", [container("app", "1", "16Mi")], overhead={"cpu": "1"})
    up.create_pod("light", [container("app", "1", "16Mi")])
    ask(up, "heavy", app=both(cpu="2500m"))
    deferred(up, "heavy")
    ask(up, "heavy", app=both(cpu="2"))
    up.wait_resized("heavy")
    assert group_of(up, "heavy", "app").cpu_quota_us() == 200_000


# Non-Goals


@pytest.mark.parametrize(
    "amounts",
    [
        pytest.param({"example.com/gpu": "1"}, id="extended resources, GPU"),
        pytest.param({"hugepages-2Mi": "4Mi"}, id="hugepages"),
    ],
)
def test_non_goals_are_refused(up: Up, amounts: dict[str, str]) -> None:
    """updating extended resources or any other resource types besides CPU, memory."""
    up.create_pod("db", [container("app", "100m", "32Mi")])
    before = up.pod("db")
    change = {"spec": {"containers": [{"name": "app", "resources": both(cpu="200m", **amounts)}]}}
    code, answer = up.patch_resize("db", change)
    assert code == 422, answer
    assert "only cpu and memory resources are mutable" in answer["message"]
    assert up.pod("db")["spec"] == before["spec"]
    assert group_of(up, "db", "app").cpu_quota_us() == 10_000
