"""One container, resized live through `livesize up`: the kernel's own files are the witness."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from system.groups import cpu_seconds_used, group_of, start_time
from system.up import Up, container, running_up

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    with running_up(directory, allocatable="cpu=4,memory=4Gi") as running:
        yield running


@pytest.fixture(autouse=True)
def _empty(up: Up) -> Iterator[None]:
    """A test that fails takes no room from the next one."""
    yield
    for pod in up.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]:
        up.delete_pod(pod["metadata"]["name"])


@pytest.fixture
def db(up: Up) -> Iterator[str]:
    up.create_pod("db", [container("app", "200m", "64Mi")])
    yield "db"
    up.delete_pod("db")


def sizes(up: Up, name: str) -> tuple[Any, Any, Any]:
    """Desired, allocated and actual of the pod's first container, as the API tells them."""
    pod = up.pod(name)
    desired = pod["spec"]["containers"][0]["resources"]
    status = pod["status"]["containerStatuses"][0]
    return desired, status["allocatedResources"], status["resources"]


@pytest.mark.parametrize(
    ("cpu", "memory", "quota_us", "limit_bytes"),
    [
        pytest.param("700m", "128Mi", 70_000, 128 << 20, id="up"),
        pytest.param("100m", "32Mi", 10_000, 32 << 20, id="down"),
        pytest.param("700m", "32Mi", 70_000, 32 << 20, id="opposite directions"),
    ],
)
def test_a_resize_changes_the_cgroup_files_of_the_running_container(
    up: Up, db: str, cpu: str, memory: str, quota_us: int, limit_bytes: int
) -> None:
    group = group_of(up, db, "app")
    pid = group.main_pid()
    began = start_time(pid)

    up.livesize("resize", f"pod/{db}", "--cpu", cpu, "--memory", memory, "--wait")

    assert group.cpu_quota_us() == quota_us
    assert group.memory_limit_bytes() == limit_bytes
    assert group.pod().cpu_quota_us() == quota_us
    assert group.pod().memory_limit_bytes() == limit_bytes
    assert (group.main_pid(), start_time(pid)) == (pid, began)
    desired, allocated, actual = sizes(up, db)
    assert desired == actual
    assert allocated == desired["requests"] == {"cpu": cpu, "memory": memory}
    assert up.pod(db)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_whoever_watches_is_shown_accepted_before_done(up: Up, db: str) -> None:
    """IBM's state machine, with the settings that everybody runs."""
    before = up.pod(db)["metadata"]["resourceVersion"]
    for number in range(21):
        patch = {"name": "app", "resources": resources(cpu=f"{300 + number}m")}
        up.patch_resize(db, {"spec": {"containers": [patch]}})
        up.wait_resized(db)
    watch = f"watch=1&resourceVersion={before}&timeoutSeconds=1&fieldSelector=metadata.name={db}"
    told = up.kubectl("get", "--raw", f"/api/v1/namespaces/default/pods?{watch}").stdout
    pods = [json.loads(line)["object"] for line in told.splitlines()]
    words = [pod["spec"]["resizeRequest"]["requestStatus"] for pod in pods if "spec" in pod]
    walked = [word for word, _ in itertools.groupby(words) if word != "None"]
    assert walked == ["Requested", "Accepted", "Done"] * 21


@pytest.mark.matrix  # daily: test_pods_of_three.py measures the same, of both runtimes
def test_the_cpu_share_follows_the_quota(up: Up) -> None:
    up.create_pod("busy", [container("app", "200m", "32Mi", command="while :; do :; done")])
    group = group_of(up, "busy", "app")
    up.livesize("resize", "pod/busy", "--cpu", "600m", "--wait")
    # More than the old quota, and never more than the new: how much more is the machine's load.
    assert 0.25 < cpu_seconds_used(group, over_seconds=2.0) < 0.66
    up.livesize("resize", "pod/busy", "--cpu", "100m", "--wait")
    assert 0.02 < cpu_seconds_used(group, over_seconds=2.0) < 0.13
    up.delete_pod("busy")


@pytest.mark.matrix  # daily: test_shrink_under_pressure.py holds memory, frees it, and goes back
def test_memory_in_use_is_never_taken_away(up: Up) -> None:
    """Decisions 8: Accepted and in progress with the bytes to go; going back always works."""
    hold = "head -c 50m /dev/zero > /dev/shm/held; trap exit TERM; while :; do sleep 1; done"
    up.create_pod("full", [container("app", "100m", "100Mi", command=hold)])
    group = group_of(up, "full", "app")
    pid = group.main_pid()
    up.wait_until(lambda: group.memory_usage_bytes() > 50 << 20, "50 MiB are held")

    up.livesize("resize", "pod/full", "--memory", "20Mi", "--no-wait")
    message = up.wait_until(lambda: condition(up, "full", "PodResizeInProgress"), "it says why")
    assert message["reason"] == "Error"
    assert "below current usage" in message["message"]
    assert group.memory_limit_bytes() == 100 << 20
    assert group.main_pid() == pid

    up.livesize("resize", "pod/full", "--memory", "100Mi", "--wait")
    assert condition(up, "full", "PodResizeInProgress") is None
    assert group.main_pid() == pid
    up.delete_pod("full")


