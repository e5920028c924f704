"""The demo's timeline: from a pod to a row, and which moments get one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.demo.timeline import TimelineRow, heading, is_worth_a_row, moment_of, row

HALF = TimelineRow("InProgress", 4, 4, 2, 2048, 1280, 1171)


def pod(phase: str, **guest: Any) -> dict[str, Any]:
    requests = {"cpu": "4", "memory": "2Gi"}
    return {
        "spec": {"virtualMachine": {"resources": {"requests": requests}}},
        "status": {"resizeState": {"phase": phase}, "virtualMachineStatus": {"guest": guest}},
    }


def test_a_moment_has_what_was_asked_what_is_plugged_and_what_the_guest_sees() -> None:
    guest = {"vcpusPlugged": 4, "vcpusOnline": 2, "memoryPlugged": "1280Mi"}
    assert moment_of(pod("InProgress", **guest, memorySeen="1227882496")) == HALF


def test_what_is_not_known_is_not_invented() -> None:
    moment = moment_of(pod("Requested", vcpusPlugged=1, memoryPlugged="512Mi"))
    assert (moment.vcpus_online, moment.memory_seen) == (None, None)
    assert row(0.0, moment).count(" - ") == 2
    assert moment_of({}).vcpus_plugged is None


def test_a_row_stands_below_its_heading() -> None:
    lines = [*heading(), row(1.5, HALF, "1.50 s")]
    bars = [[at for at, sign in enumerate(line) if sign == "│"] for line in lines]
    assert bars[0] == bars[1] == bars[2]
    shown = " ".join(lines[2].split())
    assert shown == "1.50 InProgress │ 4 4 2 │ 2048 1280 1171 │ 1.50 s"


@pytest.mark.parametrize(
    ("change", "seconds", "worth"),
    [
        ({}, 100.0, False),
        ({"phase": "Error"}, 0.0, True),
        ({"vcpus_online": 3}, 0.0, True),
        ({"vcpus_plugged": 3}, 0.0, True),
        ({"memory_plugged": 1408}, 0.9, False),
        ({"memory_plugged": 1408}, 1.0, True),
        ({"memory_seen": 1299}, 1.0, True),
        ({"vcpus_online": None, "memory_seen": None}, 100.0, False),
    ],
    ids=[
        "nothing moved",
        "another phase",
        "the guest uses another vCPU",
        "a vCPU was taken out",
        "memory moves all the time",
        "but is shown every second",
        "as the guest sees it too",
        "a silent guest is no news",
    ],
)
def test_which_moments_get_a_row(change: dict[str, Any], seconds: float, worth: bool) -> None:
    assert is_worth_a_row(HALF, msgspec.structs.replace(HALF, **change), seconds) is worth


amounts = st.integers(0, 1 << 20)
known = st.none() | amounts
moments = st.builds(
    TimelineRow,
    st.sampled_from(["None", "Requested", "InProgress", "Done"]),
    *(amounts, known, known, amounts, known, known),
)


@given(moments, st.floats(0, 99_999))
def test_every_row_fits_a_terminal(moment: TimelineRow, seconds: float) -> None:
    assert len(row(seconds, moment, "123.45 s")) <= 100
