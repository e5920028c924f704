"""Turns the volumes of a pod into what the machine is to have, and mounts of a container. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from livesize.agent.volumes.claims import claimed_volume
from livesize.agent.volumes.environment import (
    CONFIG_MAPS,
    SECRETS,
    ReferenceContext,
    contents,
    expand,
    own_resource,
)
from livesize.agent.volumes.fields import field_value
from livesize.agent.volumes.sources import ContainerConfigError, require
from livesize.api.objects import Object, lookup
from livesize.api.quantity import memory_bytes
from livesize.runtime.volumes.interface import (
    EmptyFolder,
    FileTree,
    HostPath,
    MemoryFolder,
    PodVolume,
    VolumeFile,
)

KINDS = (
    "emptyDir",
    "hostPath",
    "configMap",
    "secret",
    "downwardAPI",
    "projected",
    "persistentVolumeClaim",
)
_MODE = 0o644


def volumes_of(pod: Object) -> dict[str, Object]:
    return {volume["name"]: volume for volume in lookup(pod, "spec", "volumes", default=[])}


def kind_of(volume: Object) -> str:
    """Empty for one this node does not know. A volume that says nothing is an emptyDir."""
    given = [key for key in volume if key != "name"]
    if not given:
        return "emptyDir"
    return given[0] if len(given) == 1 and given[0] in KINDS else ""


def mounts_of(container: Object) -> list[Object]:
    """One within another comes after it."""
    mounts: list[Object] = container.get("volumeMounts") or []
    return sorted(mounts, key=lambda one: len(PurePosixPath(one["mountPath"]).parts))


def is_in_memory(volume: Object) -> bool:
    return bool(lookup(volume, "emptyDir", "medium") == "Memory")


def follows_the_pod(volume: Object) -> bool:
    """Its size is the pod's memory, and changes with it (IBM, "Memory-resizing on memory-backed
    storage")."""
    return is_in_memory(volume) and lookup(volume, "emptyDir", "sizeLimit") is None


def memory_size(volume: Object, pod_limit_bytes: int | None, node_bytes: int) -> int:
    """What it says; else all of the pod's memory; where that has no limit, half the machine's,
    as the kernel itself would have it."""
    limit = lookup(volume, "emptyDir", "sizeLimit")
    if limit is not None:
        return memory_bytes(limit)
    return node_bytes // 2 if pod_limit_bytes is None else pod_limit_bytes


def disk_limits(pod: Object) -> dict[str, str]:
    """Volumes on disk that may not hold more than so much."""
    limits = {
        name: lookup(volume, "emptyDir", "sizeLimit")
        for name, volume in volumes_of(pod).items()
        if not is_in_memory(volume)
    }
    return {name: str(limit) for name, limit in limits.items() if limit is not None}


def wanted_volume(
    volume: Object, references: ReferenceContext, memory_size_bytes: int
) -> PodVolume:
    """``memory_size_bytes`` counts where the volume lies in memory."""
    name, group = volume["name"], lookup(references.pod, "spec", "securityContext", "fsGroup")
    match kind_of(volume):
        case "emptyDir" if is_in_memory(volume):
            return MemoryFolder(name, memory_size_bytes, group)
        case "emptyDir":
            return EmptyFolder(name, group)
        case "hostPath":
            source = volume["hostPath"]
            return HostPath(name, source["path"], source.get("type") or "")
        case "persistentVolumeClaim":
            return claimed_volume(volume, references.pod, references.sources, references.folders)
        case "projected":
            projected = volume["projected"]
            mode = projected.get("defaultMode", _MODE)
            sources = projected.get("sources") or []
            files = [file for one in sources for file in _files(one, mode, references)]
            secret = any(one.get("secret") for one in sources)
            return FileTree(name, _unique(files), group, secret=secret)
        case "":
            raise ContainerConfigError(f"volume {name}: this node knows only {', '.join(KINDS)}")
        case kind:
            mode = lookup(volume, kind, "defaultMode", default=_MODE)
            files = list(_files(volume, mode, references))
            return FileTree(name, _unique(files), group, secret=kind == "secret")


def mount_path(mount: Object, key: str, variables: dict[str, str]) -> str:
    """subPath, or subPathExpr with variables; empty for the whole volume."""
    path = mount.get(key) or expand(mount.get(f"{key}Expr") or "", variables)
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        raise ContainerConfigError(f"{key} {path!r} must be relative and stay within the volume")
    return str(path)


def _files(source: Object, mode: int, references: ReferenceContext) -> Iterator[VolumeFile]:
    """Of a volume, or of one source of a projected volume: both name their kinds alike."""
    if source.get("configMap"):
        yield from _object_files(source["configMap"], CONFIG_MAPS, mode, references)
    if source.get("secret"):
        yield from _object_files(source["secret"], SECRETS, mode, references)
    for item in lookup(source, "downwardAPI", "items", default=[]):
        yield _own_file(item, mode, references)


def _object_files(
    reference: Object, plural: str, mode: int, references: ReferenceContext
) -> Iterator[VolumeFile]:
    name = str(reference.get("secretName") or reference.get("name") or "")
    optional = bool(reference.get("optional"))
    obj = require(references.sources, plural, name, optional=optional)
    held = {} if obj is None else contents(obj, plural)
    items = reference.get("items") or [{"key": key, "path": key} for key in sorted(held)]
    for item in items:
        if item["key"] in held:
            yield VolumeFile(_relative(item["path"]), held[item["key"]], item.get("mode", mode))
        elif not optional:
            raise ContainerConfigError(
                f"couldn't find key {item['key']} in {plural[:-1]} {name}: add it"
            )


def _own_file(item: Object, mode: int, references: ReferenceContext) -> VolumeFile:
    if item.get("resourceFieldRef"):
        text = own_resource(item["resourceFieldRef"], "", references)
    else:
        text = field_value(references.pod, lookup(item, "fieldRef", "fieldPath", default=""))
    return VolumeFile(_relative(item["path"]), text.encode(), item.get("mode", mode))


def _relative(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise ContainerConfigError(f"path {path!r} must be relative and stay within the volume")
    return path


def _unique(files: Iterable[VolumeFile]) -> tuple[VolumeFile, ...]:
    """Of two files with one path the later counts."""
    return tuple({file.path: file for file in files}.values())
