"""The two virtual machines of the demo: what each is made of, and the sizes it goes through.

One has two NUMA cells, of which the second grows and shrinks alone, by virtio-mem, while vCPUs come
and go. The other gets and gives back whole DIMMs. Pure.
"""

from __future__ import annotations

import msgspec

from livesize.api.objects import Object
from livesize.api.vm_size import Technology
from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME


class DemoVmSize(msgspec.Struct, frozen=True):
    """``cells_mib``: the memory of each NUMA node, by its number."""

    vcpus: int
    cells_mib: tuple[int, ...]

    @property
    def memory_mib(self) -> int:
        return sum(self.cells_mib)

    def resources(self) -> Object:
        amounts = {"cpu": str(self.vcpus), "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}

    def __str__(self) -> str:
        cells = " + ".join(str(cell) for cell in self.cells_mib)
        return f"{self.vcpus} vCPU{'s' if self.vcpus > 1 else ''} and {cells} MiB"


class DemoVm(msgspec.Struct, frozen=True):
    """``sizes``: each with a word for what it is to the one before; the first is what it boots
    with."""

    name: str
    technology: Technology
    title: str
    sizes: tuple[tuple[str, DemoVmSize], ...]

    @property
    def start(self) -> DemoVmSize:
        return self.sizes[0][1]

    @property
    def largest_mib(self) -> int:
        return max(size.memory_mib for _, size in self.sizes)

    @property
    def has_cells(self) -> bool:
        return len(self.start.cells_mib) > 1

    def spec(self) -> Object:
        most_vcpus = max(size.vcpus for _, size in self.sizes)
        memory: Object = {"max": f"{self.largest_mib}Mi", "technology": self.technology.value}
        if not self.has_cells:  # cells say themselves what they boot with
            memory["boot"] = f"{self.start.memory_mib}Mi"
        machine = {
            "kernel": {"image": KERNEL_NAME, "initrd": INITRD_NAME},
            "cpu": {"max": str(most_vcpus)},
            "memory": memory,
            "resources": self.start.resources(),
            **self._numa(self.start, range(len(self.start.cells_mib))),
        }
        return {"virtualMachine": machine, "terminationGracePeriodSeconds": 0}

    def change(self, before: DemoVmSize, size: DemoVmSize) -> Object:
        """A strategic merge patch's spec. Of the cells it names only those that change."""
        pairs = zip(before.cells_mib, size.cells_mib, strict=True)
        changed = [number for number, (old, new) in enumerate(pairs) if old != new]
        return {"virtualMachine": {"resources": size.resources(), **self._numa(size, changed)}}

    def _numa(self, size: DemoVmSize, numbers: range | list[int]) -> Object:
        if not self.has_cells:
            return {}
        cells = [{"id": one, "memory": f"{size.cells_mib[one]}Mi"} for one in numbers]
        return {"numa": {"cells": cells}}


CELLS = DemoVm(
    "vm1",
    Technology.VIRTIO_MEM,
    "vm1, with two NUMA cells: cell 1 from 256 MiB to 1024 and back, 1 to 4 vCPUs",
    (
        ("start", DemoVmSize(1, (256, 256))),
        ("grow", DemoVmSize(4, (256, 1024))),
        ("shrink", DemoVmSize(1, (256, 256))),
    ),
)
DIMMS = DemoVm(
    "vm2",
    Technology.DIMM,
    "vm2, with DIMMs: from 512 MiB to 1152, and back in two steps",
    (
        ("start", DemoVmSize(1, (512,))),
        ("grow", DemoVmSize(1, (1152,))),
        ("shrink", DemoVmSize(1, (640,))),
        ("shrink", DemoVmSize(1, (512,))),
    ),
)
