"""Waiting for a guest: what was changed is read back by itself, and guests are left in peace."""

from __future__ import annotations

import asyncio
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    VmNote,
    VmTune,
)
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt import changes
from livesize.runtime.libvirt.changes import DomainReading
from livesize.runtime.libvirt.code_cache import region_starts, untouched_regions
from livesize.runtime.libvirt.facts import parse_facts
from livesize.runtime.libvirt.memory_xml import alias_of
from livesize.runtime.libvirt.model import NOTE_URI, decode_note, render, render_note
from livesize.runtime.libvirt.model import parse as parse_model
from livesize.runtime.libvirt.wait_plan import (
    GuestPolling,
    Look,
    Pause,
    Return,
    WaitAction,
    WaitObservation,
    WaitPlan,
    may_hold,
)
from livesize.runtime.libvirt.wakeups import Broadcast, Throttle
from livesize.runtime.vm import Accelerator, GuestView, VmView

GOLDEN = Path(__file__).parent / "golden"
LIVE = (GOLDEN / "live.xml").read_text()
KEPT = (GOLDEN / "domain_disk_no_room.xml").read_text()
MIB = 1024 * 1024
LIBVIRT = SimpleNamespace(
    VIR_DOMAIN_AFFECT_LIVE=1,
    VIR_DOMAIN_AFFECT_CONFIG=2,
    VIR_DOMAIN_XML_INACTIVE=2,
    VIR_DOMAIN_METADATA_ELEMENT=2,
    VIR_DOMAIN_VCPU_HOTPLUGGABLE=16,
    libvirtError=ConnectionRefusedError,
)


# When a guest is asked.


def test_a_guest_that_speaks_up_is_left_in_peace_until_it_was_quiet_for_long() -> None:
    polling = GuestPolling(speaks_up=True, now=0.0)
    assert [polling.is_due(settled=True, now=now) for now in (0.02, 0.1, 0.24, 0.26, 0.3)] == [
        *(False, False, False, True, False)
    ]
    polling.spoke(0.5)
    assert not polling.is_due(settled=True, now=0.6)


def test_it_is_asked_once_when_its_memory_has_come_to_rest() -> None:
    polling = GuestPolling(speaks_up=True, now=0.0)
    told = [(False, 0.02), (False, 0.05), (True, 0.08), (True, 0.1)]
    due = [polling.is_due(settled=settled, now=now) for settled, now in told]
    assert due == [False, False, True, False]


@given(st.lists(st.floats(0, 100), max_size=20))
def test_one_that_never_speaks_by_itself_is_asked_whenever_its_memory_rests(
    times: list[float],
) -> None:
    polling = GuestPolling(speaks_up=False, now=0.0)
    assert all(polling.is_due(settled=True, now=now) for now in sorted(times))
    assert not polling.is_due(settled=False, now=200.0)


async def test_several_words_in_a_row_are_heard_as_one() -> None:
    broadcast, loop = Broadcast(), asyncio.get_running_loop()
    for number in range(1, 4):
        loop.call_later(0.01 * number, broadcast.wake_all)
    assert await broadcast.wait(1.0)
    await broadcast.rest(0.5, wakeups=2)
    assert not await broadcast.wait(0.02), "two more were gathered"
    loop.call_later(0.01, broadcast.wake_all)
    await broadcast.rest(0.03, wakeups=10)
    assert not await broadcast.wait(0.02), "and so was this one, until it was quiet"


def vm_view(seen_mib: int, online: int = 1) -> VmView:
    """512 MiB are plugged of 1024 that were asked for."""
    device = VmDevice("ua-memory0", DeviceKind.VIRTIO_MEM, 0, 1536 * MIB, 512 * MIB)
    guest = GuestView("b", 5.0, online, seen_mib * MIB, 100 * MIB, agent=True)
    return VmView(
        pod_uid="u",
        running=True,
        accelerator=Accelerator.TCG,
        max_vcpus=4,
        plugged_vcpus=2,
        persistent_vcpus=1,
        boot_memory_bytes=512 * MIB,
        max_memory_bytes=2048 * MIB,
        devices=(device,),
        persistent_devices=(msgspec.structs.replace(device, requested_bytes=0),),
        guest=guest,
        note=VmNote(),
        read_at=0.0,
    )


