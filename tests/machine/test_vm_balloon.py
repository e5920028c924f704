"""Virtual machines whose memory changes by a balloon, alone or together with virtio-mem, on real
guests: what they boot with, what they fall to, and that none is squeezed until it dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.up import Up
from system.vm import MIB, Vm, running_up_for_vms
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

BALLOON = {"max": "1Gi", "min": "384Mi", "technology": "balloon"}
AUTO = {"max": "1Gi", "boot": "512Mi", "min": "384Mi", "technology": "auto"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up_for_vms(tmp_path_factory.mktemp("up")) as started:
        yield started


@pytest.fixture(scope="module")
def balloon(up: Up) -> Vm:
    vm = Vm(up, "balloon")
    vm.create("1", "512Mi", memory=BALLOON)
    return vm


@pytest.fixture(scope="module")
def auto(up: Up) -> Vm:
    vm = Vm(up, "auto")
    vm.create("1", "512Mi", memory=AUTO)
    return vm


def mib_in_domain(vm: Vm, part: str) -> int:
    return int(vm.xml().findtext(part, default="0")) // 1024


def test_it_boots_with_its_maximum_and_falls_to_its_size(balloon: Vm) -> None:
    """LIVE: "memory.max […] memory is set to it, currentMemory to the guest's" (F56, F57)."""
    balloon.until(lambda: balloon.plugged_bytes() == 512 * MIB, "it has given back", 60)
    balloon.until(lambda: mib_in_domain(balloon, "currentMemory") == 512, "libvirt knows")
    assert mib_in_domain(balloon, "memory") == 1024
    guest = Witness(balloon, 512)
    guest.holds(1, 512)
    guest.reaches(1, 1024)
    guest.reaches(1, 384)
    assert balloon.devices() == []


def test_less_than_its_least_is_refused(balloon: Vm) -> None:
    """Decisions 46: the least is memory.min."""
    code, answer = balloon.ask(memory="256Mi")
    assert code == 422
    assert "the nearest size is 384Mi" in answer["message"]


def test_memory_in_use_is_never_taken_from_the_guest(balloon: Vm) -> None:
    balloon.resize(memory="1Gi")
    guest = Witness(balloon, 1024)
    balloon.run_in_guest(
        "mkdir -p /held && mount -t tmpfs -o size=700m none /held"
        " && dd if=/dev/zero of=/held/file bs=1M count=400"
    )
    assert balloon.ask(cpu="2", memory="384Mi")[0] == 200
    message = balloon.says("bytes to go", "the guest uses")
    assert balloon.online_vcpus() == 2, f"CPUs do not wait for memory: {message}"
    found = balloon.sizes()
    assert 384 * MIB < found.plugged < 1024 * MIB, "it went as far as is safe"
    assert found.vm_limit == 1024 * MIB + balloon.overhead, "the group is narrowed last"
    guest.lives()
    balloon.run_in_guest("umount /held")
    balloon.wait_resized()
    guest.holds(2, 384)
    balloon.resize(cpu="1")


def test_auto_is_the_balloon_below_what_it_boots_with_and_plugging_above(auto: Vm) -> None:
    """ARK: "Combine with the ballooning technology and provide better, refined resizing for
    memory" (F88). The balloon takes nothing while anything is plugged in."""
    guest = Witness(auto, 512)
    guest.reaches(1, 384)
    assert sum(device.mib for device in auto.devices()) == 0
    guest.reaches(1, 768)
    assert sum(device.mib for device in auto.devices()) == 256
    assert auto.ask(memory="384Mi")[0] == 200

    def one_after_the_other() -> bool:
        plugged, total = sum(auto.plugged_by_node().values()), auto.plugged_bytes()
        assert plugged == 0 or total >= 512 * MIB
        return total == 384 * MIB

    auto.until(one_after_the_other, "it has given back", 60)
    auto.wait_resized()
    guest.holds(1, 384)
    guest.reaches(1, 640)


def test_what_it_boots_with_has_now_and_may_have_are_told(auto: Vm) -> None:
    """ARK: maxBootTimeMemoryAllocation, currentMemoryAllocation; the domain's <memory>,
    <currentMemory> and <maxMemory> (F56)."""
    auto.resize(memory="640Mi")
    status = auto.status
    assert status["memory"] == {
        "technology": "auto",
        "maxBootTime": "512Mi",
        "current": "640Mi",
        "maxExpandable": "1Gi",
    }
    assert mib_in_domain(auto, "maxMemory") == 1024


@pytest.mark.matrix
def test_qemu_killed_starts_again_at_the_allocated_size_below_what_it_boots_with(auto: Vm) -> None:
    """F90"""
    auto.resize(memory="384Mi")
    restarts = auto.status["restartCount"]
    auto.kill_qemu()
    auto.wait_ready(restarts + 1)
    auto.until(lambda: auto.plugged_bytes() == 384 * MIB, "it has given back", 60)
    auto.until(lambda: auto.state.get("phase") in ("Done", "None"), "nothing is under way", 60)
    auto.check(1, 384)
