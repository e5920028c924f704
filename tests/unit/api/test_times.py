"""Times as Kubernetes writes them."""

from __future__ import annotations

import datetime as dt

from hypothesis import example, given
from hypothesis import strategies as st

from livesize.api.times import format_micro_time, format_time, parse_time

MOMENTS = st.floats(0, 4e9)


@given(MOMENTS)
@example(1_700_000_000.9999996)
@example(1_700_000_000.0000005)
@example(0.0)
def test_microseconds_are_rounded_as_datetime_does(seconds: float) -> None:
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    expected = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert format_micro_time(seconds) == expected


@given(MOMENTS)
def test_what_is_written_is_read_again(seconds: float) -> None:
    assert abs(parse_time(format_micro_time(seconds)) - seconds) < 1e-6
    assert 0 <= seconds - parse_time(format_time(seconds)) < 1
