"""ARK's test case for NUMA on the real system: one guest with four nodes for each technology that
knows them, asked every time for the memory of each node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.vm import cells, running_vm
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

CELL, DELTA = 192, 256
X = 4 * CELL


@pytest.fixture(scope="module", params=["virtio-mem", "dimm"])
def guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Witness]:
    four = {
        "cpu": {"max": "4"},
        "memory": {"max": f"{X + 3 * DELTA}Mi", "technology": request.param},
        "numa": cells(*[f"{CELL}Mi"] * 4),
    }
    with running_vm(tmp_path_factory.mktemp("up"), "1", f"{X}Mi", **four) as vm:
        yield Witness(vm, X, dict.fromkeys(range(4), CELL))


def test_set_memory_of_node_1_up_twice_and_back(guest: Witness) -> None:
    """1. set VM with 4 NUMA nodes, do #2 for NUMA node 1"""
    for added in (DELTA, 3 * DELTA, 0):
        guest.reaches(1, X + added, {1: CELL + added})
