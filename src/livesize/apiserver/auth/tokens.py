"""Bearer tokens: a file of their hashes, readable by its owner only.

The file is read again when it changes, so that a token is revoked by removing its line. A token
is 32 random bytes, so its plain SHA-256 cannot be guessed backwards.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from livesize.apiserver.auth.identities import Identity, Role


class TokenEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    role: Role
    hash: str  # SHA-256, hexadecimal
    node: str = ""
    expires: float | None = None  # seconds since the epoch


class TokensUnreadableError(Exception):
    """The token file is not what it should be; the sentence says what to do."""


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def issue_token(
    name: str, role: Role, *, node: str = "", expires: float | None = None
) -> tuple[str, TokenEntry]:
    """A new secret, shown once, and the entry to keep."""
    token = secrets.token_urlsafe(32)
    return token, TokenEntry(name, role, hash_token(token), node, expires)


def write_tokens(path: Path, entries: Sequence[TokenEntry]) -> None:
    """Replace the file at one stroke; 0600 before anything is in it."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(list(entries)), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_tokens(path: Path) -> list[TokenEntry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[TokenEntry])
    except (OSError, msgspec.DecodeError) as error:
        raise TokensUnreadableError(
            f"the token file {path} cannot be read ({error});"
            " repair it, or remove it and start again to make new tokens"
        ) from error


class Tokens:
    """Looks tokens up in the file as it is now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._entries: dict[str, TokenEntry] = {}

    def identify(self, token: str, now: float) -> Identity | None:
        """Whose token it is; None for an unknown or expired one."""
        self._refresh()
        entry = self._entries.get(hash_token(token))
        if entry is None or (entry.expires is not None and entry.expires <= now):
            return None
        return Identity(entry.name, entry.role, entry.node)

    def _refresh(self) -> None:
        stat = os.stat(self._path)  # noqa: PTH116 - on the way of every request, and quicker
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen != self._seen:
            self._entries = {entry.hash: entry for entry in read_tokens(self._path)}
            self._seen = seen
