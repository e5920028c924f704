"""Where uids and the ends of generated names come from; tests give their own."""

from __future__ import annotations

import secrets
import uuid
from typing import Protocol

# Kubernetes' letters: no vowels, so that no words appear.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Ids(Protocol):
    def uid(self) -> str: ...

    def suffix(self) -> str:
        """Five characters to end a generated name with."""
        ...


class RandomIds:
    def uid(self) -> str:
        return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))

    def suffix(self) -> str:
        return "".join(secrets.choice(_LETTERS) for _ in range(5))
