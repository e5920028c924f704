"""Someone else's controllers: Kubernetes' own kube-controller-manager 1.20.2 runs StatefulSets,
Deployments and ReplicaSets of a real `livesize up` that has none of its own, and workloads are
resized in place all the same: the processes of real containers go on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from kube_servers import build_program, controller_manager
from system.groups import group_of, start_time
from system.up import LIVESIZE, Up, container

pytestmark = [pytest.mark.workloads, pytest.mark.matrix]

Object = dict[str, Any]
MIB = 1024 * 1024
REPLICAS = 3
CONTROLLERS = ("statefulset", "deployment", "replicaset", "garbagecollector", "resourcequota")
PREFERRED = {"resizeAction": "InPlaceResizePreferred"}
LIVE = {"app": {"cpu": "LiveResizeable", "memory": "LiveResizeable"}}
POLICY = {"livesize.dev/resize-policy": json.dumps(LIVE)}


class Shape(NamedTuple):
    kind: str
    policy: str = ""


SHAPES = {
    "ordered": Shape("StatefulSet", "OrderedReady"),
    "parallel": Shape("StatefulSet", "Parallel"),
    "deployment": Shape("Deployment"),
}
SETS = ("ordered", "parallel")


class Kubernetes(NamedTuple):
    up: Up
    log: Path

    def complaints(self, about: str) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.startswith("E") and about in line]


@pytest.fixture(scope="module")
def kubernetes(
    tmp_path_factory: pytest.TempPathFactory, not_run: Callable[[str], NoReturn]
) -> Iterator[Kubernetes]:
    build_program("kube-controller-manager", not_run)
    folder = tmp_path_factory.mktemp("kubernetes")
    up, log, kubeconfig = Up(folder / "up"), folder / "kcm.log", folder / "kcm.kubeconfig"
    try:
        up.start("--allocatable", "cpu=4,memory=2Gi", "--controllers", "ours")
        words = ("--role", "controller", "--kubeconfig", str(kubeconfig))
        create = [LIVESIZE, "token", "create", "kcm", "--data-dir", str(up.directory)]
        subprocess.run([*create, *words], check=True, timeout=60)
        with controller_manager(kubeconfig, log, *CONTROLLERS):
            yield Kubernetes(up, log)
    finally:
        up.end()


class Workload:
    def __init__(self, up: Up, shape: Shape, name: str) -> None:
        self.up, self.shape, self.name = up, shape, name
        self.path = f"/apis/apps/v1/namespaces/default/{shape.kind.lower()}s/{name}"

    def manifest(self, annotations: Object, cpu: str, memory: str, **spec: Any) -> Object:
        labels = {"app": self.name}
        if self.shape.policy:
            spec |= {"serviceName": self.name, "podManagementPolicy": self.shape.policy}
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [container("app", cpu, memory)],
            },
        }
        return {
            "apiVersion": "apps/v1",
            "kind": self.shape.kind,
            "metadata": {"name": self.name, "annotations": annotations},
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": labels},
                "template": template,
                **spec,
            },
        }

    def apply(self, *given: Any, **spec: Any) -> None:
        text = json.dumps(self.manifest(*given, **spec))
        self.up.livesize("apply", "-f", "-", stdin=text)

    def get(self) -> Object:
        return self.up.request("GET", self.path)[1]

    def listed(self, path: str) -> list[Object]:
        selector = f"?labelSelector=app%3D{self.name}"
        found: list[Object] = self.up.request("GET", path + selector)[1]["items"]
        return found

    def pods(self) -> dict[str, Object]:
        found = self.listed("/api/v1/namespaces/default/pods")
        return {
            one["metadata"]["name"]: one
            for one in found
            if "deletionTimestamp" not in one["metadata"]
        }

    def uids(self) -> dict[str, str]:
        return {name: one["metadata"]["uid"] for name, one in self.pods().items()}

    def processes(self) -> dict[str, tuple[int, int]]:
        pids = {name: group_of(self.up, name, "app").main_pid() for name in self.pods()}
        return {name: (pid, start_time(pid)) for name, pid in pids.items()}

    def limits(self) -> list[tuple[int | None, int | None]]:
        """CPU quota and memory as the kernel has them, in the order of the names."""
        groups = [group_of(self.up, name, "app") for name in sorted(self.pods())]
        return [(one.cpu_quota_us(), one.memory_limit_bytes()) for one in groups]

    def is_complete(self) -> bool:
        """Its controller has seen the template, and counts every pod as updated and ready."""
        found = self.get()
        metadata, status = found["metadata"], found.get("status", {})
        counts = ("replicas", "readyReplicas", "updatedReplicas")
        return (
            "livesize.dev/held" not in metadata["annotations"]
            and status.get("observedGeneration") == metadata["generation"]
            and all(status.get(count) == REPLICAS for count in counts)
            and status.get("currentRevision") == status.get("updateRevision")
            and len(self.pods()) == REPLICAS
        )

    def wait_complete(self) -> None:
        try:
            self.up.wait_until(self.is_complete, f"{self.name} is complete", 60)
        except AssertionError as failure:
            failure.add_note(json.dumps({**self.get(), "pods": self.pods()}, indent=1))
            raise

    def status(self) -> Object:
        noted = self.get()["metadata"]["annotations"]["livesize.dev/resize-status"]
        said: Object = json.loads(noted)
        return said


@contextmanager
def running(
    up: Up, shape: str, name: str, annotations: Object, cpu: str, memory: str, **spec: Any
) -> Iterator[Workload]:
    made = Workload(up, SHAPES[shape], name)
    made.apply(annotations, cpu, memory, **spec)
    try:
        made.wait_complete()
        yield made
    finally:
        up.request("DELETE", made.path)
        up.wait_until(lambda: not made.pods(), f"garbage collection of {name}")


def test_only_controllers_run_that_no_other_cluster_has(kubernetes: Kubernetes) -> None:
    told = kubernetes.up.kubectl("get", "--raw", "/metrics").stdout
    named = set(re.findall(r'controller="([^"]+)"', told))
    assert named == {"resize-deadline", "in-place", "scheduler"}


@pytest.mark.parametrize("annotations", [PREFERRED, POLICY], ids=["action", "policy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_its_pods_are_resized_and_back(
    kubernetes: Kubernetes, shape: str, annotations: Object
) -> None:
    name = f"{shape}-{'action' if annotations is PREFERRED else 'policy'}"
    with running(kubernetes.up, shape, name, annotations, "100m", "32Mi") as workload:
        first, uids, processes = workload.get(), workload.uids(), workload.processes()
        for cpu, memory, limits in (
            ("200m", "48Mi", (20000, 48 * MIB)),
            ("100m", "32Mi", (10000, 32 * MIB)),
        ):
            workload.apply(annotations, cpu, memory)
            kubernetes.up.wait_until(
                lambda limits=limits: workload.limits() == [limits] * REPLICAS,
                f"every cgroup of {name} has {limits}",
            )
            workload.wait_complete()
            assert (workload.uids(), workload.processes()) == (uids, processes)
            statuses = [one["status"]["containerStatuses"][0] for one in workload.pods().values()]
            assert [one["restartCount"] for one in statuses] == [0] * REPLICAS
            said = workload.status()
            assert (said["updated"], said["unfinished"]) == (REPLICAS, [])
        last = workload.get()
        if shape == "deployment":
            assert not last["spec"].get("paused")
            assert len(workload.listed("/apis/apps/v1/namespaces/default/replicasets")) == 1
        else:
            assert last["spec"]["updateStrategy"] == first["spec"]["updateStrategy"]
            assert last["status"]["updateRevision"] == first["status"]["updateRevision"]
            revisions = workload.listed("/apis/apps/v1/namespaces/default/controllerrevisions")
            assert len(revisions) == 2
            assert "collisionCount" not in last["status"] or not last["status"]["collisionCount"]


@pytest.mark.parametrize("shape", SETS)
def test_the_users_own_partition_comes_back(kubernetes: Kubernetes, shape: str) -> None:
    mine = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
    name = f"{shape}-partition"
    with running(kubernetes.up, shape, name, PREFERRED, "100m", "32Mi", **mine) as workload:
        uids, processes = workload.uids(), workload.processes()
        workload.apply(PREFERRED, "200m", "32Mi", **mine)
        kubernetes.up.wait_until(
            lambda: [cpu for cpu, _ in workload.limits()] == [10000, 10000, 20000],
            "the last one is resized",
        )
        kubernetes.up.wait_until(
            lambda: (
                workload.get()["spec"]["updateStrategy"] == mine["updateStrategy"]
                and workload.get()["status"].get("updatedReplicas") == 1
            ),
            "the partition is back, and the pod is counted",
        )
        assert (workload.uids(), workload.processes()) == (uids, processes)


@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_pod_that_cannot_be_resized_is_recreated(
    kubernetes: Kubernetes, shape: str
) -> None:
    """One of them holds more memory than it is to have."""
    annotations = {**PREFERRED, "livesize.dev/resize-deadline": "2s"}
    name, up = f"{shape}-holds", kubernetes.up
    with running(up, shape, name, annotations, "100m", "96Mi") as workload:
        uids = workload.uids()
        holder = sorted(uids)[1]
        group = group_of(up, holder, "app")
        hold = "(dd if=/dev/zero bs=60M count=1 | sleep 1000) >/dev/null 2>&1 &"
        up.kubectl("exec", holder, "--", "sh", "-c", hold)
        up.wait_until(lambda: group.memory_usage_bytes() > 55 * MIB, f"{holder} holds memory")
        workload.apply(annotations, "100m", "32Mi")
        up.wait_until(
            lambda: workload.uids().get(holder) != uids[holder],
            f"{holder} is recreated",
        )
        workload.wait_complete()
        kept = {one: uid for one, uid in workload.uids().items() if uid in uids.values()}
        assert kept == {one: uid for one, uid in uids.items() if one != holder}
        up.wait_until(
            lambda: workload.limits() == [(10000, 32 * MIB)] * REPLICAS, "all have the size"
        )


@pytest.mark.parametrize("shape", SETS)
def test_where_current_replicas_is_once_reported_as_minus_one(
    kubernetes: Kubernetes, shape: str
) -> None:
    """It is nothing of ours, and not of Parallel alone: the controller counts a pod that it deletes
    for an update as one of currentRevision, also where it is of neither revision. Under OnDelete
    currentRevision stays behind, so that the pods are of a revision between the two."""
    name, up = f"{shape}-between", kubernetes.up
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    with running(up, shape, name, {}, "100m", "32Mi", **on_delete) as workload:
        workload.apply({}, "110m", "32Mi", **on_delete)
        up.wait_until(
            lambda: workload.get()["status"]["observedGeneration"] == 2, "its template is seen"
        )
        for pod in sorted(workload.uids()):
            up.request("DELETE", f"/api/v1/namespaces/default/pods/{pod}")
        up.wait_until(
            lambda: workload.get()["status"].get("updatedReplicas") == REPLICAS, "all are new"
        )
        up.wait_until(
            lambda: workload.get()["status"].get("readyReplicas") == REPLICAS, "all are ready"
        )
        assert workload.get()["status"].get("currentReplicas", 0) == 0
        rolling = {"updateStrategy": {"type": "RollingUpdate"}}
        workload.apply({}, "120m", "32Mi", **rolling)
        workload.wait_complete()
        told = [one for one in kubernetes.complaints(name) if "status.currentReplicas" in one]
        assert told
        assert all("Invalid value: -1" in one for one in told)
