"""The demo's timeline: from a pod to a row, and which moments get one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.demo.timeline import (
    TimelineAmount,
    TimelineRow,
    heading,
    is_worth_a_row,
    moment_of,
    row,
)

HALF = TimelineRow("InProgress", TimelineAmount(4, 4, 2), (TimelineAmount(2048, 1280, 1171),))
CELLS = TimelineRow(
    "Done", TimelineAmount(4, 4, 4), (TimelineAmount(256, 256, 150), TimelineAmount(1280, 640, 633))
)


def pod(phase: str, **guest: Any) -> dict[str, Any]:
    requests = {"cpu": "4", "memory": "2Gi"}
    return {
        "spec": {"virtualMachine": {"resources": {"requests": requests}}},
        "status": {"resizeState": {"phase": phase}, "virtualMachineStatus": {"guest": guest}},
    }


def test_a_moment_has_what_was_asked_what_is_plugged_and_what_the_guest_sees() -> None:
    guest = {"vcpusPlugged": 4, "vcpusOnline": 2, "memoryPlugged": "1280Mi"}
    assert moment_of(pod("InProgress", **guest, memorySeen="1227882496")) == HALF


def pod_with_cells(*told: dict[str, Any]) -> dict[str, Any]:
    made = pod("Done", vcpusPlugged=4, vcpusOnline=4, memoryPlugged="896Mi", memorySeen="783Mi")
    cells = [{"id": 1, "memory": "1280Mi"}, {"id": 0, "memory": "256Mi"}]
    made["spec"]["virtualMachine"]["numa"] = {"cells": cells}
    made["status"]["virtualMachineStatus"]["cells"] = list(told)
    return made


def test_of_cells_each_stands_alone() -> None:
    told = (
        {"id": 0, "plugged": "256Mi", "seen": "150Mi"},
        {"id": 1, "plugged": "640Mi", "seen": "633Mi"},
    )
    assert moment_of(pod_with_cells(*told)) == CELLS
    assert moment_of(pod_with_cells(*reversed(told))) == CELLS


def test_a_cell_that_is_not_told_of_yet_is_not_invented() -> None:
    unknown = moment_of(pod_with_cells({"id": 0, "plugged": "256Mi"})).memory
    assert unknown == (TimelineAmount(256, 256, None), TimelineAmount(1280, None, None))


def test_what_is_not_known_is_not_invented() -> None:
    moment = moment_of(pod("Requested", vcpusPlugged=1, memoryPlugged="512Mi"))
    assert (moment.vcpus.seen, moment.memory[0].seen) == (None, None)
    assert row(0.0, moment, "1 s").count("- ") == 2
    assert moment_of({}).vcpus.plugged is None


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (HALF, "1.50 InProgress │ 4 4 2 │ 2048 1280 1171 │ 1.50 s"),
        (CELLS, "1.50 Done │ 4 4 4 │ 256 256 150 │ 1280 640 633 │ 1.50 s"),
    ],
    ids=["one amount", "cells"],
)
def test_a_row_stands_below_its_heading(moment: TimelineRow, words: str) -> None:
    lines = [*heading(moment), row(1.5, moment, "1.50 s")]
    bars = [[at for at, sign in enumerate(line) if sign == "│"] for line in lines]
    assert bars[0] == bars[1] == bars[2]
    assert " ".join(lines[2].split()) == words


def test_a_heading_names_each_cell() -> None:
    assert "memory, MiB" in heading(HALF)[0]
    assert [name in heading(CELLS)[0] for name in ("cell 0, MiB", "cell 1, MiB")] == [True, True]


VCPUS, MEMORY = HALF.vcpus, HALF.memory[0]
replace = msgspec.structs.replace


def moved(**change: Any) -> dict[str, Any]:
    return {"memory": (replace(MEMORY, **change),)}


@pytest.mark.parametrize(
    ("change", "seconds", "worth"),
    [
        ({}, 100.0, False),
        ({"phase": "Error"}, 0.0, True),
        ({"vcpus": replace(VCPUS, seen=3)}, 0.0, True),
        ({"vcpus": replace(VCPUS, plugged=3)}, 0.0, True),
        (moved(plugged=1408), 0.9, False),
        (moved(plugged=1408), 1.0, True),
        (moved(seen=1299), 1.0, True),
        (moved(desired=4096), 0.0, True),
        ({"vcpus": replace(VCPUS, seen=None), **moved(seen=None)}, 100.0, False),
    ],
    ids=[
        "nothing moved",
        "another phase",
        "the guest uses another vCPU",
        "a vCPU was taken out",
        "memory moves all the time",
        "but is shown every second",
        "as the guest sees it too",
        "another size is asked for",
        "a silent guest is no news",
    ],
)
def test_which_moments_get_a_row(change: dict[str, Any], seconds: float, worth: bool) -> None:
    assert is_worth_a_row(HALF, replace(HALF, **change), seconds) is worth


sizes = st.integers(0, 99_999)
known = st.none() | sizes
amounts = st.builds(TimelineAmount, sizes, known, known)
moments = st.builds(
    TimelineRow,
    st.sampled_from(["None", "Requested", "InProgress", "Done"]),
    amounts,
    st.tuples(amounts) | st.tuples(amounts, amounts),
)


@given(moments, st.floats(0, 99_999))
def test_every_row_fits_a_terminal(moment: TimelineRow, seconds: float) -> None:
    assert len(row(seconds, moment, "123.45 s")) <= 100
