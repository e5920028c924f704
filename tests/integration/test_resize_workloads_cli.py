"""`livesize resize` on StatefulSets and Deployments, on a whole `livesize up`: what a person types,
reads and finds afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from system.up import IMAGE, LIVESIZE, Up

pytestmark = pytest.mark.workloads

KINDS = ("statefulset", "deployment")
Object = dict[str, Any]
REPLICAS = 3


def manifest(kind: str, name: str, annotations: Object | None, **spec: Any) -> Object:
    size = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "app", "image": IMAGE, "resources": {"requests": size, "limits": size}}
    labels = {"app": name}
    if kind == "statefulset":
        spec = {"serviceName": name, "podManagementPolicy": "Parallel", **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": {"statefulset": "StatefulSet", "deployment": "Deployment"}[kind],
        "metadata": {"name": name, "labels": {"team": "shop"}, "annotations": annotations or {}},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
            **spec,
        },
    }


class Workload:
    """One that runs, with all its pods ready."""

    def __init__(self, up: Up, kind: str, name: str) -> None:
        self.up, self.name = up, name
        self.label = f"{kind}/{name}"
        self._path = f"/apis/apps/v1/namespaces/default/{kind}s/{name}"

    def get(self) -> Object:
        return self.up.request("GET", self._path)[1]

    @property
    def generation(self) -> int:
        return int(self.get()["metadata"]["generation"])

    def pods(self) -> list[Object]:
        path = f"/api/v1/namespaces/default/pods?labelSelector=app%3D{self.name}"
        found = self.up.request("GET", path)[1]["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def uids(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.pods()}

    def sizes(self) -> list[str]:
        """CPU of each pod, as its node reports it."""
        statuses = [one["status"]["containerStatuses"][0] for one in self.pods()]
        return sorted(one["resources"]["limits"]["cpu"] for one in statuses)

    def are_ready(self) -> bool:
        return self.get().get("status", {}).get("readyReplicas") == REPLICAS

    def resize(self, *words: str, fails: bool = False) -> tuple[str, str]:
        """What it prints to standard output, and to standard error."""
        done = self.up.livesize("resize", self.label, *words, check=False)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout, done.stderr


Make = Callable[..., AbstractContextManager[Workload]]


@pytest.fixture
def make(fake_up: Up) -> Make:
    @contextmanager
    def running(
        kind: str, name: str, annotations: Object | None = None, **spec: Any
    ) -> Iterator[Workload]:
        made = Workload(fake_up, kind, name)
        text = json.dumps(manifest(kind, name, annotations, **spec))
        try:
            fake_up.livesize("apply", "-f", "-", stdin=text)
            fake_up.wait_until(made.are_ready, f"the pods of {name} are ready")
            yield made
        finally:
            fake_up.livesize("delete", made.label)
            fake_up.wait_until(lambda: not made.pods(), f"the pods of {name} are gone")

    return running


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_resized_in_place_shown_and_taken_back(make: Make, kind: str) -> None:
    with make(kind, "shop") as shop:
        uids = shop.uids()
        forecast, _ = shop.resize("--cpu", "200m", "--dry-run")
        assert forecast.count("resized in place, live") == REPLICAS
        assert (shop.generation, shop.sizes()) == (1, ["100m"] * REPLICAS)

        told, _ = shop.resize("--cpu", "200m", "--memory", "128Mi", "--wait")
        first, header, *rows = told.splitlines()
        assert first.startswith(f"{shop.label} resized in ")
        assert first.endswith(" s, 3 of 3 pods")
        assert header.split() == ["POD", "RESIZE", "BEFORE", "AFTER", "TOOK", "RESTARTED"]
        assert [row.split()[1:6] for row in rows] == [
            ["Done", "100m", "64Mi", "200m", "128Mi"] for _ in range(REPLICAS)
        ]
        assert (shop.uids(), shop.sizes()) == (uids, ["200m"] * REPLICAS)
        line = shop.up.livesize("get", kind).stdout.splitlines()[1]
        assert line.split()[-3:] == ["200m", "128Mi", "-"]
        shown = shop.up.livesize("describe", shop.label).stdout
        assert "app cpu      200m       100m     NoRestart" in shown
        assert "3 of 3 pods have the sizes of the template" in shown
        again, _ = shop.resize("--cpu", "200m", "--wait")
        assert f"{shop.label} has this size already, 3 of 3 pods" in again

        shop.resize("--undo", "--wait")
        assert (shop.uids(), shop.sizes()) == (uids, ["100m"] * REPLICAS)


def test_all_that_have_a_label(make: Make) -> None:
    with make("statefulset", "db") as db, make("deployment", "web") as web:
        uids = {**db.uids(), **web.uids()}
        words = ("resize", "-l", "team=shop", "--cpu", "+100m", "--wait")
        answer = db.up.livesize(*words, "-o", "json")
        found = json.loads(answer.stdout)["items"]
        assert [one["kind"] for one in found] == ["StatefulSet", "Deployment"]
        assert db.sizes() == web.sizes() == ["200m"] * REPLICAS
        assert {**db.uids(), **web.uids()} == uids


@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_have_no_room_wait_and_the_others_do_not(make: Make, kind: str) -> None:
    """The node has 8 CPUs."""
    with make(kind, "full") as full:
        uids = full.uids()
        words = ("--cpu", "3", "--action", "InPlaceResize", "--wait", "--timeout", "1500ms")
        table, said = full.resize(*words, fails=True)
        assert sorted(row.split()[1] for row in table.splitlines()[1:]) == [
            *("Deferred", "Done", "Done")
        ]
        assert f"not resized after 1.5 s: {full.label}: 2 of 3 pods have the new size" in said
        assert "goes on by itself (a pod that cannot be resized is kept as it is)" in said
        assert "ask for a size feasible on all the nodes" in said
        assert f"go back with `livesize resize {full.label} --undo`" in said
        assert full.up.livesize("get", kind).stdout.splitlines()[1].split()[-1] == "2/3"
        shown = full.up.livesize("describe", full.label).stdout
        assert "Its rollout is held while its pods are resized" in shown
        assert "Deferred: Node didn't have enough resource: cpu, requested: 3000" in shown
        full.resize("--undo", "--wait")
        assert (full.uids(), full.sizes()) == (uids, ["100m"] * REPLICAS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_node_can_hold_is_said_at_once(make: Make, kind: str) -> None:
    with make(kind, "large") as large:
        uids = large.uids()
        words = ("--cpu", "9", "--action", "InPlaceResize", "--wait", "--timeout", "50s")
        _, said = large.resize(*words, fails=True)
        assert f"not all pods can be resized: {large.label}: 0 of 3 pods have the new size" in said
        assert said.count("its node can never hold it") == 1, "it is the same for all"
        assert "feasible on all the nodes (at most cpu 8 for all containers of a pod)" in said
        large.resize("--undo", "--wait")
        assert large.uids() == uids


def test_where_it_is_preferred_only_the_pod_that_cannot_is_recreated(make: Make) -> None:
    deadline = {"livesize.dev/resize-deadline": "1s"}
    with make("statefulset", "moved", deadline) as moved:
        uids = moved.uids()
        _, said = moved.resize("--cpu", "3", "--wait", "--timeout", "5s", fails=True)
        assert "moved-0: recreated; no node has taken it yet" in said
        assert "a pod that cannot be resized within 1 s is recreated" in said
        told, _ = moved.resize("--undo", "--wait")
        assert "3 of 3 pods" in told
        after = moved.uids()
        assert [name for name in uids if after[name] != uids[name]] == ["moved-0"]


def test_what_its_user_has_kept_back_stays_so(make: Make) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    with make("statefulset", "canary", updateStrategy=strategy) as canary:
        forecast, _ = canary.resize("--cpu", "200m", "--dry-run")
        assert forecast.count("nothing: kept back by partition 2") == 2
        told, _ = canary.resize("--cpu", "200m", "--wait")
        assert "1 of 1 pods" in told
        assert canary.sizes() == ["100m", "100m", "200m"]
        assert canary.get()["spec"]["updateStrategy"] == strategy


@pytest.mark.parametrize("kind", KINDS)
def test_who_stops_waiting_is_told_that_it_goes_on(make: Make, kind: str) -> None:
    with make(kind, "stopped") as stopped:
        words = ["resize", stopped.label, "--cpu", "3", "--action", "InPlaceResize", "--wait"]
        words += ["--kubeconfig", str(stopped.up.kubeconfig)]
        with subprocess.Popen([LIVESIZE, *words], stderr=subprocess.PIPE, text=True) as waiting:
            stopped.up.wait_until(lambda: stopped.sizes()[1:] == ["3", "3"], "two are resized")
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=20)
        assert waiting.returncode == 130
        assert "no longer waited for" in said
        assert "It is still asked for, and goes on by itself" in said
        assert "Traceback" not in said
        stopped.resize("--undo", "--wait")
