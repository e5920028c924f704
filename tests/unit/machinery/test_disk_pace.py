"""Whether to wait for the disk here is told by how long the last time took."""

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


def test_a_slow_time_ends_it_and_a_quick_one_begins_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pace = DiskPace()
    for limit_seconds, is_quick in ((3600.0, True), (0.0, False), (3600.0, True)):
        monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", limit_seconds)
        measure(pace)
        assert pace.is_quick is is_quick


@pytest.mark.usefixtures("quick")
def test_what_failed_was_not_quick() -> None:
    pace = DiskPace()
    measure(pace)
    with pytest.raises(OSError, match="broken"), pace.measured():
        raise OSError("broken")
    assert not pace.is_quick
