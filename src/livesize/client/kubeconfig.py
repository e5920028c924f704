"""Reads and writes kubeconfig files: where the server is, and who we are to it.

``find_kubeconfig`` says which file counts: the one named, $LIVESIZE_KUBECONFIG, $KUBECONFIG, the
one `livesize up` wrote, of this user or of root, ~/.kube/config. ``connection_from`` turns one
into a ConnectionConfig.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from livesize.api.objects import Object, lookup
from livesize.machinery.data_directory import DEFAULT_DATA_DIR, user_data_dir

if TYPE_CHECKING:
    from livesize.client.http import ConnectionConfig


class KubeconfigError(Exception):
    """The file cannot be used; the sentence says why."""


def candidates(environment: Mapping[str, str], home: Path, given: str = "") -> tuple[Path, ...]:
    """Where a kubeconfig may be, the first that exists counts. One that is named must exist."""
    for named in (given, environment.get("LIVESIZE_KUBECONFIG", "")):
        if named:
            return (Path(named),)
    listed = environment.get("KUBECONFIG", "")
    if listed:
        return tuple(Path(entry) for entry in listed.split(os.pathsep) if entry)
    given_dir = environment.get("LIVESIZE_DATA_DIR", "")
    usual = (user_data_dir(environment, home), Path(DEFAULT_DATA_DIR))
    folders = (Path(given_dir),) if given_dir else usual
    return (*(folder / "kubeconfig" for folder in folders), home / ".kube" / "config")


def find_kubeconfig(given: str = "", environment: Mapping[str, str] | None = None) -> Path:
    """The file that counts. Raises KubeconfigError when there is none."""
    tried = candidates(os.environ if environment is None else environment, Path.home(), given)
    for path in tried:
        with contextlib.suppress(PermissionError):
            if path.exists():
                return path
    names = " nor ".join(str(path) for path in tried)
    raise KubeconfigError(
        f"there is no kubeconfig at {names}: start Livesize with `livesize up`,"
        " or name a file with --kubeconfig"
    )


def load_kubeconfig(path: Path) -> Object:
    try:
        loaded = _parse(path.read_text())
    except PermissionError:
        raise KubeconfigError(
            f"{path} may not be read by this user: use sudo, or a kubeconfig of your own"
        ) from None
    except OSError as failure:
        raise KubeconfigError(f"{path} cannot be read: {failure.strerror}") from failure
    except ValueError as failure:
        raise KubeconfigError(f"{path} is not YAML: {failure}") from failure
    if not isinstance(loaded, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig")
    return loaded


def _parse(text: str) -> Any:
    """Raises ValueError. The files that we write are JSON, which is YAML, too: reading that takes a
    command a tenth less time."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as failure:
        raise ValueError(str(failure)) from failure


def connection_from(path: Path, context: str = "") -> ConnectionConfig:
    """The connection of one context, by default the current one."""
    from livesize.client.http import ConnectionConfig

    config = load_kubeconfig(path)
    name = context or str(lookup(config, "current-context", default=""))
    if not name:
        raise KubeconfigError(f"{path} has no current-context")
    chosen = _named(config, "contexts", "context", name, path)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster", "")), path)
    user_name = str(chosen.get("user", ""))
    user = _named(config, "users", "user", user_name, path) if user_name else {}
    server = str(cluster.get("server", ""))
    if not server:
        raise KubeconfigError(f"{path}: the cluster of context {name!r} has no server")
    return ConnectionConfig(
        server=server,
        ca_pem=_pem(cluster, "certificate-authority", path),
        token=_token(user, path),
        client_certificate_pem=_pem(user, "client-certificate", path),
        client_key_pem=_pem(user, "client-key", path),
        skip_verification=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name", "")),
    )


def namespace_from(path: Path) -> str:
    """The namespace of the current context, or default."""
    config = load_kubeconfig(path)
    name = str(lookup(config, "current-context", default=""))
    chosen = _named(config, "contexts", "context", name, path) if name else {}
    return str(chosen.get("namespace") or "default")


def write_kubeconfig(path: Path, server: str, ca_pem: bytes, token: str, user: str) -> None:
    """Write a kubeconfig with one context, readable by its owner only, all at once."""
    _write(path, server, ca_pem, user, {"token": token})


def write_certificate_kubeconfig(
    path: Path, server: str, ca_pem: bytes, pair: tuple[bytes, bytes], user: str
) -> None:
    """The same for a user with a client certificate; ``pair`` is certificate and key, PEM."""
    certificate, key = (base64.b64encode(pem).decode() for pem in pair)
    credentials = {"client-certificate-data": certificate, "client-key-data": key}
    _write(path, server, ca_pem, user, credentials)


def _write(path: Path, server: str, ca_pem: bytes, user: str, credentials: Object) -> None:
    cluster: Object = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "livesize", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "livesize", "context": {"cluster": "livesize", "user": user}}],
        "current-context": "livesize",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    # Made with its final rights: at no time can anybody else open it.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(orjson.dumps(config, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _named(config: Object, group: str, inner: str, name: str, path: Path) -> Object:
    entries: Sequence[Any] = lookup(config, group, default=[])
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(inner)
            return found if isinstance(found, dict) else {}
    raise KubeconfigError(f"{path} has no {inner} named {name!r}")


def _pem(section: Object, field: str, path: Path) -> bytes:
    """Inline data wins over a file, as in kubectl; files are relative to the kubeconfig."""
    inline = section.get(f"{field}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise KubeconfigError(f"{path}: {field}-data is not base64") from None
    return _file(section.get(field), path)


def _token(user: Object, path: Path) -> str:
    if user.get("exec") and not user.get("token"):
        raise KubeconfigError(
            f"{path}: credentials from a program (exec) are not supported; use a token or a"
            " client certificate"
        )
    return str(user.get("token") or "") or _file(user.get("tokenFile"), path).decode().strip()


def _file(named: Any, path: Path) -> bytes:
    if not named:
        return b""
    file = path.parent / str(named)
    try:
        return file.read_bytes()
    except OSError as failure:
        raise KubeconfigError(
            f"{path} names {file}, which cannot be read: {failure.strerror}"
        ) from failure
