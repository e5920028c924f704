"""Deployments: pods of a template that is rolled out from one version to the next."""

from __future__ import annotations

from typing import Any

from livesize.api.columns import AGE, NAME, Column, at
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS, scale
from livesize.api.objects import Object
from livesize.api.schema.fields import (
    Message,
    Type,
    boolean,
    integer,
    list_of,
    object_of,
    scalar,
    string,
)
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.workloads import APPS, WorkloadSpec
from livesize.api.validation.choices import one_of
from livesize.api.validation.shares import is_zero_share, validate_counts, validate_share
from livesize.api.validation.workloads import (
    validate_same_selector,
    validate_workload,
    validate_workload_update,
)
from livesize.api.workloads import (
    CONTAINERS,
    IMAGES,
    SELECTOR,
    WORKLOAD_ROLES,
    default_template,
    ready_cell,
)

DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", True, "deployment", ("deploy",), ("all",)
)
RECREATE, ROLLING_UPDATE = "Recreate", "RollingUpdate"


class RollingUpdateDeployment(Message, package=APPS):
    maxUnavailable = scalar(
        Type.INT_OR_STRING,
        1,
        description="How many pods may be missing meanwhile: a number, or a percentage rounded"
        " down. 25% if absent.",
    )
    maxSurge = scalar(
        Type.INT_OR_STRING,
        2,
        description="How many pods there may be too many meanwhile: a number, or a percentage"
        " rounded up. 25% if absent.",
    )


class DeploymentStrategy(Message, package=APPS):
    type = string(1, description="Recreate, or RollingUpdate, which is the default.")
    rollingUpdate = object_of(RollingUpdateDeployment, 2, keeps_zero=True)


class DeploymentCondition(Message, package=APPS):
    type = string(1)
    status = string(2)
    reason = string(4)
    message = string(5)
    lastUpdateTime = scalar(Type.TIME, 6)
    lastTransitionTime = scalar(Type.TIME, 7)


class DeploymentSpec(WorkloadSpec, package=APPS):
    strategy = object_of(
        DeploymentStrategy,
        4,
        retains_keys=True,
        description="How pods of one template are replaced by those of the next.",
    )
    minReadySeconds = integer(
        5, description="How long a pod has to be ready to count as available; 0 if absent."
    )
    revisionHistoryLimit = integer(
        6,
        keeps_zero=True,
        description="How many old versions are kept to go back to; 10 if absent.",
    )
    paused = boolean(7, description="A changed template is not rolled out.")
    progressDeadlineSeconds = integer(
        9,
        keeps_zero=True,
        description="After how long without progress a rollout counts as failed; 600 if absent.",
    )


class DeploymentStatus(Message, package=APPS):
    observedGeneration = integer(1)
    replicas = integer(2)
    updatedReplicas = integer(3)
    availableReplicas = integer(4)
    unavailableReplicas = integer(5)
    conditions = list_of(DeploymentCondition, 6, key="type")
    readyReplicas = integer(7)
    collisionCount = integer(8, keeps_zero=True)
    terminatingReplicas = integer(9, keeps_zero=True)


class Deployment(TypedObject, package=APPS):
    """A number of pods, and how they go from one template to the next."""

    spec = object_of(DeploymentSpec, 2)
    status = object_of(DeploymentStatus, 3)


_SPEC: Object = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_ROLLING: Object = {"maxUnavailable": "25%", "maxSurge": "25%"}
_PARTS = ("updatedReplicas", "readyReplicas", "availableReplicas")


def default_deployment(deployment: Object) -> Object:
    spec = deployment.get("spec", {})
    if not isinstance(spec, dict):
        return deployment
    filled = default_template({**_SPEC, **spec})
    return {
        **deployment,
        "spec": {**filled, "strategy": _default_strategy(spec.get("strategy", {}))},
    }


def _default_strategy(strategy: Any) -> Any:
    if not isinstance(strategy, dict):
        return strategy
    strategy = {**strategy, "type": strategy.get("type") or ROLLING_UPDATE}
    rolling = strategy.get("rollingUpdate", {})
    if strategy["type"] != ROLLING_UPDATE or not isinstance(rolling, dict):
        return strategy
    return {**strategy, "rollingUpdate": {**_ROLLING, **rolling}}


def validate_deployment(deployment: Object) -> list[FieldError]:
    spec = deployment["spec"]
    errors = validate_workload(deployment, "ReplicaSet", selector_of="deployment")
    errors += _validate_strategy(spec["strategy"])
    errors += validate_counts(spec, "spec", "progressDeadlineSeconds")
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        field, detail = "spec.progressDeadlineSeconds", "must be greater than minReadySeconds"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, deadline))
    return errors


def validate_deployment_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *validate_workload_update(new, old, validate_deployment, _PARTS),
        *validate_same_selector(new, old),
    ]


def _validate_strategy(strategy: Object) -> list[FieldError]:
    field = "spec.strategy.rollingUpdate"
    if strategy["type"] not in (RECREATE, ROLLING_UPDATE):
        return one_of(strategy, (RECREATE, ROLLING_UPDATE), "spec.strategy")
    if strategy["type"] == RECREATE:
        detail = f"may not be specified when strategy `type` is '{RECREATE}'"
        forbidden = FieldError(FieldErrorKind.FORBIDDEN, field, detail)
        return [forbidden] if "rollingUpdate" in strategy else []
    rolling = strategy["rollingUpdate"]
    missing, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    errors = [
        *validate_share(missing, f"{field}.maxUnavailable"),
        *validate_share(surge, f"{field}.maxSurge", most_percent=None),
    ]
    if not errors and is_zero_share(missing) and is_zero_share(surge):
        detail = "may not be 0 when `maxSurge` is 0"
        field = f"{field}.maxUnavailable"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, missing))
    return errors


DEPLOYMENT = Kind(
    DEPLOYMENTS,
    shape=Deployment,
    strategy="held-workload",
    defaults=default_deployment,
    validate=validate_deployment,
    validate_update=validate_deployment_update,
    subresources={"scale": scale(), "status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    roles=WORKLOAD_ROLES,
    columns=(
        NAME,
        Column("Ready", ready_cell, description="Ready of desired"),
        Column("Up-to-date", at("status", "updatedReplicas", default="0")),
        Column("Available", at("status", "availableReplicas", default="0")),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
)
