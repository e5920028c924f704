"""CPU that a shrink has given up is others' at once, though its memory has to wait (design 5.3)."""

from __future__ import annotations

from pathlib import Path

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.allocation.sqlite_file import open_checkpoint
from unit.agent.vm_world import VmWorld
from unit.agent.world import CrashAt, World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1 << 20
SIZE = {"name": "app", "requests": {"cpu": "1"}}


async def test_a_neighbour_grows_into_the_cpu_of_a_shrink_whose_memory_is_held(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod("db", container(cpu="3", memory="512Mi"))
    await world.api.run_pod("web", container(cpu="1"))
    uid, web = await world.running("db"), await world.running("web")
    await world.api.resize("web", "app", cpu="3")
    await world.phase("web", "Deferred")

    world.machine.use_memory(uid, "app", 256 * MIB)
    await world.api.resize("db", "app", cpu="1", memory="64Mi")
    await world.phase("db", "Error")
    await world.phase("web", "Done")
    assert (world.quota_us(uid), world.quota_us(web)) == (100_000, 300_000)

    assert world.agent is not None
    used = world.agent._admission.ledger.used
    assert (used.cpu_milli, used.memory_bytes) == (4000, (512 + 64) * MIB)
    world.machine.use_memory(uid, "app", MIB)
    await world.phase("db", "Done")
    assert world.agent._admission.ledger.used.memory_bytes == (64 + 64) * MIB


async def test_so_it_is_with_a_virtual_machine(tmp_path: Path) -> None:
    world = VmWorld(tmp_path)
    await world.start()
    uid = await world.run_vm("db", cpu="3", memory="2Gi")
    world.vm(uid).use_memory(1800 * MIB)
    await world.api.resize("db", "vm", cpu="1", memory="512Mi")
    await world.phase("db", "Error")
    assert world.agent is not None
    entry = world.agent._admission.ledger.get(uid)
    assert entry is not None
    assert (entry.held.cpu_milli, entry.held.memory_bytes) == (1000, 2048 * MIB)
    assert world.quotas(uid) == (100_000, 100_000)
    await world.stop()
    assert world.violations == []


async def test_books_that_a_crash_leaves_are_put_right_by_the_next_agent(world: World) -> None:
    """Its plan has no step for the CPU any more: the machine has it already."""
    await world.start(CrashAt("resize/pod:cpu/after"))
    await world.api.run_pod("db", container(cpu="3", memory="512Mi"))
    uid = await world.running("db")
    world.machine.use_memory(uid, "app", 256 * MIB)
    await world.api.resize("db", "app", cpu="1", memory="64Mi")
    await world.crashed()
    assert world.quota_us(uid) == 100_000
    await world.start()
    await world.phase("db", "Error")
    assert world.agent is not None
    assert world.agent._admission.ledger.used.cpu_milli == 1000


async def test_what_was_applied_does_not_pass_for_a_newer_promise(tmp_path: Path) -> None:
    """The older of two promises was applied: the newer one is not yet known to be durable, and has
    to be before anything is done for it."""
    checkpoint = await open_checkpoint(tmp_path / "allocations.db")
    older = Allocation("u", "default", "db", 1, (SIZE,), (SIZE,))
    entry = SecuredEntry(checkpoint, None)
    entry.secure(older)
    newer = older.accepted([{"name": "app", "requests": {"cpu": "2"}}], 2)
    both = newer.applied(older.allocated)
    entry.note_applied(both)
    assert not entry.holds(both)
    entry.secure(both)
    entry.note_applied(both.applied(both.allocated))
    assert entry.holds(both.applied(both.allocated))
    await checkpoint.close()
