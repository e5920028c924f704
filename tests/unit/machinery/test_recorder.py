"""Events: one per thing said, counted when repeated, never in the way of who reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from livesize.api.errors import StatusError
from livesize.api.objects import Object
from livesize.machinery.recorder import EventRecorder, EventSeverity, ReportingComponent
from livesize.sim.loop import EPOCH_SECONDS
from virtual_time import CLOCK, virtual_context, virtual_time

POD: Object = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "db", "namespace": "team", "uid": "u1", "resourceVersion": "5"},
}


class Posted:
    def __init__(
        self, failures: list[Exception] | None = None, *, delay_seconds: float = 0.0
    ) -> None:
        self.events: list[tuple[Object, bool]] = []
        self.failures = failures or []
        self.times: list[float] = []  # of all tries
        self.recorder = EventRecorder(
            self.post,
            context=virtual_context(),
            source=ReportingComponent("agent", "n1"),
            capacity=3,
            delay_seconds=delay_seconds,
        )

    async def post(self, event: Object, is_new: bool) -> None:
        self.times.append(CLOCK.monotonic())
        if self.failures:
            raise self.failures.pop(0)
        self.events.append((event, is_new))

    def say(
        self, reason: str, message: str = "m", about: Object = POD, patience_seconds: float = 0.0
    ) -> None:
        self.recorder.record(about, EventSeverity.NORMAL, reason, message, patience_seconds)

    def told(self) -> list[tuple[str, int, bool]]:
        return [(event["reason"], event["count"], is_new) for event, is_new in self.events]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
            await CLOCK.sleep(60)
        finally:
            task.cancel()
            await asyncio.wait([task])


@virtual_time
async def test_an_event_has_the_shape_of_kubernetes() -> None:
    posted = Posted()
    async with posted.running():
        posted.recorder.record(POD, EventSeverity.WARNING, "ResizeError", "no room")
    event, is_new = posted.events[0]
    assert is_new
    prefix, _, suffix = event["metadata"].pop("name").partition(".")
    assert prefix == "db"
    assert int(suffix, 16) == EPOCH_SECONDS * 10**9
    assert event == {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"namespace": "team"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "team",
            "name": "db",
            "uid": "u1",
            "apiVersion": "v1",
            "resourceVersion": "5",
        },
        "reason": "ResizeError",
        "message": "no room",
        "source": {"component": "agent", "host": "n1"},
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
        "type": "Warning",
        "reportingComponent": "agent",
        "reportingInstance": "n1",
    }


@virtual_time
async def test_the_same_again_raises_the_count_of_the_same_event() -> None:
    posted = Posted()
    async with posted.running():
        posted.say("Started")
        await CLOCK.sleep(1)
        posted.say("Started")
    assert posted.told() == [("Started", 1, True), ("Started", 2, False)]
    first, second = (event for event, _ in posted.events)
    assert first["metadata"] == second["metadata"]
    assert second["lastTimestamp"] > first["lastTimestamp"] == second["firstTimestamp"]


@virtual_time
async def test_another_message_or_object_is_another_event() -> None:
    posted = Posted()
    async with posted.running():
        posted.say("Started", "a")
        posted.say("Started", "b")
        posted.say("Started", "a", {**POD, "metadata": {"name": "web", "uid": "u2"}})
    assert [count for _, count, _ in posted.told()] == [1, 1, 1]
    assert len({event["metadata"]["name"] for event, _ in posted.events}) == 3
    assert posted.events[2][0]["metadata"]["namespace"] == "default"


@virtual_time
async def test_said_often_before_it_is_written_it_is_written_once() -> None:
    posted = Posted()
    for _ in range(5):
        posted.say("BackOff")
    async with posted.running():
        pass
    assert posted.told() == [("BackOff", 5, True)]


@virtual_time
async def test_with_a_delay_all_that_was_said_meanwhile_is_written_after_one_wait() -> None:
    posted = Posted(delay_seconds=0.05)
    async with posted.running():
        posted.say("ResizeStarted")
        await asyncio.sleep(0)
        assert posted.told() == []
        posted.say("ResizeCompleted")
    assert posted.told() == [("ResizeStarted", 1, True), ("ResizeCompleted", 1, True)]
    assert posted.times == [0.05, 0.05]


@pytest.mark.parametrize(("delay_seconds", "times"), [(0.05, [0.05, 0.1]), (0.0, [0.0, 0.08])])
@virtual_time
async def test_what_is_patient_waits_longer_and_holds_up_nothing(
    delay_seconds: float, times: list[float]
) -> None:
    posted = Posted(delay_seconds=delay_seconds)
    async with posted.running():
        posted.say("SafeToHotplug", patience_seconds=0.08)
        posted.say("Started")
    assert posted.told() == [("Started", 1, True), ("SafeToHotplug", 1, True)]
    assert posted.times == pytest.approx(times)


@virtual_time
async def test_what_is_patient_goes_with_an_answer() -> None:
    posted = Posted()
    posted.say("SafeToHotplug", patience_seconds=0.08)
    taken = posted.recorder.take_waiting(POD)
    async with posted.running():
        pass
    assert [event["reason"] for event in taken.events] == ["SafeToHotplug"]
    assert (posted.told(), posted.times) == ([], [])


@virtual_time
async def test_too_much_is_dropped_and_counted_and_the_earliest_is_kept() -> None:
    posted = Posted()
    for number in range(10):
        posted.say(f"Reason{number}")
    async with posted.running():
        pass
    assert [reason for reason, _, _ in posted.told()] == ["Reason0", "Reason1", "Reason2"]
    assert posted.recorder.dropped == 7


@virtual_time
async def test_a_server_that_comes_back_gets_what_waited() -> None:
    posted = Posted([ConnectionError("down")] * 3)
    async with posted.running():
        posted.say("Started")
    assert posted.told() == [("Started", 1, True)]
    assert len(set(posted.times)) == 4, "it waits between two tries"


@pytest.mark.parametrize(
    "failures", [[StatusError(403, "Forbidden", "no")], [ConnectionError("down")] * 8]
)
@virtual_time
async def test_what_cannot_be_written_is_dropped_and_the_rest_goes_on(
    failures: list[Exception],
) -> None:
    posted = Posted(failures)
    async with posted.running():
        posted.say("Lost")
        posted.say("Kept")
    assert posted.told() == [("Kept", 1, True)]
    assert posted.recorder.dropped == 1


@virtual_time
async def test_waiting_events_ride_with_a_request_about_the_same_object() -> None:
    posted = Posted()
    other = {**POD, "metadata": {**POD["metadata"], "name": "web", "uid": "u2"}}
    posted.say("Started")
    posted.say("Scheduled", about=other)
    taken = posted.recorder.take_waiting(POD)
    assert [event["reason"] for event in taken.events] == ["Started"]
    async with posted.running():
        pass
    assert posted.told() == [("Scheduled", 1, True)]


@virtual_time
async def test_what_rode_along_is_counted_up_when_it_is_said_again() -> None:
    posted = Posted()
    posted.say("Started")
    posted.recorder.take_waiting(POD)
    posted.say("Started")
    async with posted.running():
        pass
    assert posted.told() == [("Started", 2, False)]


@virtual_time
async def test_events_that_are_put_back_are_written_after_all() -> None:
    posted = Posted()
    posted.say("Started")
    posted.recorder.put_back(posted.recorder.take_waiting(POD))
    async with posted.running():
        pass
    assert posted.told() == [("Started", 1, True)]


@virtual_time
async def test_an_event_that_was_written_before_does_not_ride() -> None:
    posted = Posted()
    async with posted.running():
        posted.say("Started")
    posted.say("Started")
    assert posted.recorder.take_waiting(POD).events == []


@virtual_time
async def test_a_composed_event_is_not_recorded() -> None:
    posted = Posted()
    event = posted.recorder.compose(POD, EventSeverity.NORMAL, "Done", "all of it")
    assert event["involvedObject"]["uid"] == "u1"
    async with posted.running():
        pass
    assert posted.told() == []
