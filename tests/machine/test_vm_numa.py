"""Virtual machines with NUMA cells on the real system, with our own commands: a change names its
cell, the others stay as they are, and what cannot be is refused with the way to say it (F48)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from livesize.api.quantity import memory_bytes
from system.vm import MIB, Vm, cells, running_vm
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

CELL = 256
X = 2 * CELL


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    two: dict[str, Any] = {
        "cpu": {"max": "4"},
        "memory": {"max": "1Gi", "technology": "virtio-mem"},
        "numa": cells(f"{CELL}Mi", f"{CELL}Mi"),
    }
    with running_vm(tmp_path_factory.mktemp("up"), "1", f"{X}Mi", **two) as booted:
        yield booted


@pytest.fixture
def guest(vm: Vm) -> Witness:
    vm.resize({0: f"{CELL}Mi", 1: f"{CELL}Mi"}, cpu="1", memory=f"{X}Mi")
    return Witness(vm, X, {0: CELL, 1: CELL})


def test_the_domain_has_its_cells(vm: Vm) -> None:
    """Decisions 19: boot = Σ cells, each device as large as the VM may grow; vCPUs in equal
    blocks."""
    domain = vm.xml()
    found = domain.findall("cpu/numa/cell")
    assert [(cell.get("cpus"), cell.get("memory")) for cell in found] == [
        ("0-1", str(CELL * 1024)),
        ("2-3", str(CELL * 1024)),
    ]
    sizes = [device.findtext("target/size") for device in domain.findall("devices/memory")]
    assert sizes == [str(512 * 1024)] * 2
    assert domain.findtext("maxMemory") == str((X + 2 * 512) * 1024)
    assert vm.status["maximum"]["memory"] == "1Gi"


def test_our_command_names_the_cell(guest: Witness) -> None:
    vm = guest.vm
    vm.up.livesize("resize", f"pod/{vm.name}", "--numa", "1=512Mi", "--wait")
    guest.holds(1, X + 256, {1: 512})
    assert vm.plugged_by_node() == {0: 0, 1: 256 * MIB}
    vm.up.livesize("resize", f"pod/{vm.name}", "--numa", "0=320Mi", "--numa", "1=384Mi", "--wait")
    guest.holds(1, 704, {0: 320, 1: 384})


@pytest.mark.parametrize(
    ("named", "memory", "words"),
    [
        pytest.param({}, "768Mi", "--numa", id="a total that names no cell"),
        pytest.param({1: "512Mi"}, "640Mi", "together", id="wrong sum"),
        pytest.param({1: "128Mi"}, "384Mi", "256Mi", id="below what it boots with"),
        pytest.param({2: "256Mi"}, "768Mi", "0 and 1", id="unknown cell"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_to_say_it(
    guest: Witness, named: dict[int, str], memory: str, words: str
) -> None:
    before = guest.vm.sizes()
    code, answer = guest.vm.ask(named, memory=memory)
    assert code == 422, answer
    assert words in answer["message"]
    assert guest.vm.sizes() == before


def test_each_cell_is_told_as_requested_plugged_and_seen(guest: Witness) -> None:
    vm = guest.vm
    guest.reaches(1, X + 256, {1: 512})
    other, named = vm.status["cells"]
    assert (named["id"], named["boot"]) == (1, "256Mi")
    assert (named["requested"], named["plugged"]) == ("512Mi", "512Mi")
    assert (other["requested"], other["plugged"]) == ("256Mi", "256Mi")
    seen = vm.memory_by_node(2)
    assert [memory_bytes(cell["seen"]) for cell in (other, named)] == seen
    described = vm.up.livesize("describe", f"pod/{vm.name}").stdout
    assert "512Mi" in described
