"""Stateful sets: pods that are told apart by a number, and keep their claims."""

from __future__ import annotations

from typing import Any

from livesize.api.columns import AGE, NAME, Column
from livesize.api.errors import FieldError, FieldErrorKind, nested
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.persistent_volume_claim import (
    PERSISTENT_VOLUME_CLAIMS,
    PersistentVolumeClaim,
    default_claim,
    validate_claim,
)
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS, scale
from livesize.api.objects import Object, lookup, name_of
from livesize.api.schema.fields import (
    Message,
    Type,
    integer,
    list_of,
    object_of,
    scalar,
    string,
)
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.workloads import APPS, WorkloadCondition, WorkloadSpec
from livesize.api.validation.choices import one_of
from livesize.api.validation.metadata import validate_written
from livesize.api.validation.names import LABEL_LENGTH, DnsRule, validate_name
from livesize.api.validation.shares import is_zero_share, validate_counts, validate_share
from livesize.api.validation.workloads import validate_workload, validate_workload_update
from livesize.api.workloads import (
    CONTAINERS,
    IMAGES,
    WORKLOAD_ROLES,
    default_template,
    ready_cell,
)

STATEFUL_SETS = Resource(
    "apps", "v1", "statefulsets", "StatefulSet", True, "statefulset", ("sts",), ("all",)
)
ORDERED_READY, PARALLEL = "OrderedReady", "Parallel"
ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"
RETAIN, DELETE = "Retain", "Delete"
REVISION_HASH_LENGTH = 10
LONGEST_NAME = LABEL_LENGTH - REVISION_HASH_LENGTH - 1
"""The label controller-revision-hash of its pods is its name, a dash and a hash."""


class RollingUpdateStatefulSetStrategy(Message, package=APPS):
    partition = integer(
        1, keeps_zero=True, description="Pods of lower numbers keep the old template; 0 if absent."
    )
    maxUnavailable = scalar(
        Type.INT_OR_STRING,
        2,
        description="How many pods may be missing meanwhile: a number, or a percentage rounded up."
        " 1 if absent.",
    )


class StatefulSetUpdateStrategy(Message, package=APPS):
    """How pods get a changed template."""

    type = string(
        1,
        description="RollingUpdate, the default: one after the other, from the last. OnDelete: when"
        " somebody deletes them.",
    )
    rollingUpdate = object_of(RollingUpdateStatefulSetStrategy, 2, keeps_zero=True)


class StatefulSetPersistentVolumeClaimRetentionPolicy(Message, package=APPS):
    whenDeleted = string(1, description="Retain, the default, or Delete.")
    whenScaled = string(2, description="Retain, the default, or Delete.")


class StatefulSetOrdinals(Message, package=APPS):
    start = integer(1, keeps_zero=True, description="The number of the first pod; 0 if absent.")


class StatefulSetCondition(WorkloadCondition, package=APPS):
    pass


class StatefulSetSpec(WorkloadSpec, package=APPS):
    volumeClaimTemplates = list_of(
        PersistentVolumeClaim, 4, description="Each pod gets a claim of its own for each of them."
    )
    serviceName = string(5, description="The service that its pods have their names in.")
    podManagementPolicy = string(
        6, description="OrderedReady, the default: one after the other. Parallel: all at once."
    )
    updateStrategy = object_of(StatefulSetUpdateStrategy, 7)
    revisionHistoryLimit = integer(
        8,
        keeps_zero=True,
        description="How many old versions are kept to go back to; 10 if absent.",
    )
    minReadySeconds = integer(
        9, description="How long a pod has to be ready to count as available; 0 if absent."
    )
    persistentVolumeClaimRetentionPolicy = object_of(
        StatefulSetPersistentVolumeClaimRetentionPolicy,
        10,
        keeps_zero=True,
        description="What becomes of the claims when the set, or the pod, goes.",
    )
    ordinals = object_of(
        StatefulSetOrdinals, 11, keeps_zero=True, description="How its pods are numbered."
    )


class StatefulSetStatus(Message, package=APPS):
    observedGeneration = integer(1, keeps_zero=True)
    replicas = integer(2, keeps_zero=True)
    readyReplicas = integer(3)
    currentReplicas = integer(4)
    updatedReplicas = integer(5)
    currentRevision = string(6)
    updateRevision = string(7)
    collisionCount = integer(9, keeps_zero=True)
    conditions = list_of(StatefulSetCondition, 10, key="type")
    availableReplicas = integer(11, keeps_zero=True)


class StatefulSet(TypedObject, package=APPS):
    """Pods that are told apart by a number: each keeps its name and its claims."""

    spec = object_of(StatefulSetSpec, 2)
    status = object_of(StatefulSetStatus, 3)


_SPEC: Object = {
    "replicas": 1,
    "podManagementPolicy": ORDERED_READY,
    "revisionHistoryLimit": 10,
}
_RETENTION: Object = {"whenDeleted": RETAIN, "whenScaled": RETAIN}
_CLAIM: Object = {
    "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
    "kind": PERSISTENT_VOLUME_CLAIMS.kind,
}
_PARTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
_FIXED = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template',"
    " 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and"
    " 'minReadySeconds' are forbidden"
)


