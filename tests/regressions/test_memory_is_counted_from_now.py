"""A VM's memory is counted from what its guest has when the change begins.

What a guest has said unasked may be older than its last shrink. A change that was counted from that
waited for ever for memory that the guest had given back before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.agent.vm.memory.facts import MemoryFacts, base_of
from livesize.runtime.fake import FakeRuntime
from livesize.runtime.vm import VmView
from livesize.sim.loop import VirtualClock
from unit.agent.vm_world import MIB, VmWorld

STALE_BYTES = 32 * MIB
"""Little enough that it might be true of a guest with so much memory."""


@pytest.fixture
async def world(tmp_path: Path, virtual_clock: VirtualClock) -> AsyncIterator[VmWorld]:
    made = VmWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()
    assert made.violations == []


async def test_a_word_from_before_a_shrink_holds_up_no_growth(
    world: VmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await world.run_vm("db", memory="512Mi")
    newest = FakeRuntime.vm

    def older_word(runtime: FakeRuntime, pod_uid: str) -> VmView | None:
        view = newest(runtime, pod_uid)
        if view is None or view.guest is None or view.plugged_memory_bytes > 512 * MIB:
            return view
        seen_bytes = view.guest.memory_seen_bytes + STALE_BYTES
        guest = msgspec.structs.replace(view.guest, memory_seen_bytes=seen_bytes)
        return msgspec.structs.replace(view, guest=guest)

    monkeypatch.setattr(FakeRuntime, "vm", older_word)
    await world.api.resize("db", "vm", memory="768Mi")
    await world.phase("db", "Done")
    assert world.vm(uid).plugged_bytes == 768 * MIB


def test_a_guest_cannot_have_more_than_it_holds() -> None:
    """It gave memory back between the two readings: nothing is counted from them."""
    read = MemoryFacts(
        boot_bytes=512 * MIB,
        devices=(),
        persistent_devices=(),
        seen_bytes=598 * MIB,
        available_bytes=300 * MIB,
    )
    assert base_of(read) is None
    assert base_of(msgspec.structs.replace(read, seen_bytes=470 * MIB)) is not None
