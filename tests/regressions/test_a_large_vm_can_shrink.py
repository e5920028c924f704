"""A large virtual machine whose guest uses all of its memory got smaller, and its group never did.

On cgroup v2 a lowered limit had to leave 5 % above what QEMU holds. The limit of a virtual machine
is the guest's memory and the overhead for QEMU, which from 4 GiB on is less than that: the resize
waited for memory that nobody would ever free.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.api.group_changes import SetMemory
from livesize.api.vm_size import VmSize, vm_overhead_bytes
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import MemoryInUseError, PodGroup
from livesize.runtime.libvirt.runtime import LibvirtRuntime, LibvirtSettings

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize("guest_gib", [1, 4, 8, 64, 512])
async def test_the_group_follows_a_guest_that_uses_all_of_its_memory(
    tmp_path: Path, guest_gib: int
) -> None:
    guest = guest_gib * GIB
    size = VmSize(2, guest, 8, 4 * guest, guest)
    target = guest + vm_overhead_bytes(size)
    held = guest + 100 * MIB + guest // 512  # QEMU itself, and its page tables
    group = tmp_path / "vms/pod-u"
    group.mkdir(parents=True)
    for name, text in {
        "memory.max": str(2 * target),
        "memory.current": str(held),
        "memory.stat": f"active_anon {held}\nkernel 0",
    }.items():
        (group / name).write_text(text)
    cgroups = CgroupsV2(str(tmp_path), SystemClock(), files=GroupFileCache(0))
    settings = LibvirtSettings(cgroups=cgroups)
    runtime = LibvirtRuntime(tmp_path, tmp_path, "vms", system_context(), settings=settings)
    await runtime.write(PodGroup("u"), SetMemory(target))
    assert cgroups.memory_limit("vms/pod-u") == target
    with pytest.raises(MemoryInUseError):
        await runtime.write(PodGroup("u"), SetMemory(held + 31 * MIB))
