"""A change as watchers see it, encoded once for all of them.

A watcher with a selector sees objects enter and leave its selection: an object that begins to
match is ADDED for it, one that no longer matches is DELETED, whatever the change itself was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from livesize.api.list_watch import WatchEventType
from livesize.api.objects import evolve
from livesize.apiserver.records import ObjectRecord, encode

Matches: TypeAlias = Callable[[ObjectRecord], bool]


class CacheEvent:
    """One object changed at one revision: ``before`` and ``after``, None where it did not exist.

    Slotted and lazy: most events are encoded in one way only, some by nobody.
    """

    __slots__ = ("_lines", "after", "before", "revision")

    def __init__(
        self, revision: int, before: ObjectRecord | None, after: ObjectRecord | None
    ) -> None:
        assert before is not None or after is not None
        self.revision = revision
        self.before = before
        self.after = after
        self._lines: dict[WatchEventType, bytes] = {}

    @property
    def record(self) -> ObjectRecord:
        """Whose event it is: the newest state there is."""
        record = self.after if self.after is not None else self.before
        assert record is not None
        return record

    @property
    def type(self) -> WatchEventType:
        """What everybody is told who has selected nothing."""
        if self.after is None:
            return WatchEventType.DELETED
        return WatchEventType.ADDED if self.before is None else WatchEventType.MODIFIED

    @property
    def changes_wanted(self) -> bool:
        """Whether it is news to who carries out what is wanted; a status is not."""
        if self.before is None or self.after is None:
            return True
        was, is_now = self.before.stored, self.after.stored
        if was.get("spec") != is_now.get("spec"):
            return True
        return "deletionTimestamp" in is_now["metadata"]

    def type_for(self, matches: Matches) -> WatchEventType | None:
        """What a watcher with this selection is told; None where it is not concerned."""
        was = self.before is not None and matches(self.before)
        is_now = self.after is not None and matches(self.after)
        if was and is_now:
            return WatchEventType.MODIFIED
        if is_now:
            return WatchEventType.ADDED
        return WatchEventType.DELETED if was else None

    def shown(self, kind: WatchEventType) -> ObjectRecord:
        """The object in the event: for DELETED the last state seen, at the event's revision."""
        if kind is not WatchEventType.DELETED:
            assert self.after is not None
            return self.after
        assert self.before is not None
        return _at_revision(self.before, self.revision)

    def line(self, kind: WatchEventType) -> bytes:
        line = self._lines.get(kind)
        if line is None:
            line = event_line(kind, self.shown(kind).encoded)
            self._lines[kind] = line
        return line


def event_line(kind: WatchEventType | str, encoded: bytes) -> bytes:
    """One line of a watch: newline-delimited JSON."""
    return b'{"type":"%b","object":%b}\n' % (str(kind).encode(), encoded)


def _at_revision(record: ObjectRecord, revision: int) -> ObjectRecord:
    served = evolve(record.served, ("metadata", "resourceVersion"), str(revision))
    return ObjectRecord(
        record.resource,
        record.key,
        record.namespace,
        record.name,
        revision,
        record.stored,
        served,
        encode(served),
    )
