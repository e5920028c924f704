"""Guests with a topology: vCPUs come and go in whole sockets, and the guest shows them (F91)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.vm import Vm, running_vm
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

X = 512


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    """Three sockets of two, of which it has one."""
    sockets = {"cpu": {"max": "6", "cores": 2, "threads": 1}, "memory": {"max": "1Gi"}}
    with running_vm(tmp_path_factory.mktemp("up"), "2", f"{X}Mi", **sockets) as booted:
        yield booted


def test_whole_sockets_come_and_go(vm: Vm) -> None:
    """LIVE: "The number of sockets is equal to `cpu.maxSockets`"; KCPU: "the existing CPU `sockets`
    field will now be dynamic"."""
    guest = Witness(vm, X)
    topology = vm.xml().find("cpu/topology")
    assert topology is not None
    assert [topology.get(part) for part in ("sockets", "cores", "threads")] == ["3", "2", "1"]
    assert sorted(vm.vcpus_by_socket().values()) == [2]
    guest.reaches(4, X)
    assert sorted(vm.vcpus_by_socket().values()) == [2, 2]
    guest.reaches(6, X)
    assert sorted(vm.vcpus_by_socket().values()) == [2, 2, 2]
    guest.reaches(2, X)
    assert sorted(vm.vcpus_by_socket().values()) == [2], "a whole socket went each time"


def test_part_of_a_socket_is_refused_with_the_nearest_sizes(vm: Vm) -> None:
    online = vm.online_vcpus()
    code, answer = vm.ask(cpu="3")
    assert code == 422
    assert "whole sockets of 2" in answer["message"]
    assert "the nearest sizes are 2 and 4" in answer["message"]
    assert vm.online_vcpus() == online
