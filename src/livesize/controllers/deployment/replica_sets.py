"""The ReplicaSets of a Deployment: which one has its template, and what is written on them. Pure.

Annotations on a ReplicaSet, as Kubernetes and kubectl know them:

    deployment.kubernetes.io/revision            the number of its rollout; the newest has the most
    deployment.kubernetes.io/revision-history    the numbers it had before
    deployment.kubernetes.io/desired-replicas    what the Deployment wanted when it was last scaled
    deployment.kubernetes.io/max-replicas        the same with the surge
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from livesize.api.kinds.deployment import DEPLOYMENTS, ROLLING_UPDATE
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.objects import Object, evolve, lookup, name_of, namespace_of, without
from livesize.api.shares import share_of
from livesize.api.workload_resize import TEMPLATE_HASH
from livesize.api.workloads import replicas_of, template_of
from livesize.controllers.kit.hashes import short_hash
from livesize.controllers.kit.owned_pods import min_ready_seconds, owner_reference

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        HISTORY,
        DESIRED,
        MOST,
    }
)
_HISTORY_CHARACTERS = 2000


class Rollout(msgspec.Struct, frozen=True):
    """A Deployment, the ReplicaSet of its template, and the others, oldest first."""

    deployment: Object
    new: Object | None
    old: tuple[Object, ...]

    @property
    def every(self) -> tuple[Object, ...]:
        return self.old if self.new is None else (*self.old, self.new)

    @property
    def active(self) -> list[Object]:
        """Those that are to have pods."""
        return [one for one in self.every if replicas_of(one)]

    @property
    def replicas(self) -> int:
        return replicas_of(self.deployment)

    @property
    def most(self) -> int:
        """So many pods there may be."""
        return self.replicas + max_surge(self.deployment)

    @property
    def least(self) -> int:
        """So many pods have to be available."""
        return self.replicas - max_unavailable(self.deployment)


def make_rollout(deployment: Object, replica_sets: Iterable[Object]) -> Rollout:
    """The oldest ReplicaSet that has the Deployment's template is the new one."""
    ordered = sorted(replica_sets, key=_age)
    template = template_of(deployment)
    new = next((one for one in ordered if has_template(one, template)), None)
    return Rollout(deployment, new, tuple(one for one in ordered if one is not new))


def has_template(replica_set: Object, template: Object) -> bool:
    """Whether it makes the same pods, whatever their hash is."""
    return _without_hash(template_of(replica_set)) == _without_hash(template)


def max_surge(deployment: Object) -> int:
    return _fenceposts(deployment)[0]


def max_unavailable(deployment: Object) -> int:
    return min(_fenceposts(deployment)[1], replicas_of(deployment))


def make_replica_set(deployment: Object) -> Object:
    """One of the Deployment's template, without pods. Its name follows from the template."""
    template = template_of(deployment)
    collisions = lookup(deployment, "status", "collisionCount", default=0)
    label = {TEMPLATE_HASH: short_hash(template, collisions)}
    labels = {**lookup(template, "metadata", "labels", default={}), **label}
    selector = lookup(deployment, "spec", "selector", default={})
    spec = {
        "replicas": 0,
        "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), **label}},
        "template": evolve(template, ("metadata", "labels"), labels),
    }
    seconds = min_ready_seconds(deployment)
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{name_of(deployment)}-{label[TEMPLATE_HASH]}",
            "namespace": namespace_of(deployment),
            "labels": labels,
            "ownerReferences": [owner_reference(DEPLOYMENTS, deployment)],
        },
        "spec": {**spec, "minReadySeconds": seconds} if seconds else spec,
    }


def refreshed(rollout: Rollout, new: Object) -> Object:
    """``new`` with the Deployment's annotations and minReadySeconds, and the highest revision."""
    annotations = annotations_of(new)
    copied = {
        key: value
        for key, value in annotations_of(rollout.deployment).items()
        if key not in _NOT_COPIED
    }
    before = revision_of(new)
    revision = max(map(revision_of, rollout.old), default=0) + 1
    said = {**annotations, **copied}
    if before < revision:
        said[REVISION] = str(revision)
        if REVISION in annotations:
            said[HISTORY] = _longer_history(annotations.get(HISTORY, ""), annotations[REVISION])
    seconds = min_ready_seconds(rollout.deployment)
    if seconds != min_ready_seconds(new):
        new = evolve(new, ("spec", "minReadySeconds"), seconds)
    return new if said == annotations else evolve(new, ("metadata", "annotations"), said)


def sized(rollout: Rollout, replica_set: Object, replicas: int) -> Object:
    """With so many replicas, and with what the Deployment wanted when it got them."""
    wanted = {DESIRED: str(rollout.replicas), MOST: str(rollout.most)}
    said = {**annotations_of(replica_set), **wanted}
    replica_set = evolve(replica_set, ("metadata", "annotations"), said)
    return evolve(replica_set, ("spec", "replicas"), replicas)


def annotations_of(obj: Object) -> Mapping[str, str]:
    annotations: Mapping[str, str] = lookup(obj, "metadata", "annotations", default={})
    return annotations


def revision_of(replica_set: Object) -> int:
    return _number(annotations_of(replica_set).get(REVISION)) or 0


def desired_of(replica_set: Object) -> int | None:
    return _number(annotations_of(replica_set).get(DESIRED))


def most_of(replica_set: Object) -> int | None:
    return _number(annotations_of(replica_set).get(MOST))


def available_of(replica_set: Object) -> int:
    """A ReplicaSet that was just scaled down keeps no more than it is to have, whatever its status
    still says."""
    available = int(lookup(replica_set, "status", "availableReplicas", default=0))
    return min(available, replicas_of(replica_set))


def _fenceposts(deployment: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods: never both 0, or nothing would ever change."""
    strategy = lookup(deployment, "spec", "strategy", default={})
    replicas = replicas_of(deployment)
    if strategy.get("type") != ROLLING_UPDATE or not replicas:
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = share_of(rolling.get("maxSurge", 0), replicas, rounded_up=True)
    missing = share_of(rolling.get("maxUnavailable", 0), replicas, rounded_up=False)
    return surge, missing if surge or missing else 1


def _age(obj: Object) -> tuple[str, str]:
    return lookup(obj, "metadata", "creationTimestamp", default=""), name_of(obj)


def _without_hash(template: Object) -> Object:
    return without(template, ("metadata", "labels", TEMPLATE_HASH))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _longer_history(history: str, revision: str) -> str:
    """The oldest numbers make room for the newest."""
    longer = f"{history},{revision}" if history else revision
    while len(longer) > _HISTORY_CHARACTERS:
        longer = longer.partition(",")[2]
    return longer
