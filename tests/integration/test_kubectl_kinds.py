"""kubectl 1.32 with quotas, config maps, priorities, claims and owners, over TLS."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from integration.test_apiserver_kubectl import Cluster
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.controllers.claims.reconcile import claims_controller
from livesize.controllers.garbage.reconcile import garbage_controller
from unit.controllers.at_work import at_work

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kinds")) as running:
        controllers = Identity("controllers", Role.CONTROLLER)
        client = running.server.client(controllers)
        working = asyncio.run_coroutine_threadsafe(
            at_work(client, garbage_controller, claims_controller), running._loop
        )
        yield running
        working.cancel()


def test_a_quota_is_applied_kept_and_shown(cluster: Cluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.cpu": "300m", "limits.cpu": "1", "pods": 2}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=quota)
    resources = {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "app", "image": "busybox:1", "resources": resources}]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=pod)
    header, row = cluster.kubectl("get", "quota").stdout.splitlines()
    assert header.split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "pods: 1/2, requests.cpu: 200m/300m" in row
    assert "limits.cpu: 200m/1" in row
    refused = cluster.kubectl(
        "apply", "-f", "-", stdin={**pod, "metadata": {"name": "two"}}, fails=True
    )
    assert (
        'pods "two" is forbidden: exceeded quota: small, requested: requests.cpu=200m,'
        " used: requests.cpu=200m, limited: requests.cpu=300m" in refused.stderr
    )
    described = cluster.kubectl("describe", "quota", "small").stdout
    assert ["requests.cpu", "200m", "300m"] in [line.split() for line in described.splitlines()]


def test_config_maps_secrets_and_what_is_always_there(cluster: Cluster) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    cluster.kubectl("apply", "-f", "-", stdin={**config, "data": {"a": "1"}})
    cluster.kubectl("apply", "-f", "-", stdin={**config, "data": {"b": "2"}})
    shown = cluster.kubectl("get", "cm", "settings", "-o", "jsonpath={.data}").stdout
    assert shown == '{"b":"2"}'
    rows = cluster.kubectl("get", "cm,sa,svc", "--no-headers").stdout
    for name in ("kube-root-ca.crt", "serviceaccount/default", "service/kubernetes"):
        assert name in rows
    ca = cluster.kubectl("get", "cm", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}").stdout
    assert ca == cluster.server.ca_path.read_text()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}}
    cluster.kubectl("apply", "-f", "-", stdin={**secret, "stringData": {"word": "open"}})
    word = cluster.kubectl("get", "secret", "key", "-o", "jsonpath={.data.word}").stdout
    assert base64.b64decode(word) == b"open"
    classes = cluster.kubectl("get", "pc", "--no-headers").stdout
    assert {"system-cluster-critical", "system-node-critical"} <= {
        line.split()[0] for line in classes.splitlines()
    }
    names = cluster.kubectl("api-resources", "--no-headers").stdout
    assert "poddisruptionbudgets" in names


def test_claims_and_volumes(cluster: Cluster) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    disk = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {**asked, "capacity": {"storage": "2Gi"}, "hostPath": {"path": "/srv/disk"}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {**asked, "resources": {"requests": {"storage": "1Gi"}}},
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [disk, claim]}
    cluster.kubectl("apply", "-f", "-", stdin=listed)
    bound = "--for=jsonpath={.status.phase}=Bound"
    cluster.kubectl("wait", bound, "pvc/data", "pv/disk", "--timeout=20s")
    lines = cluster.kubectl("get", "pvc,pv,sc").stdout.splitlines()
    tables = [line.split() for line in lines if line]
    assert tables[0][:8] == [
        "NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS", "MODES", "STORAGECLASS",
        "VOLUMEATTRIBUTESCLASS",
    ]  # fmt: skip
    assert tables[1][:5] == ["persistentvolumeclaim/data", "Bound", "disk", "2Gi", "RWO"]
    assert tables[3][:6] == [
        "persistentvolume/disk", "2Gi", "RWO", "Retain", "Bound", "default/data",
    ]  # fmt: skip
    assert tables[5][:4] == [
        "storageclass.storage.k8s.io/local", "(default)", "livesize.dev/local", "Delete",
    ]  # fmt: skip
    described = cluster.kubectl("describe", "pvc", "data").stdout
    assert "Finalizers:    [kubernetes.io/pvc-protection]" in described
    assert "Used By:       <none>" in described
    smaller = '{"spec":{"resources":{"requests":{"storage":"1Mi"}}}}'
    refused = cluster.kubectl("patch", "pvc", "data", "-p", smaller, fails=True)
    assert "ask for at least 1Gi" in refused.stderr
    cluster.kubectl("delete", "pvc", "data", "--timeout=20s")
    released = "--for=jsonpath={.status.phase}=Released"
    cluster.kubectl("wait", released, "pv/disk", "--timeout=20s")
    cluster.kubectl("delete", "pv", "disk", "--timeout=20s")


def config_map(cluster: Cluster, name: str, owner: str = "") -> None:
    metadata: dict[str, Any] = {"name": name}
    if owner:
        uid = cluster.kubectl("get", "cm", owner, "-o", "jsonpath={.metadata.uid}").stdout
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}
        metadata["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    cluster.kubectl("create", "-f", "-", stdin=body)


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_cascades(cluster: Cluster, cascade: str) -> None:
    owner, owned = f"owner-{cascade}", f"owned-{cascade}"
    config_map(cluster, owner)
    config_map(cluster, owned, owner)
    cluster.kubectl("delete", "cm", owner, f"--cascade={cascade}", "--timeout=20s")
    if cascade == "orphan":
        path = "jsonpath={.metadata.name} {.metadata.ownerReferences}"
        assert cluster.kubectl("get", "cm", owned, "-o", path).stdout.strip() == owned
    else:
        cluster.kubectl("wait", "--for=delete", f"cm/{owned}", "--timeout=20s")
    left = cluster.kubectl("get", "cm", "-o", "name").stdout.split()
    assert f"configmap/{owner}" not in left
