"""Every memory technology: what it decides, case by case, and what holds after each single step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from livesize.agent.vm.memory.balloon import Balloon
from livesize.agent.vm.memory.dimm import Dimm
from livesize.agent.vm.memory.dimm_choice import chosen_sizes
from livesize.agent.vm.memory.facts import MemoryFacts, is_seen
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryTarget,
    MemoryWait,
)
from livesize.agent.vm.memory.technologies import TECHNOLOGIES
from livesize.api.vm_changes import (
    Definition,
    DeviceKind,
    PlugDevice,
    SetBalloon,
    SetRequested,
    Unplug,
    UnplugDevice,
    VmBalloon,
    VmDevice,
)
from livesize.api.vm_size import CellSize, MemoryBase, Technology
from unit.agent.memory_walk import MIB, MemoryWalk, dimms, size_of, sizes

GIB = 1024  # in MiB, as all sizes here


# Which DIMMs


@pytest.mark.parametrize(
    ("boot", "extra", "free", "devices"),
    [
        pytest.param(512, 1536, 16, [512, 512, 512], id="decisions 22: 512M + 1536M"),
        pytest.param(8 * GIB, 3712, 16, [2048, 1024, 512, 128], id="decisions 22: 8G + 3712M"),
        pytest.param(512, 8 * GIB, 16, [2048] * 4, id="decisions 22: 512M + 8G"),
        pytest.param(500, 4096, 16, [512] * 8, id="a small VM: eight devices"),
        pytest.param(500, 4224, 16, [2048, 2048, 128], id="and not nine"),
        pytest.param(512, 1536, 5, [1024, 512], id="nor more than half of the free slots"),
        pytest.param(2048, 1536, 16, [1024, 512], id="2 GiB are not small"),
        pytest.param(512, 640, 16, [512, 128], id="small in two sizes"),
        pytest.param(512, 0, 0, [], id="nothing"),
        pytest.param(8 * GIB, 32 * GIB, 16, [2048] * 16, id="all slots"),
        pytest.param(8 * GIB, 32 * GIB, 15, None, id="a slot too few"),
        pytest.param(8 * GIB, 32 * GIB - 128, 16, None, id="less, in more devices"),
        pytest.param(512, 100, 16, None, id="not a multiple of 128 MiB"),
    ],
)
def test_which_dimms_make_a_growth(
    boot: int, extra: int, free: int, devices: list[int] | None
) -> None:
    chosen = chosen_sizes(boot * MIB, extra * MIB, free)
    assert (None if chosen is None else [size // MIB for size in chosen]) == devices


def dimm_facts(
    boot: int, have: list[int], available: int | None = 100_000, **more: Any
) -> MemoryFacts:
    """With DIMMs of these sizes, in the order of their names."""
    devices = tuple(
        VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, 0, *(3 * [size * MIB]))
        for number, size in enumerate(have)
    )
    persistent = tuple(replace(one, current_bytes=0) for one in devices)
    seen = boot + sum(have) - 96
    spare = None if available is None else available * MIB
    return replace(MemoryFacts(boot * MIB, devices, persistent, seen * MIB, spare), **more)


def dimm_plan(facts: MemoryFacts, wanted: int, most: int = 0, maximum: int = 0) -> MemoryDecision:
    return Dimm().plan(facts, MemoryTarget(wanted * MIB, most * MIB, max_bytes=maximum * MIB))


def done(decision: MemoryDecision) -> list[list[str]]:
    """Stage by stage: +size or -alias."""
    assert isinstance(decision, MemoryPlan), decision
    return [[_word(change) for change in stage.live] for stage in decision.stages]


def _word(change: object) -> str:
    match change:
        case PlugDevice(size_bytes=size_bytes):
            return f"+{size_bytes // MIB}"
        case UnplugDevice(alias=alias):
            return f"-{alias.removeprefix('ua-dimm')}"
    raise AssertionError(change)


@pytest.mark.parametrize(
    ("have", "wanted", "stages"),
    [
        pytest.param([512] * 3, 512 + 512, [["-2", "-1"]], id="the newest go first"),
        pytest.param([512, 1024, 512], 512 + 1024, [["-1"]], id="the fewest devices"),
        pytest.param([128] * 4 + [512], 512 + 512, [["-4"]], id="one for four"),
        pytest.param([1024, 512, 128], 512 + 1024, [["-1", "-2"]], id="the exact subset"),
        pytest.param([512], 512 + 512 + 640, [["+512", "+128"]], id="growth"),
        pytest.param([512], 1024, [[]], id="nothing to do"),
    ],
)
def test_a_shrink_takes_the_exact_devices(
    have: list[int], wanted: int, stages: list[list[str]]
) -> None:
    assert done(dimm_plan(dimm_facts(512, have), wanted)) == stages


@pytest.mark.parametrize(
    ("have", "wanted", "most", "stages"),
    [
        pytest.param([2048], 2048, 4096, [["+512", "+512", "+512"], ["-0"]], id="a large one"),
        pytest.param(
            [2048], 2432, 4480, [["+512"] * 3 + ["+128"] * 3, ["-0"]], id="just within the groups"
        ),
        pytest.param([512, 512], 1408, 1920, [["+128"] * 3, ["-1"]], id="as little as possible"),
        pytest.param([512] * 14, 7552, 9000, None, id="two free slots are too few for three"),
        pytest.param([2048], 2048, 4095, None, id="beyond what the groups hold"),
        pytest.param(
            [512] * 2, 768, 1536, [["-1"], ["+128", "+128"], ["-0"]], id="one goes to make room"
        ),
        pytest.param(
            [2048] * 2, 2048, 4608, [["-1"], ["+512"] * 3, ["-0"]], id="also of large ones"
        ),
    ],
)
def test_smaller_ones_come_before_a_larger_one_goes(
    have: list[int], wanted: int, most: int, stages: list[list[str]] | None
) -> None:
    decision = dimm_plan(dimm_facts(512, have), wanted, most)
    if stages is None:
        assert isinstance(decision, MemoryRefusal)
    else:
        assert done(decision) == stages


@pytest.mark.parametrize(
    ("have", "wanted", "maximum", "why", "nearest"),
    [
        pytest.param(
            [512], 1100, 4096, "in steps of 128 MiB, not", (1024, 1152), id="not whole steps"
        ),
        pytest.param([512], 256, 4096, "between 536870912", (512,), id="below the boot size"),
        pytest.param([512], 8192, 4096, "and 4294967296 bytes", (4096,), id="over the maximum"),
        pytest.param(
            [2048], 1536, 2560, "no DIMMs that come to as much", (512, 2560), id="no exact subset"
        ),
        pytest.param(
            [128] * 15, 512 + 2048 + 128, 9000, "1 of 16 slots", (2560, 2944), id="no slots"
        ),
    ],
)
def test_a_size_that_no_dimms_make_is_refused_with_the_nearest(
    have: list[int], wanted: int, maximum: int, why: str, nearest: tuple[int, ...]
) -> None:
    facts = dimm_facts(512, have)
    refusal = dimm_plan(facts, wanted, maximum=maximum)
    assert isinstance(refusal, MemoryRefusal)
    assert why in refusal.why
    assert tuple(size // MIB for size in refusal.nearest_bytes) == nearest
    for size in nearest:
        assert isinstance(dimm_plan(facts, size, maximum=maximum), MemoryPlan)


@pytest.mark.parametrize(
    ("available", "wanted", "stages", "left"),
    [
        pytest.param(600, 1024, [["-2"]], 1536, id="one of two can be spared"),
        pytest.param(500, 1024, [[]], 2048, id="none"),
        pytest.param(None, 1024, [[]], 2048, id="it does not say"),
        pytest.param(2000, 1024, [["-2", "-1"]], 1024, id="both"),
    ],
)
def test_a_device_is_asked_for_only_when_the_guest_can_do_without(
    available: int | None, wanted: int, stages: list[list[str]], left: int
) -> None:
    decision = dimm_plan(dimm_facts(512, [512] * 3, available), wanted)
    assert done(decision) == stages
    assert isinstance(decision, MemoryPlan)
    assert decision.requested_bytes == left * MIB


def test_nothing_comes_in_the_place_of_what_cannot_go() -> None:
    decision = dimm_plan(dimm_facts(512, [2048], available=100), 2048, 8192)
    assert done(decision) == [[]]


def test_nothing_goes_to_make_room_that_the_guest_needs() -> None:
    facts = dimm_facts(512, [512] * 2, available=100)
    assert done(dimm_plan(facts, 768, 1536)) == [[]]


def _unplug(facts: MemoryFacts, **states: Unplug) -> MemoryFacts:
    named = {f"ua-{alias}": state for alias, state in states.items()}
    devices = [replace(one, unplug=named.get(one.alias, Unplug.NONE)) for one in facts.devices]
    return replace(facts, devices=tuple(devices))


@pytest.mark.parametrize("wanted", [512, 1024, 1536, 4096])
def test_a_device_that_the_guest_was_asked_for_is_left_in_peace(wanted: int) -> None:
    facts = _unplug(dimm_facts(512, [512, 512]), dimm1=Unplug.PENDING)
    decision = dimm_plan(facts, wanted)
    assert isinstance(decision, MemoryWait)
    assert "asked to give back ua-dimm1 and has not answered yet" in decision.why


def test_of_equal_devices_one_that_was_refused_is_asked_for_last() -> None:
    facts = _unplug(dimm_facts(512, [512, 512]), dimm1=Unplug.REJECTED)
    assert done(dimm_plan(facts, 1024)) == [["-0"]]
    assert done(dimm_plan(facts, 512)) == [["-0", "-1"]], "it is asked again"


def test_the_next_start_has_the_devices_that_run_and_each_by_its_name() -> None:
    facts = dimm_facts(512, [512, 128])
    (first, second) = facts.persistent_devices
    facts = replace(
        facts, persistent_devices=(replace(first, size_bytes=128 * MIB, requested_bytes=128 * MIB),)
    )
    decision = dimm_plan(facts, 1152)
    assert isinstance(decision, MemoryPlan)
    assert decision.persistent == (
        UnplugDevice("ua-dimm0", Definition.PERSISTENT),
        PlugDevice("ua-dimm0", 512 * MIB, 0, Definition.PERSISTENT),
        PlugDevice(second.alias, 128 * MIB, 0, Definition.PERSISTENT),
    )


# Balloon


def balloon_facts(
    boot: int, left: int, used: int = 128, devices: tuple[VmDevice, ...] = ()
) -> MemoryFacts:
    held = left + sum(one.current_bytes for one in devices) // MIB
    return MemoryFacts(
        boot * MIB,
        devices,
        devices,
        (held - 96) * MIB,
        (held - used) * MIB,
        balloon=VmBalloon(left * MIB, left * MIB),
        persistent_balloon=VmBalloon(left * MIB),
    )


@pytest.mark.parametrize(
    ("left", "used", "wanted", "asked"),
    [
        pytest.param(2048, 128, 1024, 1024, id="down"),
        pytest.param(1024, 128, 2048, 2048, id="up"),
        pytest.param(2048, 1500, 1024, 1564, id="as far as the guest can spare"),
        pytest.param(2048, 2010, 1024, None, id="it can spare nothing"),
        pytest.param(1024, 128, 1024, None, id="nothing to do"),
    ],
)
def test_the_balloon_takes_what_the_guest_can_spare(
    left: int, used: int, wanted: int, asked: int | None
) -> None:
    target = MemoryTarget(wanted * MIB, 4096 * MIB, min_bytes=512 * MIB)
    decision = Balloon().plan(balloon_facts(4096, left, used), target)
    assert isinstance(decision, MemoryPlan)
    assert decision.live == (() if asked is None else (SetBalloon(asked * MIB),))
    persistent = (SetBalloon(wanted * MIB, Definition.PERSISTENT),)
    assert decision.persistent == (() if wanted == left else persistent)


@pytest.mark.parametrize(("wanted", "nearest"), [(256, (512,)), (4098, (4096,)), (8192, (4096,))])
def test_the_balloon_keeps_between_the_least_and_what_the_vm_boots_with(
    wanted: int, nearest: tuple[int, ...]
) -> None:
    target = MemoryTarget(wanted * MIB, 4096 * MIB, min_bytes=512 * MIB)
    refusal = Balloon().plan(balloon_facts(4096, 2048), target)
    assert isinstance(refusal, MemoryRefusal)
    assert tuple(size // MIB for size in refusal.nearest_bytes) == nearest


def test_a_balloon_knows_no_cells() -> None:
    cells = (CellSize(0, 2048 * MIB), CellSize(1, 2048 * MIB))
    facts = replace(balloon_facts(4096, 4096), cells=cells)
    refusal = Balloon().plan(facts, MemoryTarget(2048 * MIB, 4096 * MIB))
    assert isinstance(refusal, MemoryRefusal)
    assert "NUMA" in refusal.why


# auto


def auto(facts: MemoryFacts, wanted: int) -> list[list[object]]:
    target = MemoryTarget(wanted * MIB, 9000 * MIB, min_bytes=512 * MIB)
    decision = TECHNOLOGIES["auto"].plan(facts, target)
    assert isinstance(decision, MemoryPlan), decision
    base_bytes, devices = facts.requested_bytes, {one.alias: one for one in facts.devices}
    for stage in decision.stages:
        for change in stage.live:
            match change:
                case SetBalloon(memory_bytes=memory_bytes):
                    assert stage.requested_bytes == memory_bytes
                case SetRequested(alias=alias, requested_bytes=requested_bytes):
                    moved_bytes = requested_bytes - devices[alias].requested_bytes
                    expected_bytes = max(base_bytes, facts.boot_bytes) + moved_bytes
                    assert stage.requested_bytes == expected_bytes
    return [list(stage.live) for stage in decision.stages]


def plugged(size: int) -> tuple[VmDevice, ...]:
    return (VmDevice("ua-memory0", DeviceKind.VIRTIO_MEM, 0, 4096 * MIB, size * MIB, size * MIB),)


@pytest.mark.parametrize(
    ("facts", "wanted", "stages"),
    [
        pytest.param(
            balloon_facts(2048, 1024, devices=plugged(0)),
            3072,
            [[SetBalloon(2048 * MIB)], [SetRequested("ua-memory0", 1024 * MIB)]],
            id="the balloon is empty before memory is plugged in",
        ),
        pytest.param(
            balloon_facts(2048, 2048, devices=plugged(1024)),
            1024,
            [[SetRequested("ua-memory0", 0)], [SetBalloon(1024 * MIB)]],
            id="all is unplugged before the balloon is filled",
        ),
        pytest.param(
            balloon_facts(2048, 2048, devices=plugged(1024)),
            2048,
            [[SetRequested("ua-memory0", 0)]],
            id="to what it boots with",
        ),
        pytest.param(
            balloon_facts(2048, 1024, devices=plugged(0)),
            2048,
            [[SetBalloon(2048 * MIB)]],
            id="and back to it",
        ),
        pytest.param(
            balloon_facts(2048, 2048, used=2400, devices=plugged(1024)),
            1024,
            [[SetRequested("ua-memory0", 456 * MIB)]],
            id="it is not filled while the guest needs what is plugged in",
        ),
        pytest.param(
            balloon_facts(2048, 2048, used=1500, devices=plugged(1024)),
            1024,
            [[SetRequested("ua-memory0", 0)], [SetBalloon(1564 * MIB)]],
            id="both, as far as the guest can spare",
        ),
        pytest.param(
            balloon_facts(2048, 1536, devices=plugged(0)),
            1024,
            [[SetBalloon(1024 * MIB)]],
            id="below it only the balloon",
        ),
    ],
)
def test_auto_goes_by_the_balloon_below_and_by_plugging_above(
    facts: MemoryFacts, wanted: int, stages: list[list[object]]
) -> None:
    assert auto(facts, wanted) == stages


def test_auto_refuses_less_than_the_least() -> None:
    target = MemoryTarget(256 * MIB, 9000 * MIB, min_bytes=512 * MIB)
    refusal = TECHNOLOGIES["auto"].plan(balloon_facts(2048, 2048), target)
    assert isinstance(refusal, MemoryRefusal)
    assert refusal.nearest_bytes == (512 * MIB,)


# Cells

BOOT_CELLS = tuple(CellSize(cell, 512 * MIB) for cell in range(4))
WITH_CELLS = size_of(2048, 2048, 8192, cells=BOOT_CELLS, boot_cells=BOOT_CELLS)
CELL_TECHNOLOGIES = ("virtio-mem", "dimm", "auto")


@pytest.mark.parametrize("name", CELL_TECHNOLOGIES)
def test_only_the_named_cell_moves(name: str) -> None:
    """ARK: "set VM with 4 NUMA nodes, do #2 for NUMA node 1"."""
    walk = MemoryWalk(name, WITH_CELLS)
    for extra in (512, 1536, 0):
        assert walk.resize(2048 + extra, {1: 512 + extra}) == ""
        assert [size // MIB for size in walk.memory.seen_by_node] == [416, 512 + extra, 512, 512]


@pytest.mark.parametrize("name", CELL_TECHNOLOGIES)
def test_memory_goes_from_cell_to_cell(name: str) -> None:
    walk = MemoryWalk(name, WITH_CELLS)
    assert walk.resize(3072, {1: 1536}) == ""
    assert walk.resize(3072, {1: 512, 3: 1536}) == "", "the groups have no room for both at once"
    walk.pod_bytes = walk.vm_bytes = 8192 * MIB
    steps = [step.name for step in walk.plan(3072 * MIB, _cells(1536, 512)).steps]
    assert steps.index("vm:memory:guest") < len(steps) - 1 - steps[::-1].index("vm:memory:guest")
    assert walk.resize(3072, {1: 1536, 3: 512}) == ""


@pytest.mark.parametrize("name", CELL_TECHNOLOGIES)
def test_a_cell_waits_for_what_another_cannot_give_yet(name: str) -> None:
    walk = MemoryWalk(name, WITH_CELLS)
    assert walk.resize(3072, {1: 1536}) == ""
    walk.memory.used_bytes = 2300 * MIB
    assert walk.resize(3072, {1: 512, 3: 1536}) == "the guest cannot spare the rest"
    assert walk.facts().plugged_by_cell[3] == 512 * MIB
    walk.memory.used_bytes = 32 * MIB
    assert walk.resize(3072, {1: 512, 3: 1536}) == ""


def _cells(first: int, third: int) -> dict[int, int]:
    return {0: 512 * MIB, 1: first * MIB, 2: 512 * MIB, 3: third * MIB}


@pytest.mark.parametrize("name", CELL_TECHNOLOGIES)
@pytest.mark.parametrize(
    ("wanted", "cells", "why"),
    [
        pytest.param(1536, {2: 0}, "NUMA cell 2 of the VM boots with", id="below its boot size"),
        pytest.param(2560, {7: 512}, "the VM has the NUMA cells 0, 1, 2, 3", id="an unknown one"),
        pytest.param(10240, {1: 8704}, "NUMA cell 1 of the VM can have", id="over the maximum"),
    ],
)
def test_a_cell_that_cannot_have_its_size_is_refused(
    name: str, wanted: int, cells: dict[int, int], why: str
) -> None:
    assert MemoryWalk(name, WITH_CELLS).resize(wanted, cells).startswith(why)


def test_a_vm_without_cells_refuses_them() -> None:
    facts = MemoryWalk("virtio-mem", size_of(512, 512, 2048)).facts()
    target = MemoryTarget(1024 * MIB, 1024 * MIB, (CellSize(0, 1024 * MIB),))
    refusal = TECHNOLOGIES["virtio-mem"].plan(facts, target)
    assert isinstance(refusal, MemoryRefusal)
    assert "without NUMA cells" in refusal.why


def test_a_node_that_lacks_memory_is_told_from_one_that_has_more() -> None:
    base = MemoryBase(2048 * MIB, 1900 * MIB, "boot", (1024 * MIB, 1024 * MIB), (900 * MIB, GIB))
    device = VmDevice("ua-memory1", DeviceKind.VIRTIO_MEM, 1, 4096 * MIB, *(2 * [512 * MIB]))
    cells = (CellSize(0, 1024 * MIB), CellSize(1, 1024 * MIB))
    facts = MemoryFacts(2048 * MIB, (device,), (), 2412 * MIB, None, cells=cells, boot_id="boot")
    there = (900 * MIB, GIB + 512 * MIB)
    wrong = (900 * MIB + 512 * MIB, GIB)
    assert is_seen(replace(facts, seen_by_node=there), base)
    assert not is_seen(replace(facts, seen_by_node=wrong), base), "the other node has it"
    assert is_seen(replace(facts, seen_by_node=wrong, boot_id="other"), base), "it booted since"
    assert is_seen(facts, base), "where the guest does not tell of nodes the total counts"


# What a domain is made with


@pytest.mark.parametrize("name", sorted(TECHNOLOGIES))
@pytest.mark.parametrize(
    ("boot", "now", "most"),
    [
        pytest.param(500, 500, 2000, id="500 MiB"),
        pytest.param(512, 2048, 8192, id="small"),
        pytest.param(8 * GIB, 8 * GIB + 3712, 32 * GIB, id="8 GiB and 3712 MiB"),
        pytest.param(1024 * GIB, 1032 * GIB, 4096 * GIB, id="up to 4 TiB"),
        pytest.param(4096 * GIB, 4096 * GIB, 4096 * GIB, id="4 TiB"),
    ],
)
def test_a_domain_is_made_at_its_size_and_is_in_step(
    name: str, boot: int, now: int, most: int
) -> None:
    """F90: "boots again at its last allocated size"."""
    walk = MemoryWalk(name, size_of(boot, now, most, boot // 2))
    assert walk.memory.requested_bytes == now * MIB
    assert walk.plan(now * MIB).changing == ()
    if name != "dimm" and most > now:
        assert walk.resize(most) == ""
        assert walk.resize(now) == ""


def test_a_dimm_vm_is_made_with_an_equivalent_set() -> None:
    walk = MemoryWalk("dimm", size_of(8 * GIB, 8 * GIB, 64 * GIB))
    for extra in (128, 256, 384, 512, 2560):
        assert walk.resize(8 * GIB + extra) == ""
    again = MemoryWalk("dimm", size_of(8 * GIB, 8 * GIB + 2560, 64 * GIB))
    assert again.memory.plugged_bytes == walk.memory.plugged_bytes
    assert len(again.memory.devices) <= len(walk.memory.devices)


@pytest.mark.parametrize(("name", "least"), [("balloon", 512), ("auto", 512), ("auto", 0)])
def test_which_vms_have_a_balloon(name: str, least: int) -> None:
    walk = MemoryWalk(name, size_of(1024, 1024, 4096, least))
    balloon = walk.memory.balloon
    assert (None if balloon is None else balloon.requested_bytes) == (1024 * MIB if least else None)
    assert walk.memory.boot_bytes == (4096 if name == "balloon" else 1024) * MIB


# Properties

STEPS = st.integers(0, 60)


@st.composite
def walks(draw: st.DrawFn, name: str) -> tuple[MemoryWalk, int]:
    """A VM without cells, and the unit of its sizes in MiB."""
    boot = draw(st.sampled_from([512, 640, 2048, 8192]))
    unit = 128 if name == "dimm" else draw(st.sampled_from([2, 126, 128]))
    least = draw(st.sampled_from([0, boot // 2, boot]))
    now = boot + unit * draw(st.integers(0, 12))
    return MemoryWalk(name, size_of(boot, now, boot + 64 * 128, least)), unit


@pytest.mark.parametrize("name", list(Technology))
@given(data=st.data())
def test_every_prefix_is_safe_whatever_the_guest_needs(name: str, data: st.DataObject) -> None:
    walk, unit = data.draw(walks(name))
    boot = walk.size.boot_memory_bytes // MIB
    first = boot if name != "balloon" else walk.size.min_memory_bytes // MIB or 128
    for _ in range(data.draw(st.integers(1, 5))):
        down = data.draw(st.booleans()) and name in ("auto", "balloon")
        step = data.draw(STEPS)
        wanted = first + unit * step if not down else max(64, boot - unit * step)
        walk.memory.used_bytes = (
            data.draw(st.integers(32, max(33, walk.memory.plugged_bytes // MIB - 100))) * MIB
        )
        if data.draw(st.booleans()):
            walk.pod_bytes = walk.vm_bytes = max(
                walk.vm_bytes, walk.memory.plugged_bytes + data.draw(STEPS) * 128 * MIB
            )
        walk.resize(wanted)  # arriving or not, it checks each step
        if data.draw(st.booleans()):
            walk.memory.used_bytes = 32 * MIB
            walk.resize(wanted)


@given(data=st.data())
def test_up_then_down_returns_to_the_same_devices(data: st.DataObject) -> None:
    """As long as devices of one rule are there (decisions 22): the largest that a small VM has got
    with many others may come back as several small ones."""
    name = data.draw(st.sampled_from(list(Technology)))
    boot = data.draw(st.sampled_from([512, 2048, 8192]))
    now = boot + 128 * data.draw(st.integers(0, 16))
    walk = MemoryWalk(name, size_of(boot, now, boot + 128 * 128, boot))
    before = (sizes(walk.memory.devices), walk.memory.balloon)
    for up in data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=3)):
        end = walk.resize(now + 128 * up)
        assert end == "" or "slots" in end
        assert walk.resize(now) == ""
        assert (sizes(walk.memory.devices), walk.memory.balloon) == before


@given(
    name=st.sampled_from(CELL_TECHNOLOGIES),
    changes=st.lists(
        st.dictionaries(st.integers(0, 3), st.integers(0, 12), min_size=1, max_size=2), max_size=5
    ),
    used=st.integers(32, 1800),
)
def test_cells_move_by_themselves_and_safely(
    name: str, changes: list[dict[int, int]], used: int
) -> None:
    walk = MemoryWalk(name, WITH_CELLS)
    for change in changes:
        cells = {cell: 512 + 128 * steps for cell, steps in change.items()}
        held = {cell: size // MIB for cell, size in walk.cells.items()}
        wanted = sum({**held, **cells}.values())
        if wanted <= 8192:
            walk.memory.used_bytes = min(used, walk.memory.plugged_bytes // MIB - 200) * MIB
            end = walk.resize(wanted, cells)
            if end:
                walk.memory.used_bytes = 32 * MIB
                walk.resize(wanted, cells)
                walk.cells = walk.facts().plugged_by_cell
    assert len(dimms(walk.memory.devices)) <= 16
