"""A node that was taken over touches and sees only what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from system.api_server import ServerThread

pytestmark = pytest.mark.security

MERGE = "application/merge-patch+json"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}
TAINT = {"key": "only", "value": "trusted", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server")).running() as opened:
        for name in ("n1", "n2"):
            node = {"metadata": {"name": name, "labels": {"tier": "low"}}}
            spec = {"taints": [TAINT], "unschedulable": True}
            assert opened.ask("admin", "POST", NODES, {**node, "spec": spec})[0] == 201
            pod = {
                "metadata": {"name": f"on-{name}"},
                "spec": {"nodeName": name, "containers": [{"name": "a", "image": "localhost/a:1"}]},
            }
            assert opened.ask("admin", "POST", PODS, pod)[0] == 201
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
            assert opened.ask("admin", "POST", LEASES, lease)[0] == 201
        secret = {"metadata": {"name": "s"}, "data": {}}
        assert opened.ask("admin", "POST", "/api/v1/namespaces/default/secrets", secret)[0] == 201
        yield opened


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"ownerReferences": [OWNER]}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
        {"metadata": {"labels": {"tier": "high"}}},
        {"metadata": {"labels": {"node-restriction.kubernetes.io/pci": "yes"}}},
        {"spec": {"taints": None}},
        {"spec": {"unschedulable": None}},
        {"spec": {"podCIDR": "10.0.0.0/8"}},
    ],
    ids=["owner", "finalizer", "label", "restricted label", "taints", "uncordon", "network"],
)
def test_a_node_sheds_nothing_that_keeps_pods_from_it(server: ServerThread, change: Any) -> None:
    for path in (f"{NODES}/n1", f"{NODES}/n2"):
        assert server.ask("n1", "PATCH", path, change, content_type=MERGE)[0] == 403
    code, node = server.ask("admin", "GET", f"{NODES}/n1")
    assert (code, node["spec"]["taints"], node["spec"]["unschedulable"]) == (200, [TAINT], True)
    assert "ownerReferences" not in node["metadata"]


def test_neither_does_its_status(server: ServerThread) -> None:
    path = f"{NODES}/n1/status"
    change = {"metadata": {"labels": {"tier": "high"}}, "spec": {"taints": None}, "status": {}}
    server.ask("n1", "PATCH", path, change, content_type=MERGE)
    node = server.ask("admin", "GET", f"{NODES}/n1")[1]
    assert (node["metadata"]["labels"], node["spec"]["taints"]) == ({"tier": "low"}, [TAINT])


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"tier": "high"}},
        {"labels": {"node-restriction.kubernetes.io/pci": "yes"}},
        {"labels": {"node-role.kubernetes.io/control-plane": ""}},
        {"labels": {"kubernetes.io/hostname": "n1"}},
        {"ownerReferences": [OWNER]},
        {"finalizers": ["example.com/mine"]},
    ],
)
def test_a_node_registers_with_what_describes_it_alone(server: ServerThread, metadata: Any) -> None:
    assert server.ask("admin", "DELETE", f"{NODES}/n2")[0] == 200
    assert server.ask("n2", "POST", NODES, {"metadata": {"name": "n2", **metadata}})[0] == 403
    plain = {"kubernetes.io/hostname": "n2", "kubernetes.io/os": "linux"}
    made = {"metadata": {"name": "n2", "labels": plain}}
    assert server.ask("n2", "POST", NODES, made)[0] == 201


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods",
        PODS,
        f"{PODS}?fieldSelector=spec.nodeName%3Dn2",
        f"{PODS}?fieldSelector=spec.nodeName%21%3Dn1",
        f"{PODS}?labelSelector=a",
        f"{PODS}/on-n2",
        f"{PODS}/on-n2/status",
        f"{PODS}/on-n2/log",
        NODES,
        f"{NODES}/n2",
        f"{LEASES}/n2",
        LEASES,
        "/api/v1/namespaces",
        "/api/v1/events",
        "/api/v1/secrets",
        "/api/v1/namespaces/default/secrets/s",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
        "/apis/metrics.k8s.io/v1beta1/pods",
        "/apis/metrics.k8s.io/v1beta1/nodes/n2",
    ],
)
def test_a_node_reads_nothing_of_others(server: ServerThread, path: str) -> None:
    assert server.ask("n1", "GET", path)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
        f"{PODS}?fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed",
        f"{PODS}/on-n1",
        f"{PODS}?fieldSelector=metadata.name%3Don-n1",
        f"{NODES}/n1",
        f"{NODES}?fieldSelector=metadata.name%3Dn1",
        f"{LEASES}/n1",
    ],
)
def test_a_node_reads_its_own(server: ServerThread, path: str) -> None:
    code, found = server.ask("n1", "GET", path)
    assert code == 200
    assert "n2" not in str(found)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", f"{PODS}/on-n2/status", {"status": {"phase": "Failed"}}),
        ("DELETE", f"{PODS}/on-n2", None),
        ("POST", f"{PODS}/on-n2/resizing", {"request": {"requestStatus": "Accepted"}}),
        ("POST", f"{PODS}/on-n1/exec?command=sh", None),
        ("POST", f"{PODS}/on-n1/binding", {"target": {"name": "n1"}}),
        ("POST", f"{PODS}/on-n1/eviction", {}),
        ("POST", PODS, {"metadata": {"name": "x"}, "spec": {"nodeName": "n1", "containers": []}}),
        ("PATCH", f"{PODS}/on-n1", {"metadata": {"labels": {"a": "b"}}}),
        ("PATCH", f"{LEASES}/n2", {"spec": {"holderIdentity": "n1"}}),
        ("DELETE", f"{NODES}/n2", None),
        ("DELETE", f"{NODES}/n1", None),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
    ],
)
def test_a_node_writes_nothing_of_others(
    server: ServerThread, method: str, path: str, body: Any
) -> None:
    content_type = MERGE if method == "PATCH" else "application/json"
    assert server.ask("n1", method, path, body, content_type=content_type)[0] == 403
