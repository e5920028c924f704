"""When events go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livesize.apiserver.expiry.plan import EventTerms, StoredEvent, plan_expiry

TERMS = EventTerms(life_seconds=100.0, maximum=10)


def said(*times: float) -> list[StoredEvent]:
    return [StoredEvent(f"e{index:03}", time) for index, time in enumerate(times)]


def test_an_event_goes_when_its_life_is_over() -> None:
    expiry = plan_expiry(said(1, 0, 50), 101.0, TERMS)
    assert expiry.keys == ("e001", "e000")
    assert expiry.due_seconds == 49


def test_without_events_nothing_is_due() -> None:
    assert plan_expiry([], 0.0, TERMS).due_seconds is None


def test_of_too_many_the_oldest_go_and_leave_some_room() -> None:
    expiry = plan_expiry(said(*range(11)), 11.0, TERMS)
    assert expiry.keys == ("e000", "e001")


def test_as_many_as_allowed_stay() -> None:
    assert plan_expiry(said(*range(10)), 11.0, TERMS).keys == ()


@given(
    times=st.lists(st.floats(0, 1000), max_size=40),
    now=st.floats(0, 1000),
    maximum=st.integers(1, 30),
)
def test_who_stays_is_young_and_younger_than_who_goes(
    times: list[float], now: float, maximum: int
) -> None:
    terms = EventTerms(life_seconds=100.0, maximum=maximum)
    events = said(*times)
    expiry = plan_expiry(events, now, terms)
    going = {event.key: event for event in events if event.key in expiry.keys}
    staying = [event for event in events if event.key not in going]
    assert len(going) == len(expiry.keys)
    assert len(staying) <= maximum
    assert all(event.said_at + 100.0 > now for event in staying)
    oldest = min((event.said_at for event in staying), default=None)
    assert all(event.said_at <= oldest for event in going.values() if oldest is not None)
    assert (expiry.due_seconds is None) == (not staying)
