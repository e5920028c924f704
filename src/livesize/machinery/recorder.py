"""Writes Kubernetes v1 Events about objects; it never blocks and never fails its caller.

The same thing recorded again of the same object becomes one event with a higher count. The recorder
drops what it cannot write for long, and what is too much, and counts it in ``dropped``: events are
for people, no state of an object depends on them. ``await run()`` writes until cancelled. With a
delay, events wait until the change they report is written; ``patience_seconds`` makes one of them
wait longer.

A component that writes the object itself may send its waiting events in the same request:

    taken = recorder.take_waiting(pod)
    ... sent: nothing more to do; not sent: recorder.put_back(taken)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from livesize.api.errors import StatusError
from livesize.api.objects import Object, name_of, namespace_of, uid_of, version_of
from livesize.api.reasons import EventType
from livesize.api.times import format_time
from livesize.machinery.context import Context
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger

log = get_logger("recorder")

EventSeverity: TypeAlias = EventType
"""Normal or Warning; not to be mixed up with the EventType of a watch."""

PostEvent: TypeAlias = Callable[[Object, bool], Awaitable[None]]
"""Write this event; True when its name is new, False when an earlier count is to be raised."""

_MAX_MESSAGE_CHARACTERS = 1024
_TRIES = 8
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 10.0


class ReportingComponent(msgspec.Struct, frozen=True):
    component: str
    host: str = ""


_Series: TypeAlias = tuple[str, str, str, str, str]


class TakenEvents(msgspec.Struct, frozen=True):
    """Events that go with a request of the caller."""

    entries: tuple[tuple[_Series, Object], ...]

    @property
    def events(self) -> list[Object]:
        return [event for _, event in self.entries]


class EventRecorder:
    def __init__(
        self,
        post: PostEvent,
        *,
        context: Context,
        source: ReportingComponent,
        capacity: int = 1000,
        delay_seconds: float = 0.0,
    ) -> None:
        self._post = post
        self._clock = context.clock
        self._source = source
        self._capacity = capacity
        self._delay_seconds = delay_seconds
        self._backoff = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, context.random)
        self._said: OrderedDict[_Series, Object] = OrderedDict()  # newest last, at most capacity
        self._written: set[_Series] = set()
        self._waiting: OrderedDict[_Series, float] = OrderedDict()  # not before when
        self._wake = asyncio.Event()
        self._last_nanos = 0
        self.dropped = 0

    def record(
        self,
        about: Object,
        severity: EventSeverity,
        reason: str,
        message: str,
        patience_seconds: float = 0.0,
    ) -> None:
        """Say that something happened to ``about``; returns at once."""
        not_before = self._clock.monotonic() + patience_seconds
        self._say(_series(about, reason, message), about, severity, not_before)

    def compose(self, about: Object, severity: EventSeverity, reason: str, message: str) -> Object:
        """The event itself, for who writes it with something else; it is not recorded here."""
        return self._new_event(about, severity, reason, _cut(message), self._clock.now())

    def take_waiting(self, about: Object) -> TakenEvents:
        """The waiting events about this object that are not written yet. The caller writes them:
        they leave the queue, and count as written until ``put_back``."""
        whose = _series(about, "", "")[:3]
        chosen = [
            series
            for series in self._waiting
            if series[:3] == whose and series not in self._written
        ]
        for series in chosen:
            del self._waiting[series]
            self._written.add(series)
        return TakenEvents(tuple((series, self._said[series]) for series in chosen))

    def put_back(self, taken: TakenEvents) -> None:
        """The caller's request failed: the recorder writes them after all."""
        for series, _ in taken.entries:
            if series in self._said:
                self._written.discard(series)
                self._waiting[series] = self._clock.monotonic()
        self._wake.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                await self._rest()
                while (series := self._next_due()) is not None:
                    del self._waiting[series]
                    await self._write(series)
            self._wake.clear()
            await self._wake.wait()

    async def _rest(self) -> None:
        """All that is said meanwhile goes along."""
        first = min(self._waiting.values())
        seconds = self._delay_seconds or first - self._clock.monotonic()
        if seconds > 0:
            await self._clock.sleep(seconds)

    def _next_due(self) -> _Series | None:
        now = self._clock.monotonic()
        return next((series for series, at in self._waiting.items() if at <= now), None)

    def _say(
        self, series: _Series, about: Object, severity: EventSeverity, not_before: float
    ) -> None:
        if series not in self._waiting and len(self._waiting) >= self._capacity:
            self.dropped += 1
            return
        now = self._clock.now()
        before = self._said.pop(series, None)
        if before is None:
            event = self._new_event(about, severity, series[3], series[4], now)
        else:
            event = {**before, "count": before["count"] + 1, "lastTimestamp": format_time(now)}
        self._said[series] = event
        self._waiting.setdefault(series, not_before)
        self._wake.set()
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._said) > self._capacity:
            series, _ = self._said.popitem(last=False)
            self._written.discard(series)
            self._waiting.pop(series, None)

    async def _write(self, series: _Series) -> None:
        for attempt in range(1, _TRIES + 1):
            event = self._said.get(series)
            if event is None:
                return
            try:
                await self._post(event, series not in self._written)
            except ConnectionError:
                await self._clock.sleep(self._backoff.seconds(attempt))
            except StatusError as refusal:
                log.warning("event refused", event=name_of(event), reason=refusal.message)
                break
            else:
                self._written.add(series)
                return
        self._said.pop(series, None)
        self._written.discard(series)
        self.dropped += 1

    def _new_event(
        self, about: Object, severity: EventSeverity, reason: str, message: str, now: float
    ) -> Object:
        # Two events in one nanosecond would share a name.
        self._last_nanos = max(int(now * 1e9), self._last_nanos + 1)
        stamp = format_time(now)
        namespace = namespace_of(about) or "default"
        return {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{name_of(about)}.{self._last_nanos:x}", "namespace": namespace},
            "involvedObject": _reference(about),
            "reason": reason,
            "message": message,
            "source": {"component": self._source.component, "host": self._source.host},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "type": severity.value,
            "reportingComponent": self._source.component,
            "reportingInstance": self._source.host,
        }


def _series(about: Object, reason: str, message: str) -> _Series:
    whom = uid_of(about) or name_of(about)
    kind, namespace = about.get("kind", ""), namespace_of(about)
    return kind, namespace, whom, reason, _cut(message)


def _cut(message: str) -> str:
    return message[:_MAX_MESSAGE_CHARACTERS]


def _reference(about: Object) -> Object:
    reference = {
        "kind": about.get("kind", ""),
        "namespace": namespace_of(about),
        "name": name_of(about),
        "uid": uid_of(about),
        "apiVersion": about.get("apiVersion", ""),
        "resourceVersion": version_of(about),
    }
    return {key: value for key, value in reference.items() if value}
