"""What the guest, QEMU and the kernel say of a virtual machine, beside what was promised. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from livesize.demo.groups import GroupProof, check_group, format_limit, format_quota
from livesize.demo.guest_witness import GuestReading
from livesize.demo.promises import promise
from livesize.demo.vm_scenes import DemoVm, DemoVmSize

_MIB = 1 << 20


class VmProof(msgspec.Struct, frozen=True):
    """What the guest says of itself, libvirt of the DIMMs in its QEMU, and the kernel of that."""

    guest: GuestReading
    group: GroupProof
    dimms_bytes: tuple[int, ...] = ()


Proofs: TypeAlias = Sequence[tuple[str, DemoVmSize, VmProof]]


def check_proof(
    word: str, size: DemoVmSize, proof: VmProof, first: VmProof, vm: DemoVm, overhead_bytes: int
) -> None:
    guest, before = proof.guest, first.guest
    promise(
        guest.boot_id == before.boot_id and guest.uptime_seconds >= before.uptime_seconds,
        f"{word}: the guest has booted again: boot id {before.boot_id} became {guest.boot_id}",
    )
    promise(
        guest.vcpus_online == size.vcpus,
        f"{word}: the guest uses {guest.vcpus_online} vCPUs, not {size.vcpus}",
    )
    _check_memory(word, size, guest, before, vm.start)
    plugged = 0 if vm.has_cells else size.memory_mib - vm.start.memory_mib
    in_dimms = sum(proof.dimms_bytes) // _MIB
    promise(in_dimms == plugged, f"{word}: there are {in_dimms} MiB of DIMMs, not {plugged}")
    limit_bytes = size.memory_mib * _MIB + overhead_bytes
    check_group(word, proof.group, first.group, (size.vcpus * 1000, limit_bytes))


def _check_memory(
    word: str, size: DemoVmSize, guest: GuestReading, before: GuestReading, start: DemoVmSize
) -> None:
    """The guest's kernel keeps some of the first memory for itself, and nothing of what comes and
    goes: each node has moved by exactly what its cell was to."""
    nodes = len(guest.nodes_bytes)
    promise(nodes == len(size.cells_mib), f"{word}: the guest has {nodes} NUMA nodes")
    cells = zip(size.cells_mib, start.cells_mib, guest.nodes_bytes, before.nodes_bytes, strict=True)
    for node, (wanted_mib, first_mib, now_bytes, first_bytes) in enumerate(cells):
        added, wanted = now_bytes - first_bytes, (wanted_mib - first_mib) * _MIB
        promise(
            added == wanted,
            f"{word}: node {node} of the guest has {added} bytes more than at first, not {wanted}",
        )
    added = guest.memory_total_bytes - before.memory_total_bytes
    wanted = (size.memory_mib - start.memory_mib) * _MIB
    promise(
        added == wanted, f"{word}: the guest has {added} bytes more than at first, not {wanted}"
    )


def proof_table(proofs: Proofs) -> list[str]:
    _, _, first = proofs[0]
    nodes = len(first.guest.nodes_bytes)
    if nodes > 1:
        titles = "".join(f"{f'node {number}':>11}" for number in range(nodes))
    else:
        titles = f"{'MemTotal':>11} {'DIMMs':>14}"
    heading = (
        f"{'':8}{'CPUs':>4}{titles} {'uptime':>8}  {'boot id':8} │"
        f" {'QEMU pid':>8} {'cgroup CPU':>11} {'cgroup memory':>14}"
    )
    return [heading, *(_proof_row(word, proof) for word, _, proof in proofs)]


def _proof_row(word: str, proof: VmProof) -> str:
    guest, group = proof.guest, proof.group
    if len(guest.nodes_bytes) > 1:
        memory = "".join(f"{_mib(amount):>11}" for amount in guest.nodes_bytes)
    else:
        dimms = " + ".join(str(one // _MIB) for one in proof.dimms_bytes)
        memory = f"{_mib(guest.memory_total_bytes):>11} {f'{dimms} MiB' if dimms else 'none':>14}"
    return (
        f"{word:8}{guest.vcpus_online:>4}{memory} {guest.uptime_seconds:>6.1f} s "
        f" {guest.boot_id[:8]:8} │ {group.pid:>8} {format_quota(group.quota_us):>11}"
        f" {format_limit(group.limit_bytes):>14}"
    )


def verdict(proofs: Proofs, overhead_bytes: int) -> str:
    """All of them have been checked."""
    (_, start, first), (*_, last) = proofs[0], proofs[-1]
    lived = last.guest.uptime_seconds - first.guest.uptime_seconds
    promise(lived > 0, "the guest's clock stands still")
    kept = start.memory_mib - first.guest.memory_total_bytes // _MIB
    return (
        f"Same guest all the way: up for {last.guest.uptime_seconds:.1f} s without a reboot, in the"
        f" same QEMU (pid {first.group.pid}, started at tick {first.group.start_ticks}); no"
        f" restart. The guest's kernel keeps {kept} MiB for itself; the cgroup holds the guest's"
        f" memory and {overhead_bytes // _MIB} MiB for QEMU."
    )


def _mib(amount_bytes: int) -> str:
    return f"{amount_bytes // _MIB} MiB"
