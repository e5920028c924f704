"""Which images go when the disk is nearly full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.runtime.containerd.image_garbage import (
    CleaningLimits,
    DiskUse,
    UnusedImage,
    images_to_remove,
)

NOW = 1000.0
LIMITS = CleaningLimits()
OLD = UnusedImage("o", 10, NOW - 900)
NEWER = UnusedImage("n", 10, NOW - 500)
FRESH = UnusedImage("f", 10, NOW - 60)


@pytest.mark.parametrize(
    ("used", "gone"),
    [
        pytest.param(85, [], id="not before it is nearly full"),
        pytest.param(86, ["o"], id="the one unused for longest, until there is room"),
        pytest.param(95, ["o", "n"], id="as many as it takes"),
        pytest.param(100, ["o", "n"], id="never one that was used just now"),
    ],
)
def test_rules(used: int, gone: list[str]) -> None:
    assert images_to_remove([FRESH, NEWER, OLD], DiskUse(100, used), LIMITS, NOW) == gone


@given(
    images=st.lists(
        st.builds(
            UnusedImage,
            st.text("abc", min_size=1),
            st.integers(0, 50),
            st.floats(0, NOW),
        ),
        unique_by=lambda one: one.id,
    ),
    used=st.integers(0, 100),
)
def test_no_more_than_needed_and_the_oldest_first(images: list[UnusedImage], used: int) -> None:
    gone = images_to_remove(images, DiskUse(100, used), LIMITS, NOW)
    by_id = {one.id: one for one in images}
    times = [by_id[name].used_at for name in gone]
    assert times == sorted(times)
    freed = sum(by_id[name].size_bytes for name in gone[:-1])
    assert not gone or used - freed > 80
    assert all(NOW - time >= LIMITS.least_seconds for time in times)
