"""The volumes that a pod's claims have: read, waited for, and turned into what the machine gives.

A node may read only the claims its own pods use, and the volumes of these; so they are fetched like
ConfigMaps, when a container starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing, suppress

from livesize.agent.volumes.sources import ConfigError, Sources
from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, lookup, name_of, namespace_of, version_of
from livesize.api.storage import (
    ClaimPhase,
    VolumeMode,
    claims_of,
    is_bound_to,
    is_going,
    is_ours,
    mode_of,
    volume_name,
)
from livesize.api.volume_choice import NodeFacts, reaches
from livesize.client.interface import Client
from livesize.runtime.volumes.interface import ClaimFolder, HostPath

CLAIMS, VOLUMES = PERSISTENT_VOLUME_CLAIMS.plural, PERSISTENT_VOLUMES.plural


def unbound_claims(pod: Object, sources: Sources) -> list[Object]:
    """Those that are there and may get a volume any moment."""
    found = [sources.get((CLAIMS, name)) for name in claims_of(pod)]
    return [one for one in found if one is not None and not _has_volume(one) and not is_going(one)]


async def wait_until_bound(client: Client, claims: Iterable[Object], seconds: float) -> None:
    """Until all have a volume or are gone, or the time is over: whoever asks looks again."""
    with suppress(TimeoutError, StatusError):
        async with asyncio.timeout(seconds):
            for claim in claims:
                await _until_bound(client, claim)


async def _until_bound(client: Client, claim: Object) -> None:
    selection = Selection(namespace_of(claim), fields=f"metadata.name={name_of(claim)}")
    stream = client.watch(PERSISTENT_VOLUME_CLAIMS, selection, resource_version=version_of(claim))
    async with aclosing(stream):
        async for event in stream:
            if event.type is WatchEventType.DELETED or _has_volume(event.object):
                return


def claimed_volume(
    volume: Object, pod: Object, sources: Sources, folders: str
) -> HostPath | ClaimFolder:
    """What the claim of a pod's ``volume`` stands for; ``folders``: where this machine keeps them.
    ConfigError: there is nothing yet, or not here; the sentence says what to do."""
    name = str(lookup(volume, "persistentVolumeClaim", "claimName", default=""))
    claim = sources.get((CLAIMS, name))
    if claim is None:
        raise ConfigError(f'persistentvolumeclaim "{name}" not found: make it')
    if _is_too_late(pod, claim):
        raise ConfigError(f'persistentvolumeclaim "{name}" is being deleted: make it again')
    if not _has_volume(claim):
        raise ConfigError(
            f'persistentvolumeclaim "{name}" is {lookup(claim, "status", "phase")}, not bound to a'
            " volume yet: its events say why"
        )
    found = sources.get((VOLUMES, volume_name(claim)))
    if found is None or not is_bound_to(claim, found):
        raise ConfigError(f'persistentvolumeclaim "{name}": volume {volume_name(claim)} is gone')
    _check_here(found, pod, sources)
    group = lookup(pod, "spec", "securityContext", "fsGroup")
    return _on_machine(volume["name"], found, group, folders)


def _is_too_late(pod: Object, claim: Object) -> bool:
    """The claim stays for pods that were there before its deletion, also when they restart."""
    made, deleted = pod["metadata"].get("creationTimestamp"), ("metadata", "deletionTimestamp")
    return is_going(claim) and str(made or "") > str(lookup(claim, *deleted))


def _has_volume(claim: Object) -> bool:
    return bool(lookup(claim, "status", "phase") == ClaimPhase.BOUND)


def _check_here(found: Object, pod: Object, sources: Sources) -> None:
    name = str(lookup(pod, "spec", "nodeName", default=""))
    node = sources.get((NODES.plural, name), {})
    if not reaches(found, NodeFacts(name, lookup(node, "metadata", "labels", default={}))):
        raise ConfigError(
            f"volume {name_of(found)} is on another node than {name}: leave spec.nodeName to the"
            " scheduler"
        )
    if mode_of(found) != VolumeMode.FILES:
        raise ConfigError(f"volume {name_of(found)}: this node has no volumeMode {mode_of(found)}")


def _on_machine(
    name: str, found: Object, group: int | None, folders: str
) -> HostPath | ClaimFolder:
    path = str(lookup(found, "spec", "local", "path", default=""))
    if is_ours(found):
        if path != f"{folders}/{name_of(found)}":
            raise ConfigError(
                f"volume {name_of(found)} lies at {path}, and this node has {folders}"
            )
        return ClaimFolder(name, name_of(found), group)
    if path:
        return HostPath(name, path, "Directory")
    source = lookup(found, "spec", "hostPath", default={})
    return HostPath(name, source.get("path", ""), source.get("type") or "")
