"""Makes and revokes tokens and certificates, as root, in the data directory of an API server.

The server reads the file again within a second. So all of this works while it runs, and just as
well while it does not.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from livesize.api.objects import Object
from livesize.api.roles import Role
from livesize.api.times import format_time
from livesize.api.validation.names import LABEL_LENGTH, DnsRule, name_problems
from livesize.apiserver.auth.certificates import Authority
from livesize.apiserver.auth.identities import Identity, IdentityError, make_identity
from livesize.apiserver.auth.records import (
    CertificateEntry,
    CredentialRecords,
    JoinEntry,
    Revocation,
    TokenEntry,
    TokensUnreadableError,
    change_records,
    read_records,
    revoke_serials,
    without_expired,
)
from livesize.apiserver.auth.tokens import hash_token, issue_token
from livesize.apiserver.tls import CA_DAYS
from livesize.client.kubeconfig import (
    KubeconfigError,
    connection_from,
    write_certificate_kubeconfig,
    write_kubeconfig,
)
from livesize.machinery.data_directory import DataDirectory

Result = TypeVar("Result")
ADMIN = "admin"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LIFETIME = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_NAME_LENGTH = 64
_SERIAL = re.compile(r"[0-9a-fA-F]{16,40}")


class NewCredential(msgspec.Struct, frozen=True):
    """A new secret and whose it is; ``secret`` is shown once."""

    identity: Identity
    secret: str
    expires: float | None


class MadeJoin(msgspec.Struct, frozen=True):
    name: str
    token: str
    ca_hash: str
    server: str
    expires: float
    node: str


def parse_lifetime(text: str) -> float | None:
    """``30d``, ``12h``, ``90m``, ``45s`` in seconds; None for ``never``."""
    if text == "never":
        return None
    found = _LIFETIME.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not a time: use 30d, 12h, 90m, 45s or never", param_hint="--expires"
        )
    return float(int(found[1]) * _UNITS[found[2]])


def parse_identity(name: str, role: str, namespaces: str) -> Identity:
    """What was typed, or one sentence about what is wrong with it."""
    listed = [one.strip() for one in namespaces.split(",") if one.strip()]
    for one in listed:
        if name_problems(one, DnsRule.LABEL):
            raise click.BadParameter(f"{one!r} cannot be a namespace", param_hint="--namespaces")
    try:
        identity = make_identity(name, role, listed)
    except IdentityError as refusal:
        raise click.UsageError(str(refusal)) from None
    if identity.role is Role.NODE and listed:
        raise click.UsageError("a node is not limited to namespaces but to its own pods")
    if identity.role is Role.APISERVER:
        raise click.UsageError(
            "API servers make certificates for themselves: there is none to be given out"
        )
    if identity.role is Role.NODE:
        _check_node_name(identity.node)
    if not 0 < len(identity.name) <= _NAME_LENGTH or not identity.name.isprintable():
        raise click.UsageError(f"NAME must have 1 to {_NAME_LENGTH} printable characters")
    if identity.role is not Role.NODE and identity.name.startswith("system:node:"):
        raise click.UsageError("only a node is called system:node:…; use --role node:NAME")
    return identity


def _check_node_name(node: str) -> None:
    if len(node) > LABEL_LENGTH or name_problems(node, DnsRule.SUBDOMAIN):
        raise click.UsageError(f"{node!r} cannot be the name of a node")


class Credentials:
    """The identities of one data directory."""

    def __init__(self, data_dir: Path, now: float) -> None:
        self._directory = DataDirectory(data_dir.absolute())
        self._now = now

    def create_token(self, identity: Identity, seconds: float | None) -> NewCredential:
        expires = None if seconds is None else self._now + seconds
        token, entry = issue_token(
            identity.name,
            identity.role,
            node=identity.node,
            expires=expires,
            namespaces=identity.namespaces,
        )

        def add(records: CredentialRecords) -> tuple[CredentialRecords, None]:
            if any(one.name == identity.name for one in records.tokens):
                raise click.ClickException(
                    f"there is a token of {identity.name} already: revoke it first with"
                    f" `livesize token revoke {identity.name}`, or choose another name"
                )
            return msgspec.structs.replace(records, tokens=(*records.tokens, entry)), None

        self._change(add)
        return NewCredential(identity, token, expires)

    def create_join(self, node: str, seconds: float, server: str) -> MadeJoin:
        if node:
            _check_node_name(node)
        token = secrets.token_urlsafe(32)
        name = f"join-{secrets.token_hex(3)}"
        expires = self._now + seconds
        entry = JoinEntry(name, hash_token(token), expires, node)
        made = MadeJoin(name, token, self._authority().hash, self.server(server), expires, node)
        self._change(lambda old: (msgspec.structs.replace(old, joins=(*old.joins, entry)), None))
        return made

    def create_certificate(self, identity: Identity, seconds: float) -> tuple[bytes, bytes, float]:
        """Certificate and key, PEM, and when it expires."""
        certificate, key, entry = self._authority().issue(identity, self._now, seconds)

        def add(old: CredentialRecords) -> tuple[CredentialRecords, None]:
            kept = (*old.certificates, entry)
            return msgspec.structs.replace(old, certificates=kept), None

        self._change(add)
        return certificate, key, entry.expires

    def revoke_token(self, name: str) -> None:
        if name == ADMIN:
            raise click.ClickException(
                f"the admin's token is kept by `livesize up`: remove"
                f" {self._directory.kubeconfig} and start it again to have a new one"
            )

        def remove(records: CredentialRecords) -> tuple[CredentialRecords, int]:
            tokens = tuple(one for one in records.tokens if one.name != name)
            joins = tuple(one for one in records.joins if one.name != name)
            removed = len(records.tokens) + len(records.joins) - len(tokens) - len(joins)
            return msgspec.structs.replace(records, tokens=tokens, joins=joins), removed

        if not self._change(remove):
            raise click.ClickException(
                f"there is no token of {name}: `livesize token list` shows those there are"
            )

    def revoke_certificates(self, word: str) -> int:
        """By name, all of them, or by serial number, also one that is not known here: it was given
        out by another API server, or the file that named it is lost."""

        def mark(records: CredentialRecords) -> tuple[CredentialRecords, int]:
            marked = tuple(
                msgspec.structs.replace(one, revoked=True)
                if word in (one.name, one.serial)
                else one
                for one in records.certificates
            )
            changed = sum(a != b for a, b in zip(marked, records.certificates, strict=True))
            return msgspec.structs.replace(records, certificates=marked), changed

        changed = self._change(mark)
        if not changed and _SERIAL.fullmatch(word):
            self._revoke_unknown(word)
            return 1
        if not changed:
            raise click.ClickException(
                f"there is no certificate of {word} to revoke: `livesize cert list` shows those"
                " there are"
            )
        return changed

    def _revoke_unknown(self, serial: str) -> None:
        """For as long as our authority could have signed it for."""
        revoked = Revocation(serial.lower().lstrip("0"), self._now + CA_DAYS * 86400)

        def note(records: CredentialRecords) -> tuple[CredentialRecords, None]:
            revoke_serials(self._directory.tokens, [revoked])
            return records, None

        self._change(note)

    def read(self) -> CredentialRecords:
        """What still counts."""
        path = self._directory.tokens
        try:
            return without_expired(
                read_records(path) if path.exists() else CredentialRecords(), self._now
            )
        except PermissionError as failure:
            raise _not_allowed(failure) from failure
        except TokensUnreadableError as failure:
            raise _unreadable(failure) from failure

    def server(self, given: str) -> str:
        """Where the server is: as told, or as the admin's kubeconfig says."""
        if given:
            return given
        try:
            return connection_from(self._directory.kubeconfig).server
        except KubeconfigError as failure:
            raise click.ClickException(
                f"where is the server? Say it with --server https://HOST:PORT ({failure})"
            ) from failure

    def write_token_kubeconfig(self, path: Path, made: NewCredential, server: str) -> None:
        ca_pem = self._authority().cert_pem
        write_kubeconfig(path, self.server(server), ca_pem, made.secret, made.identity.name)

    def write_certificate_kubeconfig(
        self, path: Path, identity: Identity, pair: tuple[bytes, bytes], server: str
    ) -> None:
        ca_pem, address = self._authority().cert_pem, self.server(server)
        write_certificate_kubeconfig(path, address, ca_pem, pair, identity.name)

    def _authority(self) -> Authority:
        try:
            return Authority(self._directory.tls)
        except PermissionError as failure:
            raise _not_allowed(failure) from failure
        except FileNotFoundError as failure:
            raise click.ClickException(
                f"there is no certificate authority in {self._directory.tls}: start `livesize up`"
                " once, or name its --data-dir"
            ) from failure

    def _change(
        self, change: Callable[[CredentialRecords], tuple[CredentialRecords, Result]]
    ) -> Result:
        def tidy(records: CredentialRecords) -> tuple[CredentialRecords, Result]:
            return change(without_expired(records, self._now))

        try:
            return change_records(self._directory.tokens, tidy)
        except PermissionError as failure:
            raise _not_allowed(failure) from failure
        except FileNotFoundError as failure:
            raise click.ClickException(
                f"{self._directory.control} is not there: start `livesize up` once, or name its"
                " --data-dir"
            ) from failure
        except TokensUnreadableError as failure:
            raise _unreadable(failure) from failure


