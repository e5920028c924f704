"""The objects outside a pod that its start depends on, and how they are asked for.

A node may read only the ConfigMaps and Secrets that its own pods use, one by one; so they are
fetched when a container starts, and again now and then while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from livesize.api.errors import StatusError
from livesize.api.kinds import CONFIG_MAPS, SECRETS
from livesize.api.objects import Object, namespace_of
from livesize.api.pod_references import references_of
from livesize.client.interface import Client
from livesize.runtime.interface import RuntimeCallError

_NOT_FOUND = 404
_RESOURCES = {resource.plural: resource for resource in (CONFIG_MAPS, SECRETS)}

Sources: TypeAlias = Mapping[tuple[str, str], Object]
"""(plural, name) to the object; what does not exist is not in it."""


class ConfigError(RuntimeCallError):
    """The container cannot start as its pod describes it; the sentence says what is missing."""


async def fetch_sources(client: Client, pod: Object) -> dict[tuple[str, str], Object]:
    """Every ConfigMap and Secret the pod uses, apart from those for pulling images."""
    spec = {key: value for key, value in pod["spec"].items() if key != "imagePullSecrets"}
    found = {}
    for plural, name in sorted(references_of({**pod, "spec": spec})):
        try:
            found[plural, name] = await client.get(_RESOURCES[plural], name, namespace_of(pod))
        except StatusError as refusal:
            if refusal.code != _NOT_FOUND:
                raise
    return found


def require(sources: Sources, plural: str, name: str, *, optional: bool) -> Object | None:
    """The object; None where it may be missing and is. ConfigError where it may not."""
    found = sources.get((plural, name))
    if found is None and not optional:
        word = "configmap" if plural == CONFIG_MAPS.plural else "secret"
        raise ConfigError(f'{word} "{name}" not found: make it, and the container starts')
    return found
