"""Finds what of a pod this node would silently leave undone. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from livesize.agent.probes.plan import FIELDS
from livesize.agent.volumes.conversion import KINDS, kind_of
from livesize.agent.volumes.fields import FIELD_PATHS, knows_field, knows_resource
from livesize.api.objects import Object, lookup
from livesize.api.runtime_features import NO_FEATURES, RuntimeFeatures

_PROJECTED = ("configMap", "secret", "downwardAPI")
_HOST_KINDS = (
    "",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
_PROFILES = ("RuntimeDefault", "Unconfined")
_KEY_REFERENCES = ("configMapKeyRef", "secretKeyRef")


# What a namespace of its own keeps from others; everything else is the machine's.
_OF_IPC = re.compile(r"kernel\.(shm.*|msg.*|sem)|fs\.mqueue\..*")
_OF_NETWORK = re.compile(r"net\..*")


def unsupported_field(pod: Object, features: RuntimeFeatures = NO_FEATURES) -> str:
    """What it is and what to do instead, as a sentence; or nothing."""
    spec = pod.get("spec") or {}
    return next(itertools.chain(_problems(spec), _beyond_features(spec, features)), "")


def _beyond_features(spec: Object, features: RuntimeFeatures) -> Iterator[str]:
    """What not every runtime can do."""
    on_host = bool(spec.get("hostNetwork")) or not features.own_network
    for index, setting in enumerate(lookup(spec, "securityContext", "sysctls", default=[])):
        where = f"spec.securityContext.sysctls[{index}]"
        yield from _sysctl_problems(setting["name"].replace("/", "."), where, features, on_host)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            where = f"spec.{field}[{index}]"
            if lookup(container, "securityContext", "privileged") and not features.privileged:
                yield (
                    f"{where}.securityContext.privileged: this node's runtime keeps every container"
                    " within its bounds; run the node with --runtime containerd, or leave it out"
                )
            if not on_host and any(port.get("hostPort") for port in container.get("ports") or []):
                yield (
                    f"{where}.ports: this node maps no ports; set hostNetwork: true, or leave"
                    " hostPort out"
                )


def _sysctl_problems(
    name: str, where: str, features: RuntimeFeatures, on_host: bool
) -> Iterator[str]:
    if not features.sysctls:
        yield (
            f"{where}: this node's runtime sets no kernel settings; run the node with --runtime"
            " containerd, or leave it out"
        )
    elif _OF_NETWORK.fullmatch(name) and on_host:
        yield f"{where}: {name} would be the node's own, as the pod is on the node's network"
    elif not _OF_NETWORK.fullmatch(name) and not _OF_IPC.fullmatch(name):
        yield f"{where}: {name} is not a pod's own, and would change the whole node; leave it out"


def _problems(spec: Object) -> Iterator[str]:
    if spec.get("ephemeralContainers"):
        yield (
            "spec.ephemeralContainers: not run by this node; leave the field out, and look into"
            " its containers with exec"
        )
    yield from _profile_problems(spec, "spec")
    for index, volume in enumerate(spec.get("volumes") or []):
        yield from _volume_problems(volume, f"spec.volumes[{index}]")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            yield from _container_problems(container, f"spec.{field}[{index}]")


def _profile_problems(holder: Object, where: str) -> Iterator[str]:
    kind = lookup(holder, "securityContext", "seccompProfile", "type")
    if kind not in (None, *_PROFILES):
        yield (
            f"{where}.securityContext.seccompProfile.type: {kind} is not known to this node; use"
            f" {' or '.join(_PROFILES)}"
        )


def _container_problems(container: Object, where: str) -> Iterator[str]:
    yield from _profile_problems(container, where)
    for field in FIELDS.values():
        if lookup(container, field, "grpc") is not None:
            yield f"{where}.{field}.grpc: not known to this node; use exec, httpGet or tcpSocket"
    for index, variable in enumerate(container.get("env") or []):
        source = variable.get("valueFrom")
        if source:
            yield from _reference_problems(source, f"{where}.env[{index}].valueFrom", whole=False)


def _reference_problems(source: Object, where: str, *, whole: bool) -> Iterator[str]:
    """fieldRef and resourceFieldRef, in variables and in files."""
    path = lookup(source, "fieldRef", "fieldPath")
    resource = lookup(source, "resourceFieldRef", "resource")
    if path is not None:
        if not knows_field(path, whole=whole):
            known = f"{', '.join(FIELD_PATHS)}, and single labels and annotations"
            yield f"{where}.fieldRef: this node knows only {known}"
    elif resource is not None:
        if not knows_resource(resource):
            known = "cpu and memory of requests and limits"
            yield f"{where}.resourceFieldRef: this node knows only {known}"
    elif whole or not any(source.get(field) for field in _KEY_REFERENCES):
        yield f"{where}: this node does not know where to take the value from"


def _volume_problems(volume: Object, where: str) -> Iterator[str]:
    kind = kind_of(volume)
    if not kind:
        given = ", ".join(sorted(volume.keys() - {"name"}))
        yield f"{where}: this node knows only {', '.join(KINDS)}, and this is {given}"
    medium = lookup(volume, "emptyDir", "medium", default="")
    if medium not in ("", "Memory"):
        yield f"{where}.emptyDir.medium: this node knows only Memory, and the disk"
    host_kind = lookup(volume, "hostPath", "type", default="")
    if host_kind not in _HOST_KINDS:
        yield f"{where}.hostPath.type: this node does not know {host_kind!r}"
    yield from _item_problems(volume, where)
    for index, source in enumerate(lookup(volume, "projected", "sources", default=[])):
        there = f"{where}.projected.sources[{index}]"
        unknown = sorted(source.keys() - set(_PROJECTED))
        if unknown:
            yield f"{there}.{unknown[0]}: this node knows only {', '.join(_PROJECTED)}"
        yield from _item_problems(source, there)


def _item_problems(source: Object, where: str) -> Iterator[str]:
    for index, item in enumerate(lookup(source, "downwardAPI", "items", default=[])):
        yield from _reference_problems(item, f"{where}.downwardAPI.items[{index}]", whole=True)
