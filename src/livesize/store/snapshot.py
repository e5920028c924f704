"""All a store holds at one moment: what backups and copies are made of."""

from __future__ import annotations

import msgspec


class StoreSnapshot(msgspec.Struct, frozen=True):
    """The current values, by key, and the newest revision."""

    revision: int
    values: tuple[tuple[str, bytes], ...]