@pytest.mark.parametrize(
    ("view", "worth_looking"),
    [
        pytest.param(vm_view(seen_mib=700), False, id="the guest sees a part of it"),
        pytest.param(vm_view(seen_mib=900), True, id="the guest sees all of it"),
        pytest.param(vm_view(seen_mib=400, online=2), True, id="what was read before is enough"),
    ],
)
def test_a_domain_is_looked_at_when_its_guest_has_said_what_is_waited_for(
    view: VmView, *, worth_looking: bool
) -> None:
    def holds(now: VmView) -> bool:
        assert now.guest is not None
        has_memory = now.plugged_memory_bytes == 1024 * MIB
        has_memory = has_memory and now.guest.memory_seen_bytes == 900 * MIB
        return has_memory or now.guest.vcpus_online == 2

    assert may_hold(holds, view) is worth_looking


@pytest.mark.parametrize(
    ("unplug", "worth_looking"), [(Unplug.PENDING, True), (Unplug.NONE, False)]
)
def test_a_domain_is_looked_at_when_what_it_may_have_done_by_now_is_waited_for(
    unplug: Unplug, *, worth_looking: bool
) -> None:
    size = 128 * MIB
    dimm = VmDevice("ua-dimm0", DeviceKind.DIMM, 0, size, size, size, unplug)
    view = msgspec.structs.replace(MOVING, devices=(dimm,), balloon=VmBalloon(256 * MIB, 512 * MIB))
    assert may_hold(lambda now: not now.devices, view) is worth_looking
    assert may_hold(lambda now: now.balloon == VmBalloon(256 * MIB, 256 * MIB), view)


# What a wait does next.


def is_whole(view: VmView) -> bool:
    return view.plugged_memory_bytes == 1024 * MIB


def whole(view: VmView) -> VmView:
    (device,) = view.devices
    moved = msgspec.structs.replace(device, current_bytes=512 * MIB)
    return msgspec.structs.replace(view, devices=(moved,))


def actions(*seen: WaitObservation, timeout_seconds: float = 60.0) -> list[WaitAction]:
    plan = WaitPlan(is_whole, timeout_seconds, seen[0])
    return [plan.next_action(one) for one in seen]


MOVING = vm_view(seen_mib=400)


def at(now: float, view: VmView | None = MOVING, said: int = 0, **more: bool) -> WaitObservation:
    return WaitObservation(now, view, said, **{"speaks_up": True, **more})


def test_a_guest_without_a_line_is_asked_first() -> None:
    assert actions(at(0.0, None, speaks_up=False)) == [Look(ask_guest=True)]
    assert actions(at(0.0, None)) == [Look(ask_guest=False)], "one that speaks up is left in peace"


def test_what_the_guest_said_before_is_asked_again() -> None:
    done = whole(MOVING)
    assert actions(at(0.0, done), at(0.1, done), at(0.2, done, said=1)) == [
        *(Look(ask_guest=True), Look(ask_guest=True), Return())
    ]


def test_pauses_grow_up_to_a_bound_and_end_in_a_look() -> None:
    unheard = {"speaks_up": False}
    seen = [at(0.1 * number, **unheard) for number in range(21)]
    first, *rest = actions(*seen)
    assert first == Look(ask_guest=True)
    pauses = [one.seconds for one in rest if isinstance(one, Pause)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.02, 0.25)
    assert [isinstance(one, Pause) for one in rest] == [True, False] * 10
    assert Look(ask_guest=True) not in rest, "its memory is still on the way"


def test_a_word_that_does_not_help_costs_no_look() -> None:
    lagging = msgspec.structs.replace(MOVING, devices=())
    woken = at(0.1, lagging, said=1, woken=True)
    assert actions(at(0.0, lagging), woken) == [Pause(0.25), Pause(0.25)]
    late = at(0.3, lagging, said=1, woken=True)
    assert actions(at(0.0, lagging), late) == [Pause(0.25), Look(ask_guest=False)]


def test_a_word_that_may_be_what_is_waited_for_is_followed_by_a_look() -> None:
    spoke, looked = at(0.1, said=1, woken=True), at(0.12, whole(MOVING), said=1)
    assert actions(at(0.0), spoke, looked) == [Pause(0.25), Look(ask_guest=False), Return()]


