"""A virtual machine was stopped and started anew when the memory of a NUMA cell changed.

Whether a container has to be started again is told by the hash of everything but its size. The
memory of cells counted as something else than size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.hashes import container_hash, container_hash_without_resources
from livesize.api.kinds.pod import PODS
from livesize.api.objects import lookup, name_of, namespace_of
from livesize.api.patch import PatchType
from livesize.api.resources import Object, vm_container, with_cells
from unit.agent.vm_world import VmWorld, virtual_machine

CELLS = [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "256Mi"}]
GROWN = [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "512Mi"}]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    made = VmWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()


def test_only_the_first_hash_counts_the_memory_of_cells() -> None:
    booting: list[Object] = [{**cell, "boot": "256Mi"} for cell in CELLS]
    before = vm_container({"numa": {"cells": booting}})
    after = with_cells(before, GROWN)
    assert container_hash(before) != container_hash(after)
    assert container_hash_without_resources(before) == container_hash_without_resources(after)


async def test_the_vm_goes_on(world: VmWorld) -> None:
    vm = virtual_machine("1", "512Mi")
    vm = {**vm, "memory": {"max": "4Gi"}, "numa": {"cells": CELLS}}
    await world.api.run_pod("db", virtualMachine=vm)
    uid = await world.running("db")
    await world.until(lambda: world.vm_state("db") == "Running", "the guest is heard")
    machine, pod = world.vm(uid), world.api.pod("db")
    for memory, cells in (("768Mi", GROWN), ("512Mi", CELLS), ("768Mi", GROWN)):
        size = {"cpu": "1", "memory": memory}
        change = {"resources": {"requests": size, "limits": size}, "numa": {"cells": cells}}
        await world.api.patch(
            PODS,
            name_of(pod),
            {"spec": {"virtualMachine": change}},
            namespace=namespace_of(pod),
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )
        await world.phase("db", "Done")
        told = world.api.pod("db")
        assert lookup(told, "status", "virtualMachineStatus", "restartCount") == 0
        assert world.vm(uid) is machine
        assert told["status"]["resizeState"]["allocated"][0]["cells"] == cells
