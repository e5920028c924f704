"""The objects outside a pod that its start depends on, and how they are asked for.

A node may read only the ConfigMaps, Secrets and claims that its own pods use, one by one; so they
are fetched when a container starts, and again now and then while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from livesize.api.errors import StatusError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.secret import SECRETS
from livesize.api.objects import Object, lookup, namespace_of
from livesize.api.pod_references import references_of
from livesize.api.storage import volume_name
from livesize.client.interface import Client
from livesize.runtime.interface import RuntimeCallError

_NOT_FOUND = 404
_RESOURCES = {
    resource.plural: resource for resource in (CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS)
}

Sources: TypeAlias = Mapping[tuple[str, str], Object]
"""(plural, name) to the object; what does not exist is not in it."""


class ConfigError(RuntimeCallError):
    """The container cannot start as its pod describes it; the sentence says what is missing."""


async def fetch_sources(client: Client, pod: Object) -> dict[tuple[str, str], Object]:
    """Every ConfigMap and Secret the pod uses, apart from those for pulling images; its claims,
    and with them their volumes and the node, which volumes select by its labels."""
    spec = {key: value for key, value in pod["spec"].items() if key != "imagePullSecrets"}
    found: dict[tuple[str, str], Object] = {}
    for plural, name in sorted(references_of({**pod, "spec": spec})):
        await _fetch(client, _RESOURCES[plural], name, namespace_of(pod), found)
    claims = [
        one for (plural, _), one in found.items() if plural == PERSISTENT_VOLUME_CLAIMS.plural
    ]
    for claim in claims:
        if volume_name(claim):
            await _fetch(client, PERSISTENT_VOLUMES, volume_name(claim), "", found)
    if claims:
        await _fetch(client, NODES, lookup(pod, "spec", "nodeName", default=""), "", found)
    return found


async def _fetch(
    client: Client,
    resource: Resource,
    name: str,
    namespace: str,
    found: dict[tuple[str, str], Object],
) -> None:
    try:
        found[resource.plural, name] = await client.get(resource, name, namespace)
    except StatusError as refusal:
        if refusal.code != _NOT_FOUND:
            raise


def require(sources: Sources, plural: str, name: str, *, optional: bool) -> Object | None:
    """The object; None where it may be missing and is. ConfigError where it may not."""
    found = sources.get((plural, name))
    if found is None and not optional:
        word = "configmap" if plural == CONFIG_MAPS.plural else "secret"
        raise ConfigError(f'{word} "{name}" not found: make it, and the container starts')
    return found