def default_stateful_set(stateful_set: Object) -> Object:
    spec = stateful_set.get("spec", {})
    if not isinstance(spec, dict):
        return stateful_set
    filled = default_template({**_SPEC, **spec})
    filled["updateStrategy"] = _default_strategy(spec.get("updateStrategy", {}))
    retention = spec.get("persistentVolumeClaimRetentionPolicy", {})
    if isinstance(retention, dict):
        given = {key: word for key, word in retention.items() if word}
        filled["persistentVolumeClaimRetentionPolicy"] = {**_RETENTION, **given}
    if isinstance(spec.get("ordinals"), dict):
        filled["ordinals"] = {"start": 0, **spec["ordinals"]}
    claims = spec.get("volumeClaimTemplates")
    if isinstance(claims, list):
        filled["volumeClaimTemplates"] = [
            default_claim({**_CLAIM, **claim}) if isinstance(claim, dict) else claim
            for claim in claims
        ]
    return {**stateful_set, "spec": filled}


def _default_strategy(strategy: Any) -> Any:
    """Who names the type and no partition is left alone, as in Kubernetes."""
    if not isinstance(strategy, dict):
        return strategy
    if not strategy.get("type"):
        strategy = {"rollingUpdate": {}, **strategy, "type": ROLLING_UPDATE}
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] != ROLLING_UPDATE or not isinstance(rolling, dict):
        return strategy
    return {**strategy, "rollingUpdate": {"partition": 0, **rolling}}


def validate_stateful_set(stateful_set: Object) -> list[FieldError]:
    name = name_of(stateful_set)
    errors = validate_stateful_set_spec(stateful_set)
    if LONGEST_NAME < len(name) <= LABEL_LENGTH:
        detail = (
            f"must be no more than {LONGEST_NAME} characters: its pods have a label with the name"
            " and the hash of a revision"
        )
        errors.append(FieldError(FieldErrorKind.INVALID, "metadata.name", detail, name))
    return errors


def validate_stateful_set_spec(stateful_set: Object) -> list[FieldError]:
    spec = stateful_set["spec"]
    claims: list[Object] = spec.get("volumeClaimTemplates") or []
    errors = validate_workload(
        stateful_set, "StatefulSet", selector_of="statefulset", volumes=map(name_of, claims)
    )
    policy = spec["podManagementPolicy"]
    if policy not in (ORDERED_READY, PARALLEL):
        detail = f"must be '{ORDERED_READY}' or '{PARALLEL}'"
        errors.append(
            FieldError(FieldErrorKind.INVALID, "spec.podManagementPolicy", detail, policy)
        )
    errors += _validate_strategy(spec["updateStrategy"])
    for when, word in spec["persistentVolumeClaimRetentionPolicy"].items():
        field = f"spec.persistentVolumeClaimRetentionPolicy.{when}"
        errors += one_of(word, (RETAIN, DELETE), field)
    errors += validate_counts(spec.get("ordinals") or {}, "spec.ordinals", "start")
    if spec.get("serviceName"):
        errors += validate_name(spec["serviceName"], "spec.serviceName", DnsRule.LABEL)
    return errors + _validate_claims(claims)


def validate_stateful_set_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_workload_update(new, old, validate_stateful_set_spec, _PARTS)
    if _fixed(new) != _fixed(old):
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec", _FIXED))
    return errors


def _fixed(stateful_set: Object) -> Object:
    spec = lookup(stateful_set, "spec", default={})
    return {name: value for name, value in spec.items() if name not in _MUTABLE and value}


def _validate_strategy(strategy: Object) -> list[FieldError]:
    field, rolling = "spec.updateStrategy", strategy.get("rollingUpdate")
    if strategy["type"] not in (ROLLING_UPDATE, ON_DELETE):
        detail = f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'"
        return [FieldError(FieldErrorKind.INVALID, field, detail, strategy)]
    if rolling is None:
        return []
    field = f"{field}.rollingUpdate"
    if strategy["type"] == ON_DELETE:
        detail = f"only allowed for updateStrategy '{ROLLING_UPDATE}'"
        return [FieldError(FieldErrorKind.INVALID, field, detail, rolling)]
    errors = validate_counts(rolling, field, "partition")
    missing = rolling.get("maxUnavailable")
    if missing is not None:
        field = f"{field}.maxUnavailable"
        wrong = validate_share(missing, field)
        if not wrong and is_zero_share(missing):
            wrong = [FieldError(FieldErrorKind.INVALID, field, "cannot be 0", missing)]
        errors += wrong
    return errors


def _validate_claims(claims: list[Object]) -> list[FieldError]:
    """Each as a claim of its pods, which mount it by its name."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        field, name = f"spec.volumeClaimTemplates[{index}]", name_of(claim)
        errors += validate_name(name, f"{field}.metadata.name", DnsRule.LABEL)
        if name in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, f"{field}.metadata.name", "", name))
        seen.add(name)
        errors += nested([*validate_written(claim), *validate_claim(claim)], field)
    return errors


STATEFUL_SET = Kind(
    STATEFUL_SETS,
    shape=StatefulSet,
    strategy="held-workload",
    defaults=default_stateful_set,
    validate=validate_stateful_set,
    validate_update=validate_stateful_set_update,
    name_rule=DnsRule.LABEL,
    subresources={"scale": scale(), "status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    roles=WORKLOAD_ROLES,
    columns=(
        NAME,
        Column("Ready", ready_cell, description="Ready of desired"),
        AGE,
        CONTAINERS,
        IMAGES,
    ),
)
