"""Which writes of a controller its caches have not shown yet.

A key whose own writes are not in the caches yet is not reconciled: the controller would act a
second time on what it has done already. Versions are opaque: a write counts as seen when a change
with the very version of its answer has arrived, or the object is gone. A deletion counts as seen
when the object is gone or is marked for deletion.

A cache that lists again may never show a version. So no expectation holds a key for longer than
``LONGEST_SECONDS``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeAlias, TypeVar

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, uid_of, version_of
from livesize.client.informer import Delta
from livesize.machinery.clock import Clock

LONGEST_SECONDS = 30.0

Key = TypeVar("Key", bound=Hashable)
_MARKED, _GONE = "marked for deletion, or gone", "gone"
"""In the place of a version."""
_Version: TypeAlias = tuple[str, str]
"""uid and version."""


class _Expected(msgspec.Struct, Generic[Key], frozen=True):
    key: Key
    until: float


class Expectations(Generic[Key]):
    """``on_seen(key)`` is called when the last expectation of a key has come true."""

    def __init__(self, clock: Clock, on_seen: Callable[[Key], None]) -> None:
        self._clock = clock
        self._on_seen = on_seen
        self._expected: dict[Resource, dict[_Version, _Expected[Key]]] = {}
        self._held: dict[Key, int] = {}
        self._in_flight: dict[Resource, int] = {}
        self._seen: dict[Resource, set[_Version]] = {}

    def seconds_held(self, key: Key) -> float:
        """How long the key waits at most; 0: not at all."""
        if key not in self._held:
            return 0.0
        self._drop_expired()
        waits = [
            one.until - self._clock.monotonic()
            for expected in self._expected.values()
            for one in expected.values()
            if one.key == key
        ]
        return max(waits, default=0.0)

    @contextlib.contextmanager
    def writing(self, resource: Resource) -> Iterator[None]:
        """Around a request and its ``expect``: an answer may come later than the watch's event."""
        self._in_flight[resource] = self._in_flight.get(resource, 0) + 1
        try:
            yield
        finally:
            self._in_flight[resource] -= 1
            if not self._in_flight[resource]:
                del self._in_flight[resource]
                self._seen.pop(resource, None)

    def expect(self, key: Key, resource: Resource, written: Object) -> None:
        self._expect(key, resource, (uid_of(written), version_of(written)))

    def expect_deletion(self, key: Key, resource: Resource, uid: str) -> None:
        self._expect(key, resource, (uid, _MARKED))

    def observe(self, resource: Resource, delta: Delta) -> None:
        """Call it for every change of a watched kind, in order."""
        expected = self._expected.get(resource)
        if expected is None and resource not in self._in_flight:
            return
        uid = uid_of(delta.object)
        seen = [(uid, version_of(delta.object))]
        if delta.new is None:
            seen += [(uid, _MARKED), (uid, _GONE)]
        elif lookup(delta.new, "metadata", "deletionTimestamp"):
            seen.append((uid, _MARKED))
        if resource in self._in_flight:
            self._seen.setdefault(resource, set()).update(seen)
        if expected:
            if delta.new is None:
                seen = [version for version in expected if version[0] == uid]
            for version in seen:
                key = self._drop(resource, version)
                if key is not None:
                    self._on_seen(key)

    def _expect(self, key: Key, resource: Resource, version: _Version) -> None:
        versions = self._seen.get(resource, ())
        if version in versions or (version[0], _GONE) in versions:
            return
        until = self._clock.monotonic() + LONGEST_SECONDS
        expected = self._expected.setdefault(resource, {})
        if version not in expected:
            self._held[key] = self._held.get(key, 0) + 1
            expected[version] = _Expected(key, until)

    def _drop(self, resource: Resource, version: _Version) -> Key | None:
        """The key, where this was the last that held it."""
        expected = self._expected.get(resource, {})
        found = expected.pop(version, None)
        if found is None:
            return None
        if not expected:
            del self._expected[resource]
        self._held[found.key] -= 1
        if self._held[found.key]:
            return None
        del self._held[found.key]
        return found.key

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        for resource, expected in list(self._expected.items()):
            for version, one in list(expected.items()):
                if one.until <= now:
                    self._drop(resource, version)
