"""What goes wrong with a real VM, and what is left afterwards: a clear condition, one size
everywhere, and a guest that lives."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaks import claim
from system.groups import start_time
from system.up import Up
from system.vm import MIB, Vm, install_images, running_vm

pytestmark = pytest.mark.vms


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    with running_vm(tmp_path_factory.mktemp("up"), cpu="1", memory="512Mi") as booted:
        yield booted


@pytest.mark.parametrize(
    ("size", "words"),
    [
        pytest.param({"cpu": "1500m"}, "nearest sizes are 1 and 2", id="fractional"),
        pytest.param({"cpu": "7"}, "nearest size is 6", id="more CPUs than the maximum"),
        pytest.param({"memory": "3Gi"}, "nearest size is 2Gi", id="more memory than the maximum"),
        pytest.param({"memory": "513Mi"}, "nearest sizes are 512Mi and 514Mi", id="not 2 MiB"),
        pytest.param({"memory": "256Mi"}, "nearest size is 512Mi", id="less than it boots with"),
    ],
)
def test_a_size_it_cannot_have_is_refused_and_changes_nothing(
    vm: Vm, size: dict[str, str], words: str
) -> None:
    before, generation = vm.sizes(), vm.pod["metadata"]["generation"]
    code, answer = vm.ask(**size)
    assert code == 422
    assert words in answer["message"]
    assert "spec.virtualMachine.resources" in answer["details"]["causes"][0]["field"]
    assert vm.sizes() == before
    assert vm.pod["metadata"]["generation"] == generation


def test_memory_in_use_is_never_taken_from_the_guest(vm: Vm) -> None:
    vm.resize(memory="1Gi")
    boot_id = vm.boot_id()
    vm.run_in_guest(
        "mkdir -p /held && mount -t tmpfs -o size=700m none /held"
        " && dd if=/dev/zero of=/held/file bs=1M count=600"
    )
    code, answer = vm.ask(cpu="2", memory="512Mi")
    assert code == 200, answer

    def said() -> str:
        progress = vm.condition("PodResizeInProgress")
        return progress["message"] if progress and progress.get("reason") == "Error" else ""

    message = vm.until(said, "it says why", 60)
    assert "bytes to go" in message
    assert "the guest uses" in message
    found = vm.sizes()
    assert found.online == 2, "CPUs do not wait for memory"
    assert 512 * MIB < found.plugged < 1024 * MIB, "it went as far as is safe"
    assert found.vm_limit == 1024 * MIB + vm.overhead, "the group is narrowed last"
    assert str(512 * MIB) in found.note
    assert vm.boot_id() == boot_id
    vm.run_in_guest("umount /held")
    vm.wait_resized()
    vm.check(2, 512)
    assert vm.boot_id() == boot_id


def test_libvirtd_killed_in_the_middle(vm: Vm) -> None:
    vm.resize(cpu="1", memory="512Mi")
    boot_id, before = vm.boot_id(), vm.libvirtd_pid()
    os.kill(before, signal.SIGKILL)
    code, answer = vm.ask(cpu="2", memory="768Mi")
    assert code == 200, answer
    vm.wait_resized()
    vm.check(2, 768)
    assert vm.libvirtd_pid() != before
    assert vm.boot_id() == boot_id


def test_the_agent_starts_again_and_leaves_the_guest_alone(vm: Vm) -> None:
    vm.resize(cpu="2", memory="768Mi")
    boot_id, qemu = vm.boot_id(), start_time(vm.status["pid"])
    vm.restart_agent()
    vm.resize(cpu="1", memory="640Mi")
    vm.check(1, 640)
    assert (vm.boot_id(), start_time(vm.status["pid"])) == (boot_id, qemu)


def test_qemu_killed_starts_again_at_the_allocated_size(vm: Vm) -> None:
    vm.resize(cpu="2", memory="640Mi")
    restarts = vm.status["restartCount"]
    vm.kill_qemu()
    vm.wait_ready(restarts + 1)
    vm.until(lambda: vm.sizes().plugged == 640 * MIB, "the guest has its memory", 60)
    vm.check(2, 640)
    assert vm.status["lastState"]["terminated"]["exitCode"] != 0


STEPS = [
    *("checkpoint", "pod:cpu", "vm:vcpus:plug", "vm:vcpus:guest", "vm:vcpus:persist"),
    *("pod:memory", "container:vm:memory", "vm:memory:note", "vm:memory:request"),
    *("vm:memory:guest", "vm:memory:persist", "vm:memory:clear", "actuated", "report"),
]
DAILY = ["vm:vcpus:guest", "vm:memory:guest"]


@pytest.mark.parametrize(
    "step", [pytest.param(one, marks=[] if one in DAILY else pytest.mark.matrix) for one in STEPS]
)
def test_the_agent_is_killed_between_two_steps(vm: Vm, step: str) -> None:
    vm.resize(cpu="1", memory="512Mi")
    boot_id = vm.boot_id()
    with tempfile.TemporaryDirectory() as folder:
        arm = Path(folder, "arm")
        vm.restart_agent(LIVESIZE_CRASH_AT=f"resize/{step}/before", LIVESIZE_CRASH_ARM=str(arm))
        arm.write_text("1")
        # More than it ever had: otherwise nothing is left to plug in.
        wanted = str(min(6, vm.status["guest"]["vcpusPlugged"] + 1))
        assert vm.ask(cpu=wanted, memory="768Mi")[0] == 200
        assert vm.up.process is not None
        vm.up.process.wait(timeout=60)
        vm.up.process = None
    vm.restart_agent()
    vm.wait_resized()
    vm.check(int(wanted), 768)
    assert vm.boot_id() == boot_id


@pytest.mark.matrix
def test_fifteen_random_resizes_of_one_guest(vm: Vm) -> None:
    source, boot_id = random.Random(7), vm.boot_id()
    vm.resize(cpu="1", memory="512Mi")
    total = vm.memory_total()
    for _ in range(15):
        vcpus, memory = source.randint(1, 6), 2 * source.randint(256, 1024)
        vm.resize(cpu=str(vcpus), memory=f"{memory}Mi")
        vm.check(vcpus, memory)
        assert vm.memory_total() - total == (memory - 512) * MIB
    assert vm.boot_id() == boot_id


def test_a_vm_that_is_deleted_leaves_nothing(tmp_path: Path) -> None:
    up = Up(tmp_path / "up", allocatable="cpu=4,memory=4Gi")
    install_images(up.directory)
    claim(f"{up.node}-vms", up.directory)
    try:
        up.start()
        vm = Vm(up, "short")
        vm.create("1", "512Mi")
        qemu, group = int(vm.status["pid"]), vm.group
        vm.delete()
        assert not Path(f"/proc/{qemu}").exists()
        assert not (Path("/sys/fs/cgroup/memory") / group.path).exists()
        assert not (Path("/sys/fs/cgroup") / group.path).exists()
    finally:
        up.end()
