"""Claims, volumes and classes: what is filled in, what is refused, how they are printed."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.defaults import default_object
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.limits import claim_problems
from livesize.api.objects import Object, evolve, without
from livesize.api.quota import recount
from livesize.api.storage import DEFAULT_CLASS, claims_of, default_class
from livesize.api.table import table_for
from livesize.api.validation.objects import validate_update
from unit.api.refusals import create_errors
from unit.controllers.storage_objects import claim, on_node, storage_class, volume

STORAGE = ("spec", "resources", "requests", "storage")
LOCAL = without(
    volume(local={"path": "/srv/disk"}, nodeAffinity=on_node("n1")), ("spec", "hostPath")
)


def problems(resource: Resource, obj: Object) -> str:
    return "; ".join(error.sentence() for error in create_errors(resource, obj))


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (PERSISTENT_VOLUME_CLAIMS, claim()),
        (PERSISTENT_VOLUME_CLAIMS, claim(selector={"matchLabels": {"a": "b"}})),
        (PERSISTENT_VOLUMES, volume()),
        (PERSISTENT_VOLUMES, LOCAL),
        (STORAGE_CLASSES, storage_class()),
        (STORAGE_CLASSES, storage_class("x", provisioner="example.com/x")),
    ],
)
def test_what_is_right_passes(resource: Resource, obj: Object) -> None:
    assert problems(resource, obj) == ""
    assert validate_update(resource, obj, obj) == []
    assert default_object(resource, obj) == obj


@pytest.mark.parametrize(
    ("resource", "obj", "says"),
    [
        (PERSISTENT_VOLUME_CLAIMS, claim(accessModes=[]), "at least 1 access mode"),
        (PERSISTENT_VOLUME_CLAIMS, claim(accessModes=["Some"]), "spec.accessModes[0]: Unsupported"),
        (
            PERSISTENT_VOLUME_CLAIMS,
            claim(accessModes=["ReadWriteOnce", "ReadWriteOncePod"]),
            "may not use ReadWriteOncePod",
        ),
        (PERSISTENT_VOLUME_CLAIMS, claim(size="0"), "must be greater than zero"),
        (PERSISTENT_VOLUME_CLAIMS, claim(resources={}), "spec.resources.requests.storage: Requ"),
        (PERSISTENT_VOLUME_CLAIMS, claim(class_name="A_B"), "spec.storageClassName"),
        (PERSISTENT_VOLUME_CLAIMS, claim(volumeMode="Tape"), "spec.volumeMode: Unsupported"),
        (PERSISTENT_VOLUME_CLAIMS, claim(dataSource={"kind": "X"}), "volumes begin empty here"),
        (
            PERSISTENT_VOLUME_CLAIMS,
            claim(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.selector.matchExpressions[0].values",
        ),
        (
            PERSISTENT_VOLUME_CLAIMS,
            claim(resources={"requests": {"storage": "2"}, "limits": {"storage": "1"}}),
            "less than or equal to storage limit",
        ),
        (PERSISTENT_VOLUMES, volume(size="0"), "must be greater than zero"),
        (PERSISTENT_VOLUMES, volume(nfs={"path": "/x"}), "exactly one volume type"),
        (PERSISTENT_VOLUMES, without(volume(), ("spec", "hostPath")), "exactly one volume type"),
        (
            PERSISTENT_VOLUMES,
            without(volume(nfs={"path": "/x"}), ("spec", "hostPath")),
            "spec.nfs: Forbidden: nodes know only hostPath or local",
        ),
        (PERSISTENT_VOLUMES, volume(hostPath={"path": "/a/../b"}), "absolute path without '..'"),
        (PERSISTENT_VOLUMES, volume(hostPath={"path": ""}), "spec.hostPath.path: Required"),
        (PERSISTENT_VOLUMES, without(LOCAL, ("spec", "nodeAffinity")), "say on which"),
        (PERSISTENT_VOLUMES, volume(nodeAffinity={"required": {}}), "at least one node selector"),
        (
            PERSISTENT_VOLUMES,
            volume(persistentVolumeReclaimPolicy="Recycle"),
            'supported values: "Retain", "Delete"',
        ),
        (PERSISTENT_VOLUMES, volume(claimRef={"name": "x"}), "spec.claimRef.namespace: Required"),
        (STORAGE_CLASSES, storage_class(provisioner=""), "provisioner: Required"),
        (STORAGE_CLASSES, storage_class(reclaimPolicy="Keep"), "reclaimPolicy: Unsupported"),
        (STORAGE_CLASSES, storage_class(volumeBindingMode="Immediate"), "use WaitForFirstConsumer"),
    ],
)
def test_what_is_wrong_is_said(resource: Resource, obj: Object, says: str) -> None:
    assert says in problems(resource, obj)


BOUND = evolve(claim(volumeName="disk"), ("status", "phase"), "Bound")


@pytest.mark.parametrize(
    ("resource", "old", "new", "says"),
    [
        (PERSISTENT_VOLUME_CLAIMS, BOUND, evolve(BOUND, STORAGE, "2Gi"), ""),
        (PERSISTENT_VOLUME_CLAIMS, claim(), claim(volumeName="disk"), ""),
        (PERSISTENT_VOLUME_CLAIMS, BOUND, evolve(BOUND, STORAGE, "1Mi"), "ask for at least 1Gi"),
        (PERSISTENT_VOLUME_CLAIMS, claim(), claim(size="2Gi"), "immutable after creation"),
        (PERSISTENT_VOLUME_CLAIMS, BOUND, claim(volumeName="another"), "immutable after"),
        (PERSISTENT_VOLUME_CLAIMS, claim(), claim(class_name="other"), "immutable after creation"),
        (
            PERSISTENT_VOLUME_CLAIMS,
            BOUND,
            evolve(BOUND, ("spec", "accessModes"), ["ReadWriteMany"]),
            "make a new claim",
        ),
        (PERSISTENT_VOLUMES, volume(), volume(size="5Gi"), ""),
        (PERSISTENT_VOLUMES, volume(), volume(persistentVolumeReclaimPolicy="Delete"), ""),
        (PERSISTENT_VOLUMES, volume(), volume(nodeAffinity=on_node("n1")), ""),
        (PERSISTENT_VOLUMES, volume(), volume(hostPath={"path": "/y"}), "spec.hostPath: Forbidden"),
        (
            PERSISTENT_VOLUMES,
            LOCAL,
            evolve(LOCAL, ("spec", "nodeAffinity"), on_node("n2")),
            "spec.nodeAffinity: Forbidden",
        ),
        (STORAGE_CLASSES, storage_class(), storage_class(allowVolumeExpansion=True), ""),
        (
            STORAGE_CLASSES,
            storage_class(),
            storage_class(reclaimPolicy="Retain"),
            "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden",
        ),
    ],
)
def test_what_may_change(resource: Resource, old: Object, new: Object, says: str) -> None:
    found = "; ".join(error.sentence() for error in validate_update(resource, new, old))
    assert says in found
    assert bool(found) is bool(says)


@pytest.mark.parametrize("resource", [PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES])
@pytest.mark.parametrize("spec", [None, 1, [], {"resources": 1, "capacity": 1, "hostPath": 1}])
def test_any_json_is_refused_and_nothing_breaks(resource: Resource, spec: Any) -> None:
    assert create_errors(resource, {"metadata": {"name": "x", "namespace": "d"}, "spec": spec})


def row(resource: Resource, obj: Object) -> list[Any]:
    cells: list[Any] = table_for(resource, [obj], now=0)["rows"][0]["cells"]
    return cells


def test_as_kubectl_prints_them() -> None:
    status = {
        "phase": "Bound",
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
    }
    made = evolve({**BOUND, "status": status}, ("metadata", "creationTimestamp"), "1970-01-01")
    assert row(PERSISTENT_VOLUME_CLAIMS, made) == [
        "data", "Bound", "disk", "1Gi", "RWO,RWX", "local", "<unset>", "0s", "Filesystem",
    ]  # fmt: skip
    going = evolve(made, ("metadata", "deletionTimestamp"), "1970-01-01")
    assert row(PERSISTENT_VOLUME_CLAIMS, going)[1] == "Terminating"
    kept = volume(claimRef={"namespace": "default", "name": "data"})
    assert row(PERSISTENT_VOLUMES, kept)[:7] == [
        "disk", "1Gi", "RWO", "Retain", "Pending", "default/data", "local",
    ]  # fmt: skip
    default = evolve(storage_class(), ("metadata", "annotations", DEFAULT_CLASS), "true")
    assert row(STORAGE_CLASSES, default)[:5] == [
        "local (default)", "livesize.dev/local", "Delete", "WaitForFirstConsumer", False,
    ]  # fmt: skip


def test_the_newest_default_class_counts() -> None:
    classes = []
    for name, created in (("old", "2026-01-01"), ("b", "2026-02-01"), ("a", "2026-02-01")):
        one = evolve(storage_class(name), ("metadata", "annotations", DEFAULT_CLASS), "true")
        classes.append(evolve(one, ("metadata", "creationTimestamp"), created))
    assert default_class([storage_class("other"), *classes]) == "a"
    assert default_class([storage_class("other")]) == ""


def test_claims_are_counted_by_quotas() -> None:
    hard = {
        "requests.storage": "9Gi",
        "persistentvolumeclaims": "5",
        "local.storageclass.storage.k8s.io/requests.storage": "9Gi",
    }
    quota = {"spec": {"hard": hard}}
    objects = [(PERSISTENT_VOLUME_CLAIMS, one) for one in (claim(), claim("b", "2Gi", ""))]
    assert recount(quota, objects)["status"]["used"] == {
        "requests.storage": "3Gi",
        "persistentvolumeclaims": "2",
        "local.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }


def test_the_claims_of_a_pod() -> None:
    volumes = [{"persistentVolumeClaim": {"claimName": name}} for name in "bab"]
    assert claims_of({"spec": {"volumes": [*volumes, {"emptyDir": {}}]}}) == ("a", "b")
    assert claims_of({"spec": {}}) == ()


def test_a_limit_range_bounds_claims() -> None:
    bounds = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "4Gi"}}
    ranges = [{"spec": {"limits": [bounds, {"type": "Container", "max": {"cpu": "1"}}]}}]
    assert claim_problems(claim(size="2Gi"), ranges) == []
    (small,) = claim_problems(claim(size="512Mi"), ranges)
    assert small == ("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi")
    (large,) = claim_problems(claim(size="5Gi"), ranges)
    assert large == "maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"
