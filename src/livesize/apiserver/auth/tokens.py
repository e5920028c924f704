"""Whose token or certificate it is, by the file of livesize.apiserver.auth.records.

The file is looked at again when a second has passed, or when a token is not known: what is made
counts at once, what is revoked within a second, without a restart and without a look at the disk
for each request. A token is 32 random bytes, so its plain SHA-256 cannot be guessed backwards.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from livesize.api.roles import Role
from livesize.apiserver.auth.certificates import read_peer
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.records import (
    CertificateEntry,
    CredentialRecords,
    TokenEntry,
    TokensUnreadableError,
    read_records,
    read_revoked,
    read_tokens,
    revocations_of,
    write_tokens,
)
from livesize.machinery.telemetry import get_logger

__all__ = [
    "LOOK_SECONDS",
    "TokenEntry",
    "Tokens",
    "TokensUnreadableError",
    "hash_token",
    "issue_token",
    "read_tokens",
    "write_tokens",
]

_log = get_logger("apiserver.auth")

LOOK_SECONDS = 1.0
_NEVER = float("-inf")


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def issue_token(
    name: str,
    role: Role,
    *,
    node: str = "",
    expires: float | None = None,
    namespaces: tuple[str, ...] = (),
) -> tuple[str, TokenEntry]:
    """A new secret, shown once, and the entry to keep."""
    token = secrets.token_urlsafe(32)
    return token, TokenEntry(name, role, hash_token(token), node, expires, namespaces)


class Tokens:
    """Looks tokens and certificates up in the file as it is now, give or take a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._revocations_path = revocations_of(path)
        self._looked = _NEVER
        self._tokens: dict[str, tuple[Identity, float | None]] = {}
        self._revoked: frozenset[str] = frozenset()
        self._joins: dict[str, float] = {}
        self._named: dict[str, list[tuple[Identity, float | None]]] = {}

    def identify(self, token: str, now: float) -> Identity | None:
        """Whose token it is; None for an unknown or expired one."""
        self._refresh(now)
        hashed = hash_token(token)
        known = self._tokens.get(hashed)
        if known is None:  # perhaps made a moment ago
            self._look(now)
            known = self._tokens.get(hashed)
        if known is None:
            return None
        identity, expires = known
        return identity if expires is None or expires > now else None

    def identify_certificate(self, der: bytes, now: float) -> Identity | None:
        """Whose certificate it is, which TLS has verified against our authority already; None for
        one that was revoked, has expired on an open connection, or names no role."""
        self._refresh(now)
        peer = read_peer(der)
        if peer is None or peer.expires <= now or peer.serial in self._revoked:
            return None
        return peer.identity

    def identity_named(self, name: str, now: float) -> Identity | None:
        """Who has a token or certificate of this name; None where it is nobody, or several roles
        have it."""
        self._refresh(now)
        found = {
            one for one, expires in self._named.get(name, ()) if expires is None or expires > now
        }
        return found.pop() if len(found) == 1 else None

    def is_join_token(self, token: str, now: float) -> bool:
        """Whether it may be good for joining; only taking it out of the file makes sure."""
        self._look(now)
        return self._joins.get(hash_token(token), _NEVER) > now

    def _refresh(self, now: float) -> None:
        if not 0 <= now - self._looked < LOOK_SECONDS:
            self._look(now)

    def _look(self, now: float) -> None:
        self._looked = now
        records, revoked = _look_at(self.path), _look_at(self._revocations_path)
        seen = (*records, *revoked)
        if seen == self._seen:
            return
        try:
            self._take(read_records(self.path) if records else CredentialRecords())
        except TokensUnreadableError as error:
            if self._seen is None:
                self._looked = _NEVER
                raise
            # Somebody's slip in an editor must not shut everybody out.
            _log.error("token file unreadable, the last good one counts", why=str(error))
        self._seen = seen

    def _take(self, records: CredentialRecords) -> None:
        revoked = {one.serial for one in read_revoked(self.path)}
        self._tokens = {entry.hash: (entry.identity, entry.expires) for entry in records.tokens}
        self._joins = {entry.hash: entry.expires for entry in records.joins}
        self._named = {}
        good = [one for one in records.certificates if not one.revoked]
        named: list[TokenEntry | CertificateEntry] = [*records.tokens, *good]
        for one in named:
            self._named.setdefault(one.name, []).append((one.identity, one.expires))
        marked = {one.serial for one in records.certificates if one.revoked}
        self._revoked |= (
            marked | revoked
        )  # what was revoked stays so, whatever becomes of the files


def _look_at(path: Path) -> tuple[int, ...]:
    """By what a change of the file is known; empty where it is not there."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - on the way of requests, and quicker
    except FileNotFoundError:
        return ()
    return (stat.st_mtime_ns, stat.st_ino, stat.st_size)
