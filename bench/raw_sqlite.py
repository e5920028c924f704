"""Bare apsw: the least that makes bytes durable in SQLite, as the store's yardstick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

POD_BYTES = 3_354
"""A pod of ordinary size, encoded."""


class RawTable:
    """One table, the store's PRAGMAs, one INSERT for each value, one COMMIT for each call."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.execute("CREATE TABLE raw (id INTEGER PRIMARY KEY, key TEXT, value BLOB)")

    def insert(self, rows: Sequence[tuple[str, bytes]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO raw (key, value) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
