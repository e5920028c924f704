"""What was asked of a guest and no domain tells: the balloon's target, and unplugs under way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.vm_changes import DeviceKind, Unplug, VmDevice
from livesize.runtime.libvirt.outstanding import BalloonRequest, Unplugs

GIB = 1 << 30
sizes = st.integers(0, 8).map(lambda count: count * GIB)


@pytest.mark.parametrize(
    ("rule", "current", "known"),
    [
        ("on its way, it was asked for what it was", [3, 2], (1, False)),
        ("there, it is there", [3, 1], (1, True)),
        ("at rest, it stays", [1, 1, 1], (1, True)),
        ("moved by another program, that is what is known", [3, 1, 2], (2, True)),
        ("and followed", [1, 2, 4], (4, True)),
    ],
)
def test_what_a_balloon_was_asked_for(
    rule: str, current: list[int], known: tuple[int, bool]
) -> None:
    request = BalloonRequest(1)
    for bytes_left in current:
        request = request.after(bytes_left)
    assert (request.memory_bytes, request.is_reached) == known, rule


@given(sizes, st.lists(sizes, max_size=8))
def test_a_balloon_at_rest_has_what_is_known_of_it(wanted: int, moves: list[int]) -> None:
    request = BalloonRequest(wanted)
    for current in moves:
        request = request.after(current)
        assert request.memory_bytes in (wanted, current)
        assert not request.is_reached or request.memory_bytes == current


def test_a_guest_that_rebooted_gives_back_once_more() -> None:
    request = BalloonRequest(1).after(1).rebooted()
    assert [request.after(left).memory_bytes for left in (4, 3, 1)] == [1, 1, 1]


def dimm(number: int) -> VmDevice:
    return VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, 0, GIB, GIB, GIB)


def test_an_unplug_is_shown_with_its_device_and_forgotten_with_it() -> None:
    unplugs = Unplugs()
    unplugs.set("ua-dimm0", Unplug.PENDING)
    unplugs.set("ua-dimm1", Unplug.REJECTED)
    devices = [dimm(number) for number in range(3)]
    shown = [device.unplug for device in unplugs.shown(devices)]
    assert shown == [Unplug.PENDING, Unplug.REJECTED, Unplug.NONE]
    unplugs.keep(devices[1:])
    assert unplugs.of("ua-dimm0") is Unplug.NONE, "another device may have the name by now"
    assert unplugs.of("ua-dimm1") is Unplug.REJECTED
    unplugs.set("ua-dimm1", Unplug.NONE)
    assert unplugs.of("ua-dimm1") is Unplug.NONE
    unplugs.set("ua-dimm2", Unplug.PENDING)
    unplugs.forget()
    assert unplugs.of("ua-dimm2") is Unplug.NONE
