"""Which Secrets, ConfigMaps and claims a pod uses: in volumes, environments, for pulling images.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from livesize.api.objects import Object, lookup

SECRETS = "secrets"
CONFIG_MAPS = "configmaps"
CLAIMS = "persistentvolumeclaims"
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def references_of(pod: Object) -> frozenset[tuple[str, str]]:
    """(plural, name) of each; they lie in the pod's own namespace."""
    spec = lookup(pod, "spec", default={})
    found = {*_of_volumes(spec), *_of_environments(spec)}
    found |= {(SECRETS, one.get("name")) for one in _objects(spec, "imagePullSecrets")}
    return frozenset((plural, name) for plural, name in found if isinstance(name, str) and name)


def _of_volumes(spec: Object) -> Iterator[tuple[str, Any]]:
    for volume in _objects(spec, "volumes"):
        yield SECRETS, lookup(volume, "secret", "secretName")
        yield CONFIG_MAPS, lookup(volume, "configMap", "name")
        yield CLAIMS, lookup(volume, "persistentVolumeClaim", "claimName")
        for source in _objects(volume.get("projected"), "sources"):
            yield SECRETS, lookup(source, "secret", "name")
            yield CONFIG_MAPS, lookup(source, "configMap", "name")


def _of_environments(spec: Object) -> Iterator[tuple[str, Any]]:
    containers = [one for field in _CONTAINERS for one in _objects(spec, field)]
    for container in containers:
        for variable in _objects(container, "env"):
            yield SECRETS, lookup(variable, "valueFrom", "secretKeyRef", "name")
            yield CONFIG_MAPS, lookup(variable, "valueFrom", "configMapKeyRef", "name")
        for source in _objects(container, "envFrom"):
            yield SECRETS, lookup(source, "secretRef", "name")
            yield CONFIG_MAPS, lookup(source, "configMapRef", "name")


def _objects(owner: Any, field: str) -> Sequence[Object]:
    listed = owner.get(field) if isinstance(owner, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
