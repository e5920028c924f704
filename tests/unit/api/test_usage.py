"""Two looks at a counter make a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.usage import (
    LARGEST_BYTES,
    USAGE_ANNOTATION,
    Counters,
    NodeUsage,
    Usage,
    format_usage,
    parse_usage,
    rate,
)

SECOND = 10**9


@pytest.mark.parametrize(
    ("before", "now", "started", "expected"),
    [
        pytest.param(
            Counters(100.0, 5 * SECOND, 1),
            Counters(110.0, 10 * SECOND, 7),
            50.0,
            Usage(SECOND // 2, 7, 10.0),
            id="half a CPU between two looks",
        ),
        pytest.param(
            None,
            Counters(110.0, SECOND, 7),
            100.0,
            Usage(SECOND // 10, 7, 10.0),
            id="the first look counts from its start",
        ),
        pytest.param(
            Counters(100.0, 5 * SECOND, 1),
            Counters(110.0, SECOND, 7),
            105.0,
            Usage(SECOND // 5, 7, 5.0),
            id="it was restarted: its counter began anew",
        ),
        pytest.param(
            None, Counters(100.5, SECOND, 7), 100.0, None, id="too young for a rate to say much"
        ),
        pytest.param(
            Counters(100.0, SECOND, 1),
            Counters(90.0, SECOND, 7),
            50.0,
            None,
            id="the clock was set back",
        ),
        pytest.param(
            Counters(100.0, SECOND, 1),
            Counters(110.0, SECOND, 7),
            50.0,
            Usage(0, 7, 10.0),
            id="idle",
        ),
    ],
)
def test_rate(before: Counters | None, now: Counters, started: float, expected: Usage) -> None:
    assert rate(before, now, started) == expected


LOOKS = st.builds(
    Counters,
    st.floats(0, 1e10, allow_nan=False),
    st.integers(0, 10**18),
    st.integers(0, 2**50),
)


@given(st.none() | LOOKS, LOOKS, st.floats(0, 1e10, allow_nan=False))
def test_no_usage_is_negative_and_memory_is_the_newest(
    before: Counters | None, now: Counters, started: float
) -> None:
    usage = rate(before, now, started)
    if usage is not None:
        assert usage.cpu_nano >= 0
        assert usage.memory_bytes == now.memory_bytes
        assert usage.window_seconds >= 1


def test_what_a_lease_carries_is_read_back() -> None:
    usage = NodeUsage("2026-01-01T00:00:00Z", Usage(1, 2, 3.0), {"uid": {"app": Usage(4, 5, 6.0)}})
    lease = {"metadata": {"annotations": {USAGE_ANNOTATION: format_usage(usage)}}}
    assert parse_usage(lease) == usage
    assert parse_usage({"metadata": {}}) is None


def test_what_is_too_large_for_an_annotation_is_told_of_the_node_only() -> None:
    containers = {f"container-{number}": Usage(10**9, 2**40, 10.002) for number in range(10)}
    pods = {f"{number:036d}": containers for number in range(500)}
    usage = NodeUsage("2026-01-01T00:00:00Z", Usage(1, 2, 3.0), pods)
    lease = {"metadata": {"annotations": {USAGE_ANNOTATION: format_usage(usage)}}}
    assert parse_usage(lease) == NodeUsage(usage.time, usage.node)
    few = NodeUsage(usage.time, usage.node, dict.fromkeys(list(pods)[:300], containers))
    assert len(format_usage(few)) < LARGEST_BYTES
    lease = {"metadata": {"annotations": {USAGE_ANNOTATION: format_usage(few)}}}
    assert parse_usage(lease) == few
