"""Has a container's image on the machine before it starts, as its imagePullPolicy says."""

from __future__ import annotations

from livesize.agent.outside import Outside
from livesize.api.errors import StatusError
from livesize.api.kinds.secret import SECRETS
from livesize.api.objects import Object, lookup, namespace_of
from livesize.api.pull_secrets import logins_for
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerView,
    ImageMissingError,
    RegistryLogin,
)

log = get_logger("agent.pods")

_NOT_FOUND = 404


async def start_with_image(
    outside: Outside, pod: Object, container: Object, config: ContainerConfig
) -> ContainerView:
    """Start it. The image is pulled first for Always, and where it is missing for IfNotPresent."""
    policy = container.get("imagePullPolicy", "IfNotPresent")
    if config.vm is not None or policy == "Never":
        return await outside.start_container(config)
    if policy == "Always":
        await _pull(outside, pod, config.image)
        return await outside.start_container(config)
    try:
        return await outside.start_container(config)
    except ImageMissingError:
        await _pull(outside, pod, config.image)
    return await outside.start_container(config)


async def _pull(outside: Outside, pod: Object, image: str) -> None:
    secrets = [
        secret
        for reference in lookup(pod, "spec", "imagePullSecrets", default=[])
        if (secret := await _secret(outside, pod, str(reference.get("name", "")))) is not None
    ]
    logins = tuple(
        RegistryLogin(
            server_address=login.server,
            username=login.username,
            password=login.password,
            auth=login.auth,
            identity_token=login.identity_token,
            registry_token=login.registry_token,
        )
        for login in logins_for(image, secrets)
    )
    await outside.runtime.pull_image(image, logins)


async def _secret(outside: Outside, pod: Object, name: str) -> Object | None:
    """None: there is none. As in Kubernetes, the pull is tried without it."""
    if not name:
        return None
    try:
        return await outside.client.get(SECRETS, name, namespace_of(pod))
    except StatusError as refusal:
        if refusal.code != _NOT_FOUND:
            raise
        log.warning("a pull secret is missing", secret=name, namespace=namespace_of(pod))
        return None
