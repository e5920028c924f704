"""Which NUMA cells `livesize resize --numa` changes, and the memory that follows from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.objects import Object
from livesize.api.quantity import format_memory, memory_bytes
from livesize.api.resources import ResourceName, parse_resources
from livesize.cli.resize.cells import parse_cells, plan_vm_patch
from livesize.cli.resize.plan import (
    RequestedSize,
    ResizePatch,
    ResizeRefusal,
    describe,
    parse_requested_size,
    undo_options,
)
from livesize.cli.vm_words import cell_words, guest_table, on_its_way, vm_lines

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
MIB = 2**20


def vm(*cells: str, request: str = "") -> Object:
    total = format_memory(sum(memory_bytes(cell) for cell in cells))
    size = {"cpu": "1", "memory": total}
    resources = {"limits": size, "requests": {**size, "memory": request or total}}
    numa = {"cells": [{"id": at, "memory": text, "boot": "64Mi"} for at, text in enumerate(cells)]}
    spec = {"virtualMachine": {"resources": resources, "numa": numa}}
    return {"metadata": {"name": "vm1", "resourceVersion": "7"}, "spec": spec}


def planned(pod: Object, *words: str, memory: str = "", **more: Any) -> ResizePatch | ResizeRefusal:
    cells = parse_cells(words)
    assert isinstance(cells, dict)
    sizes = dict(more)
    size = parse_requested_size(memory, "", "")
    assert isinstance(size, RequestedSize)
    given_sizes = {MEMORY: size} if memory else {}
    return plan_vm_patch(pod, "", {**given_sizes, **sizes}, cells)


@pytest.mark.parametrize(
    ("words", "cells", "total"),
    [
        (["1=1Gi"], {1: "1Gi"}, "1536Mi"),
        (["0=+512Mi"], {0: "1Gi"}, "1280Mi"),
        (["1=-128Mi"], {1: "128Mi"}, "640Mi"),
        (["0=256Mi", "1=512Mi"], {0: "256Mi", 1: "512Mi"}, "768Mi"),
    ],
)
def test_the_memory_follows_the_cells(words: list[str], cells: dict[int, str], total: str) -> None:
    patch = planned(vm("512Mi", "256Mi"), *words)
    assert isinstance(patch, ResizePatch)
    numa = {"cells": [{"id": cell, "memory": text} for cell, text in cells.items()]}
    resources = {"requests": {"memory": total}, "limits": {"memory": total}}
    assert patch.body() == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"virtualMachine": {"resources": resources, "numa": numa}},
    }


def test_a_request_that_is_smaller_stays() -> None:
    patch = planned(vm("512Mi", "256Mi", request="128Mi"), "1=1Gi")
    assert isinstance(patch, ResizePatch)
    assert patch.resources == {"limits": {"memory": "1536Mi"}}


def test_the_memory_may_be_said_too_and_the_request_apart() -> None:
    patch = planned(vm("512Mi", "256Mi"), "1=1Gi", memory="1536Mi")
    assert isinstance(patch, ResizePatch)
    patch = planned(vm("512Mi", "256Mi"), "1=1Gi", memory="256Mi:")
    assert isinstance(patch, ResizePatch)
    assert patch.resources == {"requests": {"memory": "256Mi"}, "limits": {"memory": "1536Mi"}}


def test_words_and_the_way_back() -> None:
    pod = vm("512Mi", "256Mi")
    patch = planned(pod, "1=1Gi")
    assert isinstance(patch, ResizePatch)
    words = "memory request 1536Mi, memory limit 1536Mi, cell 1 1Gi"
    assert describe(patch) == words
    before = parse_resources(pod["spec"]["virtualMachine"]["resources"])
    assert undo_options(patch, before) == "--numa 1=256Mi"


@pytest.mark.parametrize(
    ("words", "memory", "sentence"),
    [
        (["2=1Gi"], "", "there is no cell 2; the virtual machine has 0 and 1"),
        (["1=-256Mi"], "", "cell 1 has 256Mi, and -256Mi would leave nothing of it"),
        (["1=1Gi"], "1Gi", "--memory 1Gi is not what the cells come to, 1536Mi: leave it out"),
        (["1=1Gi"], "+1Gi", "--memory +1Gi is not what the cells come to, 1536Mi: leave it out"),
    ],
)
def test_refused(words: list[str], memory: str, sentence: str) -> None:
    refusal = planned(vm("512Mi", "256Mi"), *words, memory=memory)
    assert refusal == ResizeRefusal(sentence)


def test_a_vm_without_cells_has_none_to_change() -> None:
    pod = vm()
    del pod["spec"]["virtualMachine"]["numa"]
    refusal = planned(pod, "0=1Gi")
    assert isinstance(refusal, ResizeRefusal)
    assert "has no NUMA cells: say the size with --memory" in refusal.sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1"], "'1' is not CELL=SIZE such as 1=1Gi or 0=+512Mi"),
        (["-1=1Gi"], "'-1=1Gi' is not CELL=SIZE such as 1=1Gi or 0=+512Mi"),
        (["1=much"], "'much' is not a quantity such as 512Mi or 4Gi"),
        (["1=+-5Mi"], "'+-5Mi' has two signs; a change is one, such as +512Mi"),
        (["1=4"], "memory of 4 bytes; did you mean 1=4Gi?"),
        (["1=1Gi", "01=2Gi"], "cell 1 is named twice"),
    ],
)
def test_words_that_say_nothing(words: list[str], sentence: str) -> None:
    assert parse_cells(words) == ResizeRefusal(sentence)


amounts = st.integers(32, 1024).map(lambda blocks: 2 * blocks)


@given(st.lists(amounts, min_size=1, max_size=8), st.data())
def test_the_sum_is_always_right(now: list[int], data: st.DataObject) -> None:
    pod = vm(*(f"{amount}Mi" for amount in now))
    named = data.draw(st.sets(st.integers(0, len(now) - 1), min_size=1))
    wanted = {cell: data.draw(amounts) for cell in sorted(named)}
    patch = planned(pod, *(f"{cell}={amount}Mi" for cell, amount in wanted.items()))
    assert isinstance(patch, ResizePatch)
    total = sum({**dict(enumerate(now)), **wanted}.values()) * MIB
    assert memory_bytes(patch.resources["limits"]["memory"]) == total


def test_what_is_on_its_way_is_said_for_each_cell() -> None:
    told: Object = {
        "memory": {"technology": "dimm"},
        "cells": [
            {"id": 0, "requested": "512Mi", "plugged": "512Mi", "seen": "480Mi"},
            {"id": 1, "requested": "1Gi", "plugged": "768Mi"},
        ],
    }
    guest = {
        "vcpusPlugged": 1,
        "vcpusOnline": 1,
        "memoryRequested": "1536Mi",
        "memoryPlugged": "1280Mi",
        "memorySeen": "1200Mi",
    }
    message = "memory: the guest has not let go of ua-dimm1"
    condition = {"type": "PodResizeInProgress", "status": "True", "reason": "Error"}
    status = {
        "virtualMachineStatus": {"guest": guest, **told},
        "conditions": [{**condition, "message": message}],
    }
    pod = {**vm("512Mi", "1Gi"), "status": status}
    assert guest_table(pod).rows == (
        ("vCPUs", "1", "1", "1", "-"),
        ("memory", "1536Mi", "1280Mi", "1200Mi", "+256Mi"),
        ("memory of cell 0", "512Mi", "512Mi", "480Mi", "-"),
        ("memory of cell 1", "1Gi", "768Mi", "-", "+256Mi"),
    )
    assert on_its_way(pod) == (
        "memory 1536Mi → 1280Mi → 1200Mi, +256Mi to go, memory of cell 1 1Gi → 768Mi → -, +256Mi"
        " to go"
    )
    assert cell_words(pod) == "0: 512Mi → 512Mi → 480Mi, 1: 1024Mi → 768Mi → -"
    assert vm_lines(pod) == ["Memory by dimm", message]
    assert guest_table({"spec": {"containers": []}}).rows == ()
