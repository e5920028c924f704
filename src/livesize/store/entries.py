"""The current entries, in key order, and pages of them.

Both local stores hold all entries in memory: a get is a look into a dict, a page a slice of the
sorted keys. The stores themselves make them durable.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from livesize.store.interface import Change, ChangeKind, Listing, StoreEntry

NOTHING_ELSE: Mapping[str, StoreEntry | None] = {}


class StoreEntries:
    def __init__(self, entries: Iterable[StoreEntry] = ()) -> None:
        self._by_key = {entry.key: entry for entry in entries}
        self._keys = sorted(self._by_key)

    def get(self, key: str) -> StoreEntry | None:
        return self._by_key.get(key)

    def apply(self, change: Change) -> None:
        key = change.entry.key
        match change.kind:
            case ChangeKind.PUT:
                if key not in self._by_key:
                    bisect.insort(self._keys, key)
                self._by_key[key] = change.entry
            case ChangeKind.DELETE:
                del self._by_key[key]
                del self._keys[bisect.bisect_left(self._keys, key)]

    def page(
        self,
        prefix: str,
        start_after: str | None,
        limit: int | None,
        *,
        revision: int,
        instead: Mapping[str, StoreEntry | None] = NOTHING_ELSE,
    ) -> Listing:
        """One page of the entries; ``instead`` holds the states of keys that were different at
        ``revision`` (None: not there)."""
        keys = self._range(prefix, start_after)
        if instead:
            keys = self._replace(keys, prefix, start_after, instead)
        more = limit is not None and len(keys) > limit
        if more:
            keys = keys[:limit]
        found = (instead[key] if key in instead else self._by_key[key] for key in keys)
        return Listing(tuple(entry for entry in found if entry is not None), revision, more)

    def _range(self, prefix: str, start_after: str | None) -> list[str]:
        """Keys that are cut to the prefix's length are still in order, so both ends are found by
        halving."""
        first = bisect.bisect_left(self._keys, prefix)
        if start_after is not None:
            first = max(first, bisect.bisect_right(self._keys, start_after))
        width = len(prefix)
        end = bisect.bisect_right(self._keys, prefix, lo=first, key=lambda key: key[:width])
        return self._keys[first:end]

    def _replace(
        self,
        keys: list[str],
        prefix: str,
        start_after: str | None,
        instead: Mapping[str, StoreEntry | None],
    ) -> list[str]:
        same = [key for key in keys if key not in instead]
        back = [
            key
            for key, entry in instead.items()
            if entry is not None
            and key.startswith(prefix)
            and (start_after is None or key > start_after)
        ]
        return sorted(same + back)