def test_a_wait_is_over_with_its_time() -> None:
    assert actions(at(0.0), at(0.1), at(0.2), timeout_seconds=0.2) == [
        *(Pause(0.2), Look(ask_guest=False), Return())
    ]


# What is read back of a change.


class Domain:
    """Says what libvirt would; remembers nothing but what it is told to answer."""

    def __init__(self, xml: str = LIVE, vcpus: int = 1, note: str = "") -> None:
        self.xml = xml
        self.vcpus = vcpus
        self.note = note
        self.reads = 0
        self.refuses: str | None = None

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 — libvirt's own name
        self.reads += 1
        return self.xml

    def vcpusFlags(self, _flags: int) -> int:  # noqa: N802 — libvirt's own name
        return self.vcpus

    def setVcpusFlags(self, _count: int, _flags: int) -> None:  # noqa: N802 — libvirt's own name
        """Accepted, and perhaps not done."""

    def updateDeviceFlags(self, xml: str, _flags: int) -> None:  # noqa: N802 — libvirt's own name
        if self.refuses is not None and self.refuses in xml:
            raise LIBVIRT.libvirtError("memory not found")

    def setMetadata(self, *_: Any) -> None:  # noqa: N802 — libvirt's own name
        """Accepted, and perhaps not done."""

    def metadata(self, _kind: int, uri: str, _flags: int) -> str:
        assert uri == NOTE_URI
        return self.note


@pytest.fixture(autouse=True)
def _libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "load_libvirt", lambda: LIBVIRT)


@pytest.fixture
def reading() -> DomainReading:
    return DomainReading(parse_facts(LIVE), parse_facts(LIVE), is_running=True)


def test_a_plug_that_did_nothing_is_not_taken_for_done(reading: DomainReading) -> None:
    corrected = changes.plug(Domain(vcpus=1), 3)(reading)
    assert corrected.live.vcpus == 1
    assert changes.plug(Domain(vcpus=3), 3)(reading).live.vcpus == 3


def test_a_note_is_what_the_domain_holds_of_it(reading: DomainReading) -> None:
    kept = render_note(VmNote(5 * MIB))
    corrected = changes.write_note(Domain(note=kept), render_note(VmNote(7 * MIB)))(reading)
    assert corrected.live.note == VmNote(5 * MIB)
    assert decode_note(kept) == VmNote(5 * MIB)


def test_a_request_leaves_what_the_guest_holds_as_qemu_said(reading: DomainReading) -> None:
    domain, device = Domain(), reading.live.devices[0]
    more = SetRequested(device.alias, device.requested_bytes + 2 * MIB)
    corrected = changes.change_device(domain, more, reading.live)(reading)
    asked = msgspec.structs.replace(device, requested_bytes=device.requested_bytes + 2 * MIB)
    assert corrected.live.devices == (asked,), "libvirt's own count comes late"
    assert domain.reads == 0, "the guest is at work on it"


def test_a_device_that_was_changed_for_another_is_read_anew(reading: DomainReading) -> None:
    domain, known = Domain(), reading.live
    domain.refuses = "another address"
    elements = {
        one: text.replace("0x03", "another address") for one, text in known.elements.items()
    }
    stale = msgspec.structs.replace(known, elements=elements)
    nothing = SetRequested(known.devices[0].alias, 0)
    changes.change_device(domain, nothing, stale)
    assert domain.reads == 1
    domain.refuses = ""
    with pytest.raises(LIBVIRT.libvirtError):
        changes.change_device(domain, nothing, stale)
    assert domain.reads == 2, "once, and what it says then counts"


def test_what_persists_is_read_and_what_runs_is_left(reading: DomainReading) -> None:
    other = LIVE.replace('current="', 'current="1', 1).replace("current='", "current='1", 1)
    corrected = changes.persist_vcpus(Domain(xml=other), 3)(reading)
    assert corrected.live == reading.live
    assert corrected.persistent == parse_facts(other)