def token_object(entry: TokenEntry) -> Object:
    return _object(entry.name, entry.role, entry.node, entry.namespaces, entry.expires)


def join_object(entry: JoinEntry) -> Object:
    return _object(entry.name, "join", entry.node, (), entry.expires)


def certificate_object(entry: CertificateEntry) -> Object:
    shown = _object(entry.name, entry.role, entry.node, entry.namespaces, entry.expires)
    return {**shown, "serial": entry.serial, "revoked": entry.revoked}


def identity_object(identity: Identity, expires: float | None) -> Object:
    role, node = identity.role, identity.node
    return _object(identity.name, role, node, identity.namespaces, expires)


def _object(
    name: str, role: str, node: str, namespaces: tuple[str, ...], expires: float | None
) -> Object:
    shown: Object = {"name": name, "role": str(role)}
    if node:
        shown["node"] = node
    if namespaces:
        shown["namespaces"] = list(namespaces)
    return {**shown, "expires": None if expires is None else format_time(expires)}


def _unreadable(failure: TokensUnreadableError) -> click.ClickException:
    if isinstance(failure.__cause__, PermissionError):
        return _not_allowed(failure.__cause__)
    return click.ClickException(str(failure))


def _not_allowed(failure: OSError) -> click.ClickException:
    return click.ClickException(
        f"{failure.filename} may not be read or written by this user: run it with sudo"
    )