@pytest.mark.parametrize(
    ("policy", "restarted"),
    [("LiveResizeable", []), ("ContainerRestartOnly", ["app"]), ("RestartOnly", ["app", "side"])],
)
def test_ibms_policies_on_running_containers(up: Up, policy: str, restarted: list[str]) -> None:
    """What a change of memory does; the CPU of the same container is always live. A restart of a
    bare pod is one of all its containers, in the same pod (decisions 37)."""
    app = container("app", "100m", "32Mi")
    app["resources"]["resizePolicy"] = {"cpu": "LiveResizeable", "memory": policy}
    up.create_pod("ibm", [app, container("side", "100m", "32Mi")])
    uid, before = up.pod("ibm")["metadata"]["uid"], main_pids(up, "ibm")
    up.livesize("resize", "pod/ibm", "-c", "app", "--cpu", "200m", "--wait")
    assert main_pids(up, "ibm") == before
    up.livesize("resize", "pod/ibm", "-c", "app", "--memory", "64Mi", "--wait")
    after = main_pids(up, "ibm")
    assert [name for name in after if after[name] != before[name]] == restarted
    assert up.pod("ibm")["metadata"]["uid"] == uid
    group = group_of(up, "ibm", "app")
    assert (group.cpu_quota_us(), group.memory_limit_bytes()) == (20_000, 64 << 20)


def test_what_is_preferred_in_place_restarts_when_memory_is_held(up: Up) -> None:
    """IBM: "if that fails for any reason to accomplish it with a pod restart"."""
    hold = (
        "if [ ! -e /s/seen ]; then touch /s/seen; head -c 50m /dev/zero > /dev/shm/held; fi;"
        " trap exit TERM; while :; do sleep 1; done"
    )
    app = container("app", "100m", "100Mi", command=hold)
    app["volumeMounts"] = [{"name": "scratch", "mountPath": "/s"}]
    scratch = {"name": "scratch", "emptyDir": {}}
    up.create_pod("full", [app, container("side", "100m", "16Mi")], volumes=[scratch])
    group, before = group_of(up, "full", "app"), main_pids(up, "full")
    up.wait_until(lambda: group.memory_usage_bytes() > 50 << 20, "50 MiB are held")
    up.kubectl("annotate", "pod/full", "resizeAction=InPlaceResizePreferred")
    up.kubectl("annotate", "pod/full", "livesize.dev/resize-deadline=1s")
    up.livesize("resize", "pod/full", "-c", "app", "--memory", "30Mi", "--wait")
    after = main_pids(up, "full")
    assert [name for name in after if after[name] != before[name]] == ["app", "side"]
    assert group_of(up, "full", "app").memory_limit_bytes() == 30 << 20
    told = up.kubectl("events", "--for", "pod/full").stdout
    assert "ResizeRestarts" in told


def main_pids(up: Up, name: str) -> dict[str, int]:
    return {one: group_of(up, name, one).main_pid() for one in ("app", "side")}


def condition(up: Up, name: str, kind: str) -> dict[str, Any] | None:
    conditions = up.pod(name)["status"].get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), None)


def resources(**limits: str) -> dict[str, Any]:
    return {"requests": dict(limits), "limits": dict(limits)}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        pytest.param(
            {"name": "app", "resources": {"requests": {"cpu": "100m"}}}, 422, "spec", id="QoS"
        ),
        pytest.param(
            {"name": "app", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            422,
            "spec.containers[0].resources.requests",
            id="request over limit",
        ),
        pytest.param(
            {"name": "app", "resources": resources(cpu="-1")},
            422,
            "spec.containers[0].resources.requests[cpu]",
            id="negative",
        ),
        pytest.param(
            {"name": "other", "resources": resources(cpu="1")},
            422,
            "spec.containers",
            id="unknown container",
        ),
    ],
)
def test_an_invalid_resize_is_refused_and_changes_nothing(
    up: Up, db: str, change: dict[str, Any], code: int, field: str
) -> None:
    before = up.pod(db)
    group = group_of(up, db, "app")
    files = (group.cpu_quota_us(), group.memory_limit_bytes())

    answered, answer = up.patch_resize(db, {"spec": {"containers": [change]}})

    assert answered == code
    assert field in [cause["field"] for cause in answer["details"]["causes"]]
    after = up.pod(db)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert (group.cpu_quota_us(), group.memory_limit_bytes()) == files


def test_growth_waits_for_room_and_goes_on_by_itself(up: Up) -> None:
    """ARK: "If new desired resources don't fit, Kubelet rejects the resize ... retries"."""
    up.create_pod("big", [container("app", "2500m", "32Mi")])
    up.create_pod("small", [container("app", "1", "32Mi")])
    group = group_of(up, "small", "app")
    pid = group.main_pid()
    up.livesize("resize", "pod/small", "--cpu", "2", "--no-wait")
    pending = up.wait_until(lambda: condition(up, "small", "PodResizePending"), "it is deferred")
    assert pending["reason"] == "Deferred"
    assert group.cpu_quota_us() == 100_000

    up.delete_pod("big")
    up.wait_resized("small")
    assert group.cpu_quota_us() == 200_000
    assert group.main_pid() == pid

    too_much = up.livesize("resize", "pod/small", "--cpu", "64", "--wait", check=False)
    assert too_much.returncode == 1
    infeasible = condition(up, "small", "PodResizePending")
    assert infeasible is not None
    assert infeasible["reason"] == "Infeasible"
    assert group.cpu_quota_us() == 200_000
    up.delete_pod("small")