class Stored:
    """A persistent definition with a balloon, changed as libvirt changes one: what is plugged in
    leaves <currentMemory> as it was."""

    def __init__(self) -> None:
        model = msgspec.structs.replace(
            parse_model(KEPT), balloon_bytes=256 * MIB, max_memory_bytes=1024 * MIB
        )
        self.root = ET.fromstring(render(model))

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 — libvirt's own name
        return ET.tostring(self.root, encoding="unicode")

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802 — libvirt's own name
        assert flags == LIBVIRT.VIR_DOMAIN_AFFECT_CONFIG
        devices = self.root.find("devices")
        assert devices is not None
        devices.append(ET.fromstring(xml))

    def detachDeviceAlias(self, alias: str, flags: int) -> None:  # noqa: N802 — libvirt's own name
        assert flags == LIBVIRT.VIR_DOMAIN_AFFECT_CONFIG
        devices = self.root.find("devices")
        assert devices is not None
        for one in devices.findall("memory"):
            if alias_of(one) == alias:
                devices.remove(one)

    def setMemoryFlags(self, kib: int, flags: int) -> None:  # noqa: N802 — libvirt's own name
        assert flags == LIBVIRT.VIR_DOMAIN_AFFECT_CONFIG
        current = self.root.find("currentMemory")
        assert current is not None
        current.text = str(kib)

    def connect(self) -> Stored:
        return self

    def defineXML(self, xml: str) -> None:  # noqa: N802 — libvirt's own name
        self.root = ET.fromstring(xml)


def test_a_dimm_in_the_definition_leaves_what_the_balloon_leaves(reading: DomainReading) -> None:
    domain, stored = Stored(), Definition.PERSISTENT
    for change, total_mib in (
        (PlugDevice("ua-dimm0", 128 * MIB, 0, stored), 384),
        (PlugDevice("ua-dimm1", 256 * MIB, 0, stored), 640),
        (SetBalloon(512 * MIB, stored), 896),
        (UnplugDevice("ua-dimm0", stored), 768),
    ):
        corrected = changes.change_device(domain, change)(reading)
        kept = corrected.persistent
        assert corrected.live == reading.live
        assert kept.balloon_bytes == (256 if total_mib < 700 else 512) * MIB
        dimms = sum(device.size_bytes for device in kept.devices)
        assert kept.balloon_bytes + dimms == total_mib * MIB, change


def test_a_share_of_cpu_time_is_written_whole(reading: DomainReading) -> None:
    domain = Stored()
    for tune in (VmTune(1024, 50_000, 100_000), VmTune(quota_us=2_000), VmTune()):
        corrected = changes.tune_cpu(domain, tune)(reading)
        assert corrected.persistent.tune == tune
        assert corrected.persistent.balloon_bytes == 256 * MIB, "and nothing else"
    with pytest.raises(RuntimeCallError, match="shares is between 2 and 262144, not 1"):
        changes.tune_cpu(domain, VmTune(shares=1))


# QEMU's code cache, from outside.

MAPS = """\
55d0c0000000-55d0c0400000 r-xp 00000000 fe:00 12 /usr/bin/qemu-system-x86_64
7f0000000000-7f00003ff000 rwxp 00000000 00:00 0
7f00003ff000-7f0000400000 ---p 00000000 00:00 0
7f0000400000-7f00007ff000 rwxp 00000000 00:00 0
7f0000900000-7f0000901000 rwxp 00000000 00:00 0
7f0010000000-7f0030000000 rw-p 00000000 00:00 0
"""


def test_a_region_may_be_written_and_run_and_is_large() -> None:
    assert region_starts(MAPS) == [0x7F0000000000, 0x7F0000400000]


def test_a_region_counts_as_used_from_its_first_byte_on() -> None:
    before = untouched_regions(os.getpid())
    assert before is not None
    with mmap.mmap(
        -1, 4 * MIB, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    ) as region:
        assert untouched_regions(os.getpid()) == before + 1
        region[0] = 1
        assert untouched_regions(os.getpid()) == before


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    assert untouched_regions(2**22 + 1) is None


async def test_who_is_told_often_hears_at_once_and_then_now_and_then() -> None:
    told: list[float] = []
    loop = asyncio.get_running_loop()
    throttle = Throttle(0.05, lambda: told.append(loop.time()))
    throttle.soon()
    assert len(told) == 1, "at once"
    for _ in range(1000):
        throttle.soon()
    assert len(told) == 1
    async with asyncio.timeout(5):
        while len(told) < 2:
            await asyncio.sleep(0.001)
    assert told[1] - told[0] >= 0.05
    throttle.soon()
    throttle.close()
    await asyncio.sleep(0.06)
    assert len(told) == 2, "nobody wants to know any more"
