"""Whether to wait for the disk here is told by how long the last two times took."""

from __future__ import annotations

import pytest

from livesize.machinery.disk_pace import DiskPace


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", 3600.0)


def measure(pace: DiskPace) -> None:
    with pace.measured():
        pass


@pytest.mark.usefixtures("quick")
def test_nobody_waits_here_for_a_disk_that_is_not_known() -> None:
    pace = DiskPace()
    assert not pace.is_quick
    measure(pace)
    assert pace.is_quick


def test_two_slow_times_end_it_and_a_quick_one_begins_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pace, now = DiskPace(), [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    times = ((0.001, True), (0.5, True), (0.5, False), (0.5, False), (0.001, True), (0.5, True))
    for seconds, is_quick in times:
        with pace.measured():
            now[0] += seconds
        assert pace.is_quick is is_quick


@pytest.mark.usefixtures("quick")
def test_what_failed_was_not_quick() -> None:
    pace = DiskPace()
    measure(pace)
    with pytest.raises(OSError, match="broken"), pace.measured():
        raise OSError("broken")
    assert not pace.is_quick
