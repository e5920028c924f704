"""Checks and prepares an API server before it starts: its options, and the admin's credentials.

``check_api_server`` refuses what cannot work before anything is touched; ``write_credentials``
makes the admin's token and kubeconfig. wiring/apiserver.py starts the server.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from livesize.api.roles import Role
from livesize.apiserver.auth.records import (
    CredentialRecords,
    TokenEntry,
    TokensUnreadableError,
    change_records,
    read_records,
    without_expired,
)
from livesize.apiserver.auth.tokens import hash_token
from livesize.apiserver.tls import TlsFiles
from livesize.client.kubeconfig import KubeconfigError, connection_from, write_kubeconfig
from livesize.machinery.data_directory import DataDirectory
from livesize.main.settings.table import listed
from livesize.main.wiring.accounts import Account
from livesize.main.wiring.apiserver import ApiServerSettings
from livesize.main.wiring.folders import give_to, may_write
from livesize.main.wiring.stores import StoreChoice, read_etcd_settings
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreOpenError

SHOWN = 3


class ApiServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """As the options say it."""

    data_dir: Path
    listen: str
    tls_names: str = ""
    http: str = "uvicorn"
    store: str = "sqlite"
    etcd_endpoints: str = ""
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""
    trust_editors: bool = False
    stop_delay: float = 0.0
    audit_log: str = ""
    audit_level: str = "metadata"
    log_level: str = "info"
    log_format: str = "text"

    def apiserver_settings(self) -> ApiServerSettings:
        """What they mean; files by names that are good wherever the process goes."""
        names = (self.etcd_ca, self.etcd_cert, self.etcd_key)
        files = (str(Path(name).absolute()) if name else "" for name in names)
        return ApiServerSettings(
            http=self.http,
            audit_log=self.audit_log,
            audit_level=self.audit_level,
            tls_names=listed(self.tls_names),
            trust_editors=self.trust_editors,
            stop_delay_seconds=self.stop_delay,
            store=StoreChoice(self.store, self.etcd_endpoints, *files),
        )


def check_api_server(settings: ApiServerSettings, tokens: Path, now: float) -> None:
    """Raises ClickException for what would fail again and again."""
    etcd_settings(settings)
    check_http(settings.http, tokens, now)


def etcd_settings(settings: ApiServerSettings) -> EtcdSettings | None:
    """With the keys, which only root may be able to read. None: the store is a file."""
    if not settings.shares_store:
        return None
    try:
        return read_etcd_settings(settings.store)
    except StoreOpenError as refusal:
        raise click.ClickException(str(refusal)) from refusal


def prepare_audit_log(text: str, account: Account | None) -> str:
    """The file's absolute path, in a folder that the control plane can write to: it begins new
    files there. A folder that is there already stays whose it is."""
    if not text:
        return ""
    path = Path(text).absolute()
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            if account is not None:
                give_to(path.parent, account)
        writable = account is None or may_write(path.parent, account)
    except OSError as failure:
        raise click.BadParameter(
            f"{path.parent} cannot be made: {failure.strerror}", param_hint="--audit-log"
        ) from failure
    if not writable or not os.access(path.parent, os.W_OK) or path.is_dir():
        user = account.name if account is not None else "this user"
        raise click.BadParameter(
            f"{path} cannot be written by {user}: choose a file in a folder of its own",
            param_hint="--audit-log",
        )
    return str(path)


def write_credentials(
    directory: DataDirectory, account: Account | None, server: str, tls: TlsFiles
) -> None:
    """The admin's token and kubeconfig. It outlives restarts, with every token made by hand."""
    admin = _admin_token(directory) or secrets.token_urlsafe(32)
    keep_tokens(directory, [TokenEntry("admin", Role.ADMIN, hash_token(admin))])
    if account is not None:
        give_to(directory.control, account)
    ca = tls.ca_cert.read_bytes()
    write_kubeconfig(directory.kubeconfig, server, ca, admin, "admin")


def keep_tokens(directory: DataDirectory, ours: Sequence[TokenEntry]) -> None:
    """These entries, in place of those of the same names; all others stay."""
    names = {entry.name for entry in ours}

    def renew(records: CredentialRecords) -> tuple[CredentialRecords, None]:
        kept = [entry for entry in records.tokens if entry.name not in names]
        return msgspec.structs.replace(records, tokens=(*ours, *kept)), None

    change_records(directory.tokens, renew)


def _admin_token(directory: DataDirectory) -> str:
    with contextlib.suppress(KubeconfigError):
        return connection_from(directory.kubeconfig).token
    return ""


def check_http(http: str, tokens: Path, now: float) -> None:
    """Raise where the web server is missing, or could not let in everybody who may come in.

    granian speaks HTTP/2 and does not show the application who has proven to be whom by a client
    certificate. So it is not started where a client has one that is still good, or may get one.
    """
    if http != "granian":
        return
    if importlib.util.find_spec("granian") is None:
        raise click.ClickException(
            "--http granian needs the extra: pip install 'livesize[h2]', or leave --http out"
        )
    locked_out = _by_certificate(tokens, now)
    if locked_out:
        more = "" if len(locked_out) <= SHOWN else f" and {len(locked_out) - SHOWN} more"
        raise click.ClickException(
            "--http granian cannot see client certificates, and some come in by one:"
            f" {', '.join(locked_out[:SHOWN])}{more}; leave --http out, or give them tokens"
            " (`livesize token create`) and revoke what they have (`livesize cert revoke NAME`,"
            " `livesize token revoke NAME`)"
        )


def _by_certificate(tokens: Path, now: float) -> list[str]:
    """Who has a good certificate, and join tokens, which become one."""
    try:
        records = without_expired(
            read_records(tokens) if tokens.exists() else CredentialRecords(), now
        )
    except TokensUnreadableError as failure:
        raise click.ClickException(str(failure)) from failure
    certified = {one.name for one in records.certificates if not one.revoked}
    return sorted(certified) + sorted(one.name for one in records.joins)
