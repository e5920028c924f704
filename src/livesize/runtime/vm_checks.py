"""Whether a virtual machine can be made as a VmConfig says, and how large it may get. Pure."""

from __future__ import annotations

from livesize.api.vm_size import MEMORY_BLOCK_BYTES
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.vm_config import VmConfig


def most_memory(vm: VmConfig) -> int:
    """What can be plugged in at most: each cell has room for all that the VM may grow by, and more
    where its devices are larger."""
    room_bytes = max(1, len(vm.cells)) * (vm.max_memory_bytes - vm.boot_memory_bytes)
    devices_bytes = sum(device.size_bytes for device in vm.devices)
    return vm.boot_memory_bytes + max(room_bytes, devices_bytes)


def check_sizes(vm: VmConfig) -> None:
    """The API has checked this already; a domain must never be made from nonsense."""
    least_bytes = vm.boot_memory_bytes if vm.balloon_bytes is None else vm.balloon_bytes
    wrong = ""
    if not 1 <= vm.vcpus <= vm.max_vcpus:
        wrong = f"{vm.vcpus} vCPUs of at most {vm.max_vcpus}"
    elif vm.topology is not None and vm.max_vcpus % vm.topology.vcpus:
        wrong = f"at most {vm.max_vcpus} vCPUs in sockets of {vm.topology.vcpus}"
    elif not 0 < least_bytes <= vm.memory_bytes <= vm.max_memory_bytes:
        wrong = f"{vm.memory_bytes} bytes, between {least_bytes} and {vm.max_memory_bytes}"
    elif not least_bytes <= vm.boot_memory_bytes <= vm.max_memory_bytes:
        wrong = (
            f"{vm.boot_memory_bytes} bytes to boot with, between {least_bytes} and"
            f" {vm.max_memory_bytes}"
        )
    elif any(size % MEMORY_BLOCK_BYTES for size in _amounts(vm)):
        wrong = "memory that is not a multiple of 2 MiB"
    elif bool(vm.kernel) == bool(vm.disk):
        wrong = "a kernel and a disk to boot from" if vm.kernel else "nothing to boot from"
    wrong = wrong or _wrong_cells(vm)
    if wrong:
        raise RuntimeCallError(f"a VM cannot be made with {wrong}")


def _amounts(vm: VmConfig) -> tuple[int, ...]:
    cells = (cell.memory_bytes for cell in vm.cells)
    balloon_bytes = vm.balloon_bytes or 0
    return vm.boot_memory_bytes, vm.memory_bytes, vm.max_memory_bytes, balloon_bytes, *cells


def _wrong_cells(vm: VmConfig) -> str:
    numbers = [cell.id for cell in vm.cells]
    if numbers != list(range(len(numbers))):
        return f"NUMA cells {numbers}, which are not numbered from 0 on"
    cells_bytes = sum(cell.memory_bytes for cell in vm.cells)
    if vm.cells and cells_bytes != vm.boot_memory_bytes:
        return f"cells of {cells_bytes} bytes together and {vm.boot_memory_bytes} to boot with"
    count = max(1, len(vm.cells))
    strange = [one.alias for one in vm.devices if not 0 <= one.node < count]
    return f"memory device {strange[0]} in none of its {count} cells" if strange else ""
