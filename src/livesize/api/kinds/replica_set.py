"""Replica sets: so many pods of one template, each as good as another."""

from __future__ import annotations

from livesize.api.columns import AGE, NAME, Column, at
from livesize.api.errors import FieldError
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS, scale
from livesize.api.objects import Object
from livesize.api.schema.fields import Message, integer, list_of, object_of
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.workloads import APPS, WorkloadCondition, WorkloadSpec
from livesize.api.validation.workloads import (
    validate_same_selector,
    validate_workload,
    validate_workload_update,
)
from livesize.api.workloads import CONTAINERS, IMAGES, SELECTOR, WORKLOAD_ROLES, default_template

REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", True, "replicaset", ("rs",), ("all",)
)


class ReplicaSetCondition(WorkloadCondition, package=APPS):
    pass


class ReplicaSetSpec(WorkloadSpec, package=APPS):
    minReadySeconds = integer(
        4, description="How long a pod has to be ready to count as available; 0 if absent."
    )


class ReplicaSetStatus(Message, package=APPS):
    replicas = integer(1, keeps_zero=True)
    fullyLabeledReplicas = integer(2)
    observedGeneration = integer(3)
    readyReplicas = integer(4)
    availableReplicas = integer(5)
    conditions = list_of(ReplicaSetCondition, 6, key="type")
    terminatingReplicas = integer(7, keeps_zero=True)


class ReplicaSet(TypedObject, package=APPS):
    """A number of pods of one template. Deployments make them."""

    spec = object_of(ReplicaSetSpec, 2)
    status = object_of(ReplicaSetStatus, 3)


_PARTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def default_replica_set(replica_set: Object) -> Object:
    spec = replica_set.get("spec", {})
    if not isinstance(spec, dict):
        return replica_set
    return {**replica_set, "spec": default_template({"replicas": 1, **spec})}


def validate_replica_set(replica_set: Object) -> list[FieldError]:
    return validate_workload(replica_set, "ReplicaSet", selector_of="deployment")


def validate_replica_set_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *validate_workload_update(new, old, validate_replica_set, _PARTS),
        *validate_same_selector(new, old),
    ]


REPLICA_SET = Kind(
    REPLICA_SETS,
    shape=ReplicaSet,
    strategy="workload",
    defaults=default_replica_set,
    validate=validate_replica_set,
    validate_update=validate_replica_set_update,
    subresources={"scale": scale(), "status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    roles=WORKLOAD_ROLES,
    selectable_fields=("status.replicas",),
    columns=(
        NAME,
        Column("Desired", at("spec", "replicas", default="0"), "integer"),
        Column("Current", at("status", "replicas", default="0"), "integer"),
        Column("Ready", at("status", "readyReplicas", default="0"), "integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
)
