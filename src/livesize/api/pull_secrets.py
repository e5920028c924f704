"""Reads the logins of registries from the Secrets that a pod names in imagePullSecrets. Pure.

Two shapes, as Kubernetes has them: kubernetes.io/dockerconfigjson, and the older
kubernetes.io/dockercfg without the outer "auths". What cannot be read is left out: the pull then
fails, or not, as it would without it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from livesize.api.objects import Object

_DEFAULT_REGISTRY = "docker.io"
_ALIASES = {"index.docker.io": _DEFAULT_REGISTRY, "registry-1.docker.io": _DEFAULT_REGISTRY}


class PullLogin(msgspec.Struct, frozen=True):
    """How to enter one registry; what is empty is not used."""

    server: str
    username: str = ""
    password: str = ""
    auth: str = ""
    identity_token: str = ""
    registry_token: str = ""


def registry_of(image: str) -> str:
    """The host, with its port, that an image of this name comes from."""
    first, slash, _ = image.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return _ALIASES.get(first, first) if named else _DEFAULT_REGISTRY


def logins_for(image: str, secrets: Iterable[Object]) -> tuple[PullLogin, ...]:
    """Those for the image's registry; the longest path first, as it says most."""
    registry = registry_of(image)
    fitting = [
        (len(path), login)
        for secret in secrets
        for host, path, login in _logins(secret)
        if host == registry and _is_below(image, path)
    ]
    fitting.sort(key=lambda pair: -pair[0])
    return tuple(dict.fromkeys(login for _, login in fitting))


def _logins(secret: Object) -> Iterator[tuple[str, str, PullLogin]]:
    """Host, path on it, and login of each entry."""
    for server, entry in _entries(secret).items():
        if not isinstance(entry, dict):
            continue
        host, _, path = server.partition("://")[2 if "://" in server else 0].partition("/")
        login = PullLogin(
            server=server,
            username=_text(entry, "username"),
            password=_text(entry, "password"),
            auth=_text(entry, "auth"),
            identity_token=_text(entry, "identitytoken"),
            registry_token=_text(entry, "registrytoken"),
        )
        yield _ALIASES.get(host, host), _repository_path(path), login


def _entries(secret: Object) -> dict[str, Any]:
    content = secret.get("data") or {}
    document = _document(content.get(".dockerconfigjson"))
    entries = document.get("auths") if document else _document(content.get(".dockercfg"))
    return entries if isinstance(entries, dict) else {}


def _document(encoded: Any) -> dict[str, Any]:
    try:
        document = json.loads(base64.b64decode(str(encoded or ""), validate=True))
    except (ValueError, binascii.Error):
        return {}
    return document if isinstance(document, dict) else {}


def _repository_path(path: str) -> str:
    """Of an entry like registry/team; the old /v1/ and /v2/ say nothing about repositories."""
    path = path.strip("/")
    return "" if path in ("v1", "v2") else path


def _is_below(image: str, path: str) -> bool:
    repository = image.partition("/")[2]
    return not path or repository == path or repository.startswith(f"{path}/")


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
