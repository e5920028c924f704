"""Protobuf bodies: as kubectl 1.32 sends them (recorded), and whatever else arrives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.schema.fields import Schema
from livesize.apiserver.http.protobuf import _PLAIN, PROTOBUF, _schema_of, decode_protobuf
from virtual_time import real_time

EMPTY_META = b'\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
RECORDED = [
    (
        b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x19\n\x11\n\x01x" + EMPTY_META
        + b'\x12\x00\x1a\x02\n\x00\x1a\x00"\x00',
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
    ),
    (
        b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12"\n\x11\n\x01c' + EMPTY_META
        + b'\x12\x06\n\x01a\x12\x01b\x12\x05\n\x01e\x12\x00\x1a\x00"\x00',
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
            "data": {"a": "b", "e": ""},
        },
    ),
    (
        b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x1d\n\x11\n\x01s" + EMPTY_META
        + b'\x12\x06\n\x01p\x12\x01w\x1a\x00\x1a\x00"\x00',
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "dw=="}},
    ),
    (
        b"k8s\x00\n\x14\n\x02v1\x12\x0eServiceAccount\x12\x14\n\x12\n\x02sa" + EMPTY_META
        + b'\x1a\x00"\x00',
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}},
    ),
    (
        b"k8s\x00\n\x13\n\x02v1\x12\rResourceQuota\x12M\n\x11\n\x01q" + EMPTY_META
        + b"\x126\n\n\n\x03cpu\x12\x03\n\x011\n\x0f\n\x06memory\x12\x05\n\x031Gi"
        b'\n\x0b\n\x04pods\x12\x03\n\x012\x12\nBestEffort\x1a\x00\x1a\x00"\x00',
        {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {
                "hard": {"cpu": "1", "memory": "1Gi", "pods": "2"}, "scopes": ["BestEffort"],
            },
        },
    ),
    (
        b"k8s\x00\n%\n\x14scheduling.k8s.io/v1\x12\rPriorityClass\x123\n\x12\n\x02pc" + EMPTY_META
        + b'\x10\xe8\x07\x18\x00"\x02hi*\x14PreemptLowerPriority\x1a\x00"\x00',
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "pc"}, "value": 1000, "description": "hi",
            "preemptionPolicy": "PreemptLowerPriority",
        },
    ),
    (
        b"k8s\x00\n\r\n\x02v1\x12\x07Service\x12i\n\x1f\n\x03svc" + EMPTY_META
        + b'Z\n\n\x03app\x12\x03svc\x12B\n\x1b\n\x0780-8080\x12\x03TCP\x18P"\x07\x08\x00\x10\x90?'
        b'\x1a\x00(\x00\x12\n\n\x03app\x12\x03svc\x1a\x00"\tClusterIP:\x00B\x00R\x00Z\x00`\x00h\x00'
        b'\x1a\x02\n\x00\x1a\x00"\x00',
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "svc", "labels": {"app": "svc"}},
            "spec": {
                "ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                "selector": {"app": "svc"}, "type": "ClusterIP",
            },
        },
    ),
    (
        b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x129\n\x10\n\x00"
        + EMPTY_META
        + b'\x12\x1b\n\x19\n\x01n\x12\x03get\x1a\x00"\x00*\x04pods2\x00:\x03log'
        b'\x1a\x08\x08\x00\x12\x00\x1a\x00 \x00\x1a\x00"\x00',
        {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": "n", "verb": "get", "resource": "pods", "name": "log",
                }
            },
        },
    ),
    (
        b"k8s\x00\n1\n\x17authorization.k8s.io/v1\x12\x16SelfSubjectRulesReview\x12#\n\x10\n\x00"
        + EMPTY_META + b'\x12\t\n\x07default\x1a\x04\x18\x00"\x00\x1a\x00"\x00',
        {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "default"},
        },
    ),
    (
        b"k8s\x00\n-\n\x18authentication.k8s.io/v1\x12\x11SelfSubjectReview\x12\x1a\n\x10\n\x00"
        + EMPTY_META + b'\x12\x06\n\x04\n\x00\x12\x00\x1a\x00"\x00',
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    ),
]  # fmt: skip


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def unknown(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, meta) + field(2, raw) + field(3, b"") + field(4, b"")


@pytest.mark.parametrize(("body", "tree"), RECORDED, ids=[tree["kind"] for _, tree in RECORDED])
def test_as_recorded(body: bytes, tree: Any) -> None:
    assert decode_protobuf(body) == tree


def sizes(**amounts: str) -> bytes:
    pairs = (field(1, name.encode()) + field(2, field(1, amount.encode()))
             for name, amount in amounts.items())  # fmt: skip
    return b"".join(field(1, pair) for pair in pairs)


CONTAINER = (
    field(1, b"app") + field(2, b"busybox:1") + field(3, b"sh") + field(3, b"-c")
    + field(6, field(3, 80) + field(4, b"TCP"))
    + field(7, field(1, b"COLOUR") + field(2, b"blue"))
    + field(7, field(1, b"NODE") + field(3, field(1, field(1, b"v1") + field(2, b"spec.nodeName"))))
    + field(8, sizes(cpu="1", memory="1Gi"))
    + field(10, field(1, field(2, field(1, b"/ok") + field(2, field(1, 0) + field(2, 80))))
        + field(2, 5))
    + field(15, field(1, field(2, b"ALL")) + field(2, 0) + field(4, 0))
    + field(23, field(1, b"cpu") + field(2, b"NotRequired")) + field(99, b"")
)  # fmt: skip
POD = (
    field(1, field(1, b"web") + field(11, field(1, b"app") + field(2, b"web")))
    + field(2, field(1, field(1, b"scratch") + field(2, field(2, b"")))
        + field(1, field(1, b"settings") + field(2, field(19, field(1, field(1, b"cm")))))
        + field(2, CONTAINER) + field(3, b"Always") + field(4, 0) + field(11, 0)
        + field(14, field(2, 0) + field(4, 7) + field(4, b"\x08\x09"))
        + field(22, field(1, b"k") + field(2, b"Exists") + field(5, 30)))
    + field(3, field(1, b"Running") + field(17, 2)
        + field(8, field(1, b"app") + field(2, field(2, b"")) + field(4, 0) + field(5, 0)))
)  # fmt: skip
POD_TREE = {
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "cm"}},
        ],
        "containers": [
            {
                "name": "app",
                "image": "busybox:1",
                "command": ["sh", "-c"],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [
                    {"name": "COLOUR", "value": "blue"},
                    {
                        "name": "NODE",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
                        },
                    },
                ],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {
                    "httpGet": {"path": "/ok", "port": 80},
                    "initialDelaySeconds": 5,
                },
                "securityContext": {
                    "capabilities": {"drop": ["ALL"]},
                    "privileged": False,
                    "runAsUser": 0,
                },
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 0, "supplementalGroups": [7, 8, 9]},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
    },
    "status": {
        "phase": "Running",
        "observedGeneration": 2,
        "containerStatuses": [
            {"name": "app", "state": {"running": {}}, "ready": False, "restartCount": 0}
        ],
    },
}
BUILT = [
    ("v1", "Pod", POD, POD_TREE),
    (
        "v1",
        "Node",
        field(2, field(4, 1) + field(5, field(1, b"k") + field(3, b"NoSchedule")))
        + field(3, sizes(cpu="4")),
        {
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "4"}},
        },
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        field(2, field(1, field(1, 1) + field(3, b"50%"))
            + field(2, field(1, field(1, b"a") + field(2, b"b")))),
        {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
    ),
    (
        "apps/v1",
        "StatefulSet",
        field(2, field(1, 0) + field(2, field(1, field(1, b"a") + field(2, b"b")))
            + field(3, field(1, b"") + field(2, field(2, field(1, b"app"))))
            + field(4, field(1, field(1, b"data")) + field(2, field(1, b"ReadWriteOnce")))
            + field(5, b"db") + field(6, b"Parallel")
            + field(7, field(1, b"RollingUpdate") + field(2, field(1, 2) + field(2, field(2, 1))))
            + field(8, 0) + field(9, 5) + field(10, field(1, b"Delete") + field(2, b"Retain"))
            + field(11, field(1, 0)))
        + field(3, field(1, 3) + field(2, 0) + field(6, b"r1") + field(7, b"r2")
            + field(10, field(1, b"Held") + field(2, b"True") + field(5, b"why"))),
        {
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {"containers": [{"name": "app"}]}},
                "volumeClaimTemplates": [
                    {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
                ],
                "serviceName": "db", "podManagementPolicy": "Parallel",
                "updateStrategy": {
                    "type": "RollingUpdate", "rollingUpdate": {"partition": 2, "maxUnavailable": 1}
                },
                "revisionHistoryLimit": 0, "minReadySeconds": 5,
                "persistentVolumeClaimRetentionPolicy": {
                    "whenDeleted": "Delete", "whenScaled": "Retain"
                },
                "ordinals": {"start": 0},
            },
            "status": {
                "observedGeneration": 3, "replicas": 0, "currentRevision": "r1",
                "updateRevision": "r2",
                "conditions": [{"type": "Held", "status": "True", "message": "why"}],
            },
        },
    ),
    (
        "apps/v1",
        "Deployment",
        field(2, field(1, 2) + field(4, field(1, b"Recreate")) + field(7, 1) + field(9, 60))
        + field(3, field(3, 1) + field(4, 2) + field(7, 3)
            + field(6, field(1, b"Progressing") + field(4, b"why") + field(6, field(1, 1)))),
        {
            "spec": {
                "replicas": 2, "strategy": {"type": "Recreate"}, "paused": True,
                "progressDeadlineSeconds": 60,
            },
            "status": {
                "updatedReplicas": 1, "availableReplicas": 2, "readyReplicas": 3,
                "conditions": [{
                    "type": "Progressing", "reason": "why",
                    "lastUpdateTime": "1970-01-01T00:00:01Z",
                }],
            },
        },
    ),
    (
        "apps/v1",
        "ReplicaSet",
        field(2, field(1, 2) + field(4, 9)) + field(3, field(2, 1) + field(4, 2) + field(5, 3)),
        {
            "spec": {"replicas": 2, "minReadySeconds": 9},
            "status": {"fullyLabeledReplicas": 1, "readyReplicas": 2, "availableReplicas": 3},
        },
    ),
    (
        "apps/v1",
        "ControllerRevision",
        field(2, field(1, b'{"spec":{"a":1}}')) + field(3, 0),
        {"data": {"spec": {"a": 1}}, "revision": 0},
    ),
    (
        "policy/v1",
        "Eviction",
        field(1, field(1, b"web")) + field(2, field(1, 0)),
        {"metadata": {"name": "web"}, "deleteOptions": {"gracePeriodSeconds": 0}},
    ),
    (
        "v1",
        "LimitRange",
        field(2, field(1, field(1, b"Container")
            + field(4, field(1, b"cpu") + field(2, field(1, b"500m"))))),
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}},
    ),
    (
        "v1",
        "DeleteOptions",
        field(1, 0) + field(2, field(1, b"u")) + field(4, b"Foreground") + field(5, b"All"),
        {
            "gracePeriodSeconds": 0, "preconditions": {"uid": "u"},
            "propagationPolicy": "Foreground", "dryRun": ["All"],
        },
    ),
    (
        "v1",
        "Event",
        field(2, field(1, b"Pod") + field(3, b"web")) + field(6, field(1, 1_700_000_000))
        + field(8, 3) + field(10, field(1, 1_700_000_000) + field(2, 5_000)),
        {
            "involvedObject": {"kind": "Pod", "name": "web"},
            "firstTimestamp": "2023-11-14T22:13:20Z", "count": 3,
            "eventTime": "2023-11-14T22:13:20.000005Z",
        },
    ),
    (
        "coordination.k8s.io/v1",
        "Lease",
        field(2, field(1, b"me") + field(2, 15) + field(5, 0)),
        {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0}},
    ),
    (
        "v1",
        "Namespace",
        field(1, field(7, -1) + field(13, field(1, b"Pod") + field(6, 0)) + field(17, field(1, b"m")
            + field(7, field(1, b'{"f:a":{}}')))) + field(99, b"later") + b"\x09" + b"x" * 8,
        {
            "metadata": {
                "generation": -1, "ownerReferences": [{"kind": "Pod", "controller": False}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
            }
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "raw", "tree"), BUILT)
def test_as_built(api_version: str, kind: str, raw: bytes, tree: Any) -> None:
    expected = {"apiVersion": api_version, "kind": kind, **tree}
    assert decode_protobuf(unknown(api_version, kind, raw)) == expected


def test_claims_and_volumes() -> None:
    storage = field(1, b"storage") + field(2, field(1, b"1Gi"))
    modes = b"ReadWriteOnce"
    spec = field(1, modes) + field(2, field(2, storage)) + field(3, b"disk") + field(5, b"")
    claim = field(1, field(1, b"data")) + field(2, spec)
    assert decode_protobuf(unknown("v1", "PersistentVolumeClaim", claim))["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "disk",
        "storageClassName": "",
    }
    source = field(2, field(20, field(1, b"/srv/disk")))
    spec = field(1, storage) + source + field(3, modes) + field(5, b"Delete")
    made = decode_protobuf(unknown("v1", "PersistentVolume", field(2, spec)))
    assert made["spec"] == {
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/srv/disk"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
    }
    remote = field(2, field(2, field(5, field(1, b"server"))))
    with pytest.raises(StatusError, match="field 5 of PersistentVolumeSource"):
        decode_protobuf(unknown("v1", "PersistentVolume", remote))


def messages(schema: Schema) -> Iterator[Schema]:
    yield schema
    yield from schema.inlined.values()
    for one in schema.fields.values():
        if isinstance(one.type, Schema):
            yield from messages(one.type)


@pytest.mark.parametrize("resource", REGISTRY.stored())
def test_every_stored_kind_is_read_and_no_number_is_given_twice(resource: Resource) -> None:
    schema = _schema_of(resource.api_version, resource.kind)
    assert schema is not None
    assert schema.name == resource.kind
    for one in messages(schema):
        fields = [field for field in one.own_fields.values() if field.number]
        numbers = [*one.inlined, *(field.number for field in fields)]
        assert len(numbers) == len(set(numbers)), one.name
        assert all(isinstance(field.type, Schema) or field.type in _PLAIN for field in fields)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"k8s\x00", 415),
        (unknown("v1", "ReplicationController", b""), 415),
        (unknown("v1", "Pod", field(2, field(99, b"later"))), 415),
        (unknown("v1", "Pod", field(2, field(1, field(2, field(8, field(1, b"iscsi")))))), 415),
        (unknown("events.k8s.io/v1", "Event", b""), 415),
        (unknown("v1", "Namespace", b"\x0a\xff\xff\xff\xff\x0f"), 400),
        (unknown("v1", "Namespace", b"\x0a" + b"\xff" * 11), 400),
        (unknown("v1", "Namespace", b"\x0b"), 400),
        (unknown("v1", "Namespace", b"\x02\x00"), 400),
        (unknown("v1", "Namespace", field(1, field(1, b"\xff"))), 400),
        (unknown("v1", "Namespace", field(1, 7)), 400),
        (unknown("v1", "Namespace", field(1, field(8, field(1, 1 << 62)))), 400),
    ],
)
def test_refused(body: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        decode_protobuf(body)
    assert refused.value.code == code


@given(st.sampled_from(REGISTRY.stored()), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(resource: Resource, raw: bytes) -> None:
    kind = resource.kind
    try:
        code, tree = 200, decode_protobuf(unknown(resource.api_version, kind, raw))
    except StatusError as error:
        code, tree = error.code, {"kind": kind}
    assert (code in (200, 400, 415), tree["kind"]) == (True, kind)


async def test_at_the_door(rig: Any) -> None:
    namespaces = "/api/v1/namespaces"
    accept = f"{PROTOBUF},application/json"
    query = {"fieldManager": "kubectl-create", "fieldValidation": "Strict"}
    body = RECORDED[0][0]
    made = await rig.request(
        "POST", namespaces, body, content_type=PROTOBUF, accept=accept, **query
    )
    assert (made.status, made.json["kind"]) == (201, "Namespace")
    assert made.headers["content-type"] == "application/json"
    options = unknown("v1", "DeleteOptions", field(2, field(1, b"another")))
    kept = await rig.request("DELETE", f"{namespaces}/x", options, content_type=PROTOBUF)
    assert kept.status == 409
    pod = unknown("v1", "Pod", POD)
    path = f"{namespaces}/default/pods"
    run = await rig.request("POST", path, pod, content_type=PROTOBUF, accept=accept)
    assert (run.status, run.json["status"]["qosClass"]) == (201, "Guaranteed"), run.json
    again = await rig.request("PUT", f"{path}/web", pod, content_type=PROTOBUF, accept=accept)
    assert again.json["metadata"]["uid"] == run.json["metadata"]["uid"], again.json
    other = await rig.request("POST", namespaces, RECORDED[1][0], content_type=PROTOBUF)
    assert other.status == 400, "a ConfigMap is not a Namespace"


async def test_too_many_entries_are_refused(rig: Any) -> None:
    """Of three bytes each: the body itself is small."""
    spec = field(22, b"") * 20_000
    many = unknown("v1", "Pod", field(1, field(1, b"many")) + field(2, spec))
    with pytest.raises(StatusError) as refused:
        decode_protobuf(many)
    assert refused.value.code == 413
    path = "/api/v1/namespaces/default/pods"
    assert (await rig.request("POST", path, many, content_type=PROTOBUF)).status == 413


@real_time
async def test_a_large_one_is_read_on_a_thread(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_on: list[threading.Thread] = []

    def decode(body: bytes) -> Any:
        read_on.append(threading.current_thread())
        return decode_protobuf(body)

    monkeypatch.setattr("livesize.apiserver.http.handlers.decode_protobuf", decode)
    path = "/api/v1/namespaces/default/configmaps"
    for name, text in ((b"small", b"x"), (b"large", b"x" * 5000)):
        raw = field(1, field(1, name)) + field(2, field(1, b"a") + field(2, text))
        body = unknown("v1", "ConfigMap", raw)
        assert (await rig.request("POST", path, body, content_type=PROTOBUF)).status == 201
    assert [one is threading.main_thread() for one in read_on] == [True, False]
