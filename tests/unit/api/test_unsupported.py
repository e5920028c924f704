"""What a new pod asks for and no node has is refused, with a sentence that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.validation.unsupported import validate_supported


def pod(resources: Object | None = None, **container: Any) -> Object:
    one = {"name": "app", "image": "x", "resources": resources or {}, **container}
    return {"spec": {"containers": [one]}}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hugepages-2Mi", "nodes have no huge pages to give"),
        ("nvidia.com/gpu", "nodes have no nvidia.com/gpu to give"),
        ("example.com/dongle", "nodes have no example.com/dongle to give"),
        ("storage", "nodes have no storage to give"),
    ],
)
def test_resources_that_nodes_do_not_have(name: str, why: str) -> None:
    (error,) = validate_supported(pod({"limits": {name: "1"}, "requests": {name: "1"}}))
    assert error.field == f"spec.containers[0].resources.limits[{name}]"
    assert error.detail == f"{why}: leave it out, and ask for cpu and memory"
    (error,) = validate_supported(pod({"requests": {name: "1"}}))
    assert error.field == f"spec.containers[0].resources.requests[{name}]"


def test_a_virtual_machines_resources_are_looked_at_too() -> None:
    made = {"spec": {"virtualMachine": {"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}}}
    (error,) = validate_supported(made)
    assert error.field == "spec.virtualMachine.resources.limits[hugepages-2Mi]"


def test_disk_is_taken_as_kubernetes_takes_it() -> None:
    size = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    assert validate_supported(pod({"limits": size, "requests": size})) == []


@pytest.mark.parametrize(
    ("host_port", "is_fine"), [(None, True), (0, True), (80, True), (81, False)]
)
def test_ports_are_not_mapped(host_port: int | None, is_fine: bool) -> None:
    port = (
        {"containerPort": 80} if host_port is None else {"containerPort": 80, "hostPort": host_port}
    )
    errors = validate_supported(pod(ports=[port]))
    assert [error.field for error in errors] == (
        [] if is_fine else ["spec.containers[0].ports[0].hostPort"]
    )


def test_what_kubectl_and_helm_send_passes() -> None:
    made = pod(
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        securityContext={
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "procMount": "Default",
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {},
        },
        volumeMounts=[{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Disabled"}],
    )
    made["spec"] |= {
        "automountServiceAccountToken": False,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "hostIPC": False,
        "hostPID": False,
        "hostUsers": True,
        "os": {"name": "linux"},
        "preemptionPolicy": "PreemptLowerPriority",
        "schedulerName": "default-scheduler",
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "shareProcessNamespace": False,
        "subdomain": "db",
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
        ],
    }
    assert validate_supported(made) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"os": {"name": "windows"}}, "spec.os.name"),
        ({"automountServiceAccountToken": True}, "spec.automountServiceAccountToken"),
        ({"hostUsers": False}, "spec.hostUsers"),
        ({"dnsPolicy": "None"}, "spec.dnsPolicy"),
        ({"runtimeClassName": "gvisor"}, "spec.runtimeClassName"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
                }
            },
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ],
)
def test_what_no_node_carries_out(spec: Object, field: str) -> None:
    made = pod()
    made["spec"] |= spec
    (error,) = validate_supported(made)
    assert error.field == field


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"hostname": "guest"}, ["spec.hostname"]),
        ({"hostAliases": [{"ip": "192.0.2.7"}]}, ["spec.hostAliases"]),
        ({"securityContext": {"runAsUser": 0}}, ["spec.securityContext.runAsUser"]),
        ({"securityContext": {"runAsNonRoot": True}}, []),
        ({"securityContext": {}, "hostNetwork": False}, []),
    ],
)
def test_what_a_guest_has_by_itself(spec: Object, fields: list[str]) -> None:
    vm = {"kernel": {"image": "k"}, "resources": {"limits": {"cpu": "1", "memory": "512Mi"}}}
    errors = validate_supported({"spec": {"virtualMachine": vm, **spec}})
    assert [error.field for error in errors] == fields
