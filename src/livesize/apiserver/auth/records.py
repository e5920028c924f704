"""The one file that says who may come in: hashed tokens, join tokens, certificates we have given.

JSON, readable by its owner only, replaced at one stroke. Whoever changes it holds the lock beside
it (``change_records``): `livesize token`, `livesize cert` and a server that lets a node join may
do so at the same time. Each entry binds an identity to a role and, for editors and viewers, to
namespaces; nothing in it lets anybody in who does not hold the secret itself. A field that is not
known is refused: a limit that was mistyped must not become a right.

Serials of revoked certificates also stand in a file of their own beside it, revoked.json, which is
only ever added to: who removes the one to begin anew does not bring revoked certificates back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity

Result = TypeVar("Result")


class TokenEntry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    role: Role
    hash: str  # SHA-256, hexadecimal
    node: str = ""
    expires: float | None = None  # seconds since the epoch
    namespaces: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.role, self.node, self.namespaces)

    def check(self) -> None:
        """Raises IdentityError, a ValueError, for parts that do not go together."""
        Identity(self.name, self.role, self.node, self.namespaces)


class JoinEntry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Lets one node in, once. ``node``: only the node of that name, also one that is known."""

    name: str
    hash: str
    expires: float
    node: str = ""


class CertificateEntry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A client certificate that was given out; kept until it has expired."""

    name: str
    role: Role
    serial: str  # hexadecimal
    expires: float
    node: str = ""
    namespaces: tuple[str, ...] = ()
    revoked: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.role, self.node, self.namespaces)


class CredentialRecords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[TokenEntry, ...] = ()
    joins: tuple[JoinEntry, ...] = ()
    certificates: tuple[CertificateEntry, ...] = ()


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    serial: str  # hexadecimal
    expires: float  # after which the certificate is not good by itself


class TokensUnreadableError(Exception):
    """The token file is not what it should be; the sentence says what to do."""


def read_records(path: Path) -> CredentialRecords:
    try:
        decoded = msgspec.json.decode(
            path.read_bytes(), type=CredentialRecords | tuple[TokenEntry, ...]
        )
        records = decoded if isinstance(decoded, CredentialRecords) else CredentialRecords(decoded)
        for entry in records.tokens:
            entry.check()
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise TokensUnreadableError(
            f"the token file {path} cannot be read ({error});"
            " repair it, or remove it and start again to make new tokens"
        ) from error
    return records


def revocations_of(path: Path) -> Path:
    """The file beside the one of identities."""
    return path.with_name("revoked.json")


def read_revoked(path: Path) -> tuple[Revocation, ...]:
    """What stands in the file beside ``path``; nothing where there is none."""
    revocations = revocations_of(path)
    try:
        return msgspec.json.decode(revocations.read_bytes(), type=tuple[Revocation, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise TokensUnreadableError(
            f"the file of revoked certificates {revocations} cannot be read ({error}); repair it"
        ) from error


def revoke_serials(path: Path, revoked: Sequence[Revocation]) -> None:
    """Add to the file beside ``path``; whoever does holds the lock of ``path``."""
    known = {one.serial: one for one in read_revoked(path)}
    all_known = {one.serial: one for one in revoked} | known
    if all_known != known:
        _replace(revocations_of(path), tuple(all_known.values()))


def _keep_revoked(path: Path, records: CredentialRecords) -> None:
    marked = [one for one in records.certificates if one.revoked]
    revoke_serials(path, [Revocation(one.serial, one.expires) for one in marked])


def write_records(path: Path, records: CredentialRecords) -> None:
    _replace(path, records)


def _replace(path: Path, content: Any) -> None:
    """Replace a file at one stroke; 0600 before anything is in it."""
    replacement = path.with_name(path.name + ".new")
    replacement.unlink(missing_ok=True)
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        _give_to_owner_of_folder(descriptor, path.parent)
        file.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(path)
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def change_records(
    path: Path, change: Callable[[CredentialRecords], tuple[CredentialRecords, Result]]
) -> Result:
    """Read, change and write back, alone. Nothing is written where ``change`` raises."""
    lock = path.with_name(path.name + ".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _give_to_owner_of_folder(descriptor, path.parent)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = read_records(path) if path.exists() else CredentialRecords()
        after, result = change(before)
        if after != before:
            _keep_revoked(path, after)
            write_records(path, after)
        return result
    finally:
        os.close(descriptor)


def without_expired(records: CredentialRecords, now: float) -> CredentialRecords:
    """What can still matter; a certificate that has expired need not be remembered as revoked."""
    return CredentialRecords(
        tuple(one for one in records.tokens if one.expires is None or one.expires > now),
        tuple(one for one in records.joins if one.expires > now),
        tuple(one for one in records.certificates if one.expires > now),
    )


def write_tokens(path: Path, entries: Sequence[TokenEntry]) -> None:
    """A file with these tokens and nothing else."""
    write_records(path, CredentialRecords(tuple(entries)))


def read_tokens(path: Path) -> list[TokenEntry]:
    return list(read_records(path).tokens)


def _give_to_owner_of_folder(descriptor: int, folder: Path) -> None:
    """Root writes for the control plane, which is somebody else and must read it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
