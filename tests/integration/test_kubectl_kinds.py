"""kubectl 1.32 with quotas, config maps, priorities and owners, against the door over TLS."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from integration.test_door_kubectl import Cluster
from livesize.apiserver.auth.identities import Identity, Role
from livesize.client.direct import DirectClient
from livesize.controllers.garbage.reconciler import GarbageCollector
from livesize.machinery.clock import SystemClock

pytestmark = [pytest.mark.door, pytest.mark.usefixtures("kubectl_1_32")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kinds")) as running:
        controllers = Identity("controllers", Role.CONTROLLER)
        client = DirectClient(running.server.door(controllers))
        garbage = GarbageCollector(client, clock=SystemClock())
        collecting = asyncio.run_coroutine_threadsafe(garbage.run(), running._loop)
        yield running
        collecting.cancel()


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
