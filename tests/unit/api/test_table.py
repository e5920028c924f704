"""Rows as kubectl prints them."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.columns import format_age
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.table import table_for

NOW = 1_785_578_400.0  # 2026-08-01T10:00:00Z
FIVE_MINUTES_AGO = "2026-08-01T09:55:00Z"
META = {"name": "x", "creationTimestamp": FIVE_MINUTES_AGO}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600 + 300, "3h5m"),
        (9 * 3600, "9h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def row(resource: Resource, obj: Object) -> dict[str, Any]:
    table = table_for(resource, [obj], now=NOW)
    names = [column["name"] for column in table["columnDefinitions"]]
    (only,) = table["rows"]
    assert len(names) == len(only["cells"])
    return dict(zip(names, only["cells"], strict=True))


def pod(**status: Any) -> Object:
    limits = {"cpu": "1", "memory": "128Mi"}
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": limits}
    return {
        "metadata": META,
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "resources": resources}]},
        "status": {"phase": "Running", **status},
    }


def container(state: Object, **fields: Any) -> Object:
    return {"name": "a", "state": state, "restartCount": 0, **fields}


RUNNING: Object = {"running": {}}


def test_a_running_pod() -> None:
    actual = {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m"}}
    allocated = {"name": "a", "requests": {"cpu": "300m"}}
    status = {
        "podIP": "10.0.0.1",
        "containerStatuses": [container(RUNNING, ready=True, resources=actual)],
        "resizeState": {"phase": "InProgress", "allocated": [allocated]},
    }
    assert row(PODS, pod(**status)) == {
        "Name": "x",
        "Ready": "1/1",
        "Status": "Running",
        "Restarts": "0",
        "Age": "5m",
        "IP": "10.0.0.1",
        "Node": "n1",
        "Readiness Gates": "<none>",
        "Desired": "cpu 500m/1 memory 64Mi/128Mi",
        "Allocated": "cpu 300m/-",
        "Actual": "cpu 250m/500m",
    }


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (pod(phase="Pending"), "Pending"),
        (pod(reason="Evicted", phase="Failed"), "Evicted"),
        (
            pod(containerStatuses=[container({"waiting": {"reason": "CrashLoopBackOff"}})]),
            "CrashLoopBackOff",
        ),
        (
            pod(
                phase="Succeeded",
                containerStatuses=[container({"terminated": {"reason": "Completed"}})],
            ),
            "Completed",
        ),
        (pod(containerStatuses=[container({"terminated": {"exitCode": 3}})]), "ExitCode:3"),
        (pod(containerStatuses=[container({"terminated": {"signal": 9}})]), "Signal:9"),
        (
            pod(initContainerStatuses=[container({"waiting": {"reason": "PodInitializing"}})]),
            "Init:0/0",
        ),
        (
            pod(initContainerStatuses=[container({"terminated": {"reason": "Error"}})]),
            "Init:Error",
        ),
        (
            pod(
                initContainerStatuses=[container({"terminated": {"exitCode": 0}})],
                containerStatuses=[container(RUNNING, ready=True)],
            ),
            "Running",
        ),
        (
            pod(
                containerStatuses=[
                    container({"terminated": {"reason": "Completed"}}),
                    container(RUNNING, ready=True),
                ]
            ),
            "NotReady",
        ),
        ({**pod(), "metadata": {**META, "deletionTimestamp": FIVE_MINUTES_AGO}}, "Terminating"),
        ({}, "Unknown"),
    ],
)
def test_pod_status_is_the_word_kubectl_prints(given: Object, word: str) -> None:
    assert row(PODS, given)["Status"] == word


@pytest.mark.parametrize(
    "state", [{"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1}}, {}]
)
def test_what_does_not_run_has_no_actual_size(state: Object) -> None:
    size = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    runs = pod(containerStatuses=[container({"running": {}}, resources=size)])
    assert row(PODS, runs)["Actual"] == "cpu 1/1"
    dead = pod(containerStatuses=[container(state, resources=size)])
    assert row(PODS, dead)["Actual"] == "-"


def test_restarts_say_when_the_last_was() -> None:
    last = {"terminated": {"finishedAt": FIVE_MINUTES_AGO}}
    statuses = [container(RUNNING, restartCount=2, lastState=last)]
    assert row(PODS, pod(containerStatuses=statuses))["Restarts"] == "2 (5m ago)"


def test_other_kinds() -> None:
    node = {
        "metadata": {**META, "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
            "allocatable": {"cpu": "2"},
        },
    }
    shown = row(NODES, node)
    assert shown["Status"] == "Ready,SchedulingDisabled"
    assert shown["Roles"] == "worker"
    assert shown["Version"] == "v1"
    assert shown["Internal-IP"] == "127.0.0.1"
    assert shown["CPU"] == "2"
    assert row(NODES, {})["Status"] == "Unknown"
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert row(NODES, silent)["Status"] == "NotReady"
    assert row(NAMESPACES, {"metadata": META}) == {"Name": "x", "Status": "Active", "Age": "5m"}
    lease = {"metadata": META, "spec": {"holderIdentity": "h"}}
    assert row(LEASES, lease) == {"Name": "x", "Holder": "h", "Age": "5m"}
    event = {
        "metadata": META,
        "type": "Normal",
        "reason": "R",
        "message": "m\n",
        "lastTimestamp": "2026-08-01T09:59:55Z",
        "involvedObject": {"kind": "Pod", "name": "p"},
    }
    assert row(EVENTS, event) == {
        "Last Seen": "5s",
        "Type": "Normal",
        "Reason": "R",
        "Object": "pod/p",
        "Message": "m",
        "Name": "x",
    }


def test_a_sidecar_counts_like_a_container() -> None:
    """Sizes, readiness and restarts of both; other init containers are left out."""
    size = {"requests": {"cpu": "500m", "memory": "64Mi"}}
    running = {"state": {"running": {}}, "ready": True}
    told = pod(
        containerStatuses=[{"name": "a", "resources": size, "restartCount": 1, **running}],
        initContainerStatuses=[
            {"name": "i", "resources": size, "restartCount": 4, "ready": True},
            {"name": "s", "resources": size, "restartCount": 2, **running},
        ],
    )
    told["spec"]["initContainers"] = [
        {"name": "i", "resources": size},
        {"name": "s", "restartPolicy": "Always", "resources": size},
    ]
    shown = row(PODS, told)
    assert (shown["Ready"], shown["Restarts"]) == ("2/2", "3")
    assert shown["Actual"] == "cpu 1/- memory 128Mi/-"
