"""Virtual machines whose memory changes by DIMMs, on real guests: which modules come and go, and
what is said of one that the guest does not let go.

The VM says so itself; its node has no setting.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME
from livesize.runtime.vm_config import COMMAND_LINE
from system.vm import MIB, Vm, running_vm
from system.vm_sizes import is_clear
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

X = 512
MEMORY = {"max": "2Gi", "boot": f"{X}Mi", "technology": "dimm"}
KEEPING = COMMAND_LINE.replace("memhp_default_state=online_movable", "memhp_default_state=online")


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    with running_vm(tmp_path_factory.mktemp("up"), "1", f"{X}Mi", memory=MEMORY) as booted:
        yield booted


@pytest.fixture
def guest(vm: Vm) -> Witness:
    vm.resize(cpu="1", memory=f"{X}Mi")
    return Witness(vm, X)


def limits(vm: Vm) -> set[int | None]:
    return {vm.group.memory_limit_bytes(), vm.group.pod().memory_limit_bytes()}


def test_modules_come_and_go_in_the_right_sizes(guest: Witness) -> None:
    """Decisions 22: "512M + 1536M" are three of 512M; "the exact subset"."""
    vm = guest.vm
    guest.reaches(1, 2048)
    assert vm.dimms() == [512, 512, 512]
    kept = {device.alias for device in vm.devices()}
    guest.reaches(1, 1536)
    assert vm.dimms() == [512, 512]
    assert {device.alias for device in vm.devices()} < kept, "exactly one of them went"
    guest.reaches(1, 768)
    assert vm.dimms() == [128, 128], "no part of a module can go: others came first"
    guest.reaches(1, X)
    assert vm.dimms() == []


def test_what_modules_cannot_come_to_is_refused_with_what_they_can(guest: Witness) -> None:
    """KMEM: increments of 128 MiB. (F69)"""
    code, answer = guest.vm.ask(memory="600Mi")
    assert code == 422
    assert "the nearest sizes are 512Mi and 640Mi" in answer["message"]
    guest.holds(1, X)


def test_a_module_that_the_guest_does_not_let_go_yet(guest: Witness) -> None:
    """ARK: "the unplug operation has to be done until all memory allocations on the device are
    migrated out. This, sometimes could be slow or failed." The newest target follows (F46, F89)."""
    vm = guest.vm
    guest.reaches(1, 1024)
    with vm.suspended_while_resizing(memory=f"{X}Mi"):
        vm.says("was asked to give back ua-dimm0", "has not answered yet")
        found = vm.sizes(heard=False)
        assert found.plugged == 1024 * MIB
        assert found.persistent_memory == 1024 * MIB, "the persistent definition only afterwards"
        assert str(X * MIB) in found.note, "resourceUpdateInProgress"
        assert limits(vm) == {1024 * MIB + vm.overhead}, "the groups are narrowed last"
        vm.until(lambda: vm.status.get("resourceUpdateInProgress"), "the status has it too")
        assert vm.status["memoryLimitInBytesBeingUpdated"] == X * MIB
        assert vm.ask(memory="640Mi")[0] == 200
    vm.wait_resized()
    guest.holds(1, 640)
    assert vm.dimms() == [128]


@pytest.mark.matrix
def test_the_agent_is_killed_while_the_guest_lets_go(guest: Witness) -> None:
    """ARK: "it can be persisted to runtime metadata in case of runtime service restarts"."""
    vm = guest.vm
    guest.reaches(1, 1024)
    with vm.suspended_while_resizing(memory=f"{X}Mi"):
        vm.says("has not answered yet")
        vm.restart_agent()
        vm.until(lambda: vm.state.get("phase") == "InProgress", "the next one goes on with it")
        assert vm.sizes(heard=False).persistent_memory == 1024 * MIB
    vm.wait_resized()
    guest.holds(1, X)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        pytest.param("vm:memory:note", X, 1024, id="grow: note"),
        pytest.param("vm:memory:plug", X, 1024, id="grow: plug"),
        pytest.param("vm:memory:guest", X, 1024, id="grow: guest"),
        pytest.param("vm:memory:persist", X, 1024, id="grow: persist"),
        pytest.param("vm:memory:clear", X, 1024, id="grow: clear"),
        pytest.param("vm:memory:note", 1024, X, id="shrink: note"),
        pytest.param("vm:memory:unplug", 1024, X, id="shrink: unplug"),
        pytest.param("vm:memory:guest", 1024, X, id="shrink: guest"),
        pytest.param("vm:memory:persist", 1024, X, id="shrink: persist"),
        pytest.param("vm:memory:clear", 1024, X, id="shrink: clear"),
        pytest.param("vm:memory:plug", 1024, 768, id="replace: plug"),
        pytest.param("vm:memory:unplug", 1024, 768, id="replace: unplug"),
    ],
)
def test_the_agent_is_killed_between_two_steps(
    guest: Witness, step: str, before: int, after: int
) -> None:
    guest.reaches(1, before)
    guest.vm.kill_agent_at(step, cpu="1", memory=f"{after}Mi")
    guest.holds(1, after)


def test_a_domain_that_refuses_gets_its_groups_narrowed_again(guest: Witness) -> None:
    """ARK: "If update VMResources operation failed, then the CGroup update operation will be rolled
    back and error will be raised." QEMU has the name of the next module already (F49)."""
    vm = guest.vm
    taken = {"qom-type": "memory-backend-ram", "id": "memua-dimm0", "size": 128 * MIB}
    vm.monitor("object-add", **taken)
    try:
        code, answer = vm.ask(cpu="2", memory="1Gi")
        assert code == 200, answer
        vm.until(lambda: vm.state.get("phase") == "Error", "it is an error")
        assert "memua-dimm0" in vm.state["message"]
        narrow = {X * MIB + vm.overhead}
        vm.until(lambda: limits(vm) == narrow, "its groups are narrowed again")
        assert vm.online_vcpus() == 2, "the other resource does not wait"
    finally:
        vm.monitor("object-del", id="memua-dimm0")
    vm.wait_resized()
    guest.holds(2, 1024)


def test_a_guest_that_keeps_its_memory_says_so_and_goes_back(vm: Vm) -> None:
    """ARK: VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED. Its kernel uses what it was given for itself,
    and rejects the request each time."""
    keeping = Vm(vm.up, "keeping")
    kernel = {"image": KERNEL_NAME, "initrd": INITRD_NAME, "commandLine": KEEPING}
    keeping.create("1", f"{X}Mi", memory=MEMORY, kernel=kernel)
    guest = Witness(keeping, X)
    guest.reaches(1, 1024)
    code, answer = keeping.ask(cpu="2", memory=f"{X}Mi")
    assert code == 200, answer
    keeping.says("refuses to give back ua-dimm0", "512Mi to go")
    assert keeping.online_vcpus() == 2, "CPUs do not wait for memory"
    found = keeping.sizes()
    assert (found.plugged, found.persistent_memory) == (1024 * MIB, 1024 * MIB)
    assert not is_clear(found.note), "the request is not lost"
    assert limits(keeping) == {1024 * MIB + keeping.overhead}
    guest.reaches(2, 1024)
    keeping.delete()
