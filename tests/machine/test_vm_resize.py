"""What goes wrong with a real VM, or takes its time, and what is left afterwards: a clear
condition, one size everywhere, and a guest that lives."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from livesize.api.quantity import memory_bytes
from livesize.machinery.data_directory import DataDirectory
from system.groups import IS_V2, ROOT, start_time
from system.up import LIVESIZE
from system.vm import MIB, Vm, running_vm

pytestmark = pytest.mark.vms

NOT_HEARD = "the guest has not answered yet"
WORDS = b"the disk has booted\r\n"


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    options = ("--container-log-max-size", "512Ki", "--container-log-max-files", "3")
    directory = tmp_path_factory.mktemp("up")
    with running_vm(directory, "1", "512Mi", options=options) as booted:
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


def watch(vm: Vm, seconds: float = 60) -> list[dict[str, Any]]:
    """The pod's statuses, as often as one can ask, until its resize is done."""
    seen: list[dict[str, Any]] = []

    def done() -> bool:
        seen.append(vm.pod["status"])
        return bool(seen[-1]["resizeState"]["phase"] == "Done")

    vm.until(done, "the resize is done", seconds)
    return seen


def leaves_nothing(vm: Vm) -> None:
    qemu, group = int(vm.status["pid"]), vm.group
    vm.delete()
    bases = [ROOT] if IS_V2 else [ROOT / "memory", ROOT / "cpu"]
    left = [Path(f"/proc/{qemu}"), *(base / group.path.parent for base in bases)]
    vm.until(lambda: not any(path.exists() for path in left), f"nothing of {vm.name} is left")


def test_a_shrink_says_how_far_it_is(vm: Vm) -> None:
    vm.resize(cpu="1", memory="1536Mi")
    boot_id = vm.boot_id()
    code, answer = vm.ask(memory="512Mi")
    assert code == 200, answer
    seen = watch(vm)
    assert "Error" not in {status["resizeState"]["phase"] for status in seen}
    told = [status for status in seen if "to go" in status["resizeState"]["message"]]
    assert told, "a shrink of a GiB takes seconds"
    for status in told:
        held = memory_bytes(status["virtualMachineStatus"]["guest"]["memoryPlugged"])
        said = re.match(r"memory: (\w+) of 512Mi, \w+ to go", status["resizeState"]["message"])
        assert said is not None
        assert 512 * MIB <= held <= memory_bytes(said[1]), "the status may be newer"
        running = status["resizeState"]["steps"][-1]
        assert (running["name"], running["outcome"]) == ("vm:memory:guest", "Running")
        assert any(one["type"] == "SafeToHotplug" for one in status["conditions"])
    assert "SafeToHotplug" not in {one["type"] for one in seen[-1]["conditions"]}
    vm.check(1, 512)
    assert vm.boot_id() == boot_id


@pytest.mark.matrix
def test_a_resize_asked_while_the_guest_boots_waits_for_it(vm: Vm) -> None:
    young = Vm(vm.up, "young")
    young.ask_for("1", "768Mi")
    young.until(lambda: young.status.get("state") == "Starting", "it is starting")
    code, answer = young.ask(cpu="2", memory="640Mi")
    assert code == 200, answer
    seen = watch(young, 150)  # it boots first
    phases = [status["resizeState"]["phase"] for status in seen]
    assert "Error" not in phases
    waited = [one for one in seen if NOT_HEARD in one["resizeState"]["message"]]
    assert waited, "it says what it waits for"
    assert {one["resizeState"]["phase"] for one in waited} == {"InProgress"}
    young.wait_ready()
    young.check(2, 640)
    leaves_nothing(young)


def boot_sector() -> bytes:
    """Says WORDS on the first serial line, then halts for good. At 0x7c00, 16 bits."""
    code = bytes.fromhex(
        "fa 31c0 8ed8"  # cli; ds = 0
        " be 0000"  # si = the words, see below
        " ac 84c0 7412"  # next: al = *si++; at their end go to halt
        " 88c4 bafd03"  # keep it in ah; line status
        " ec a820 74fb"  # until the line can take it
        " 88e0 baf803 ee"  # send it
        " ebe9"  # next
        " f4 ebfd"  # halt
    )
    code = code.replace(b"\xbe\x00\x00", b"\xbe" + (0x7C00 + len(code)).to_bytes(2, "little"))
    return (code + WORDS + b"\0").ljust(510, b"\0") + b"\x55\xaa"


def test_a_vm_boots_from_its_disk(vm: Vm) -> None:
    image = DataDirectory(vm.up.directory).vm_images / "words.img"
    image.write_bytes(boot_sector().ljust(MIB, b"\0"))
    disk = Vm(vm.up, "disk")
    disk.ask_for("1", "512Mi", kernel=None, disk={"image": image.name})
    disk.until(lambda: disk.status.get("state") == "Starting", "it is starting")
    disk.until(lambda: WORDS in disk.console.read_bytes(), "the disk's own code has run")
    # It has no agent and never will: a resize says what it waits for.
    code, answer = disk.ask(cpu="2", memory="768Mi")
    assert code == 200, answer
    disk.until(lambda: NOT_HEARD in disk.state["message"], "it says what it waits for")
    assert disk.state["phase"] == "InProgress"
    leaves_nothing(disk)


def logs(vm: Vm, *words: str) -> str:
    return vm.up.livesize("logs", f"pod/{vm.name}", *words).stdout


def test_logs_show_the_console(vm: Vm) -> None:
    vm.run_in_guest("echo one > /dev/ttyS0; echo two > /dev/ttyS0")
    vm.until(lambda: logs(vm, "--tail", "2").splitlines() == ["one", "two"], "it is there")
    time.sleep(2)
    following = [LIVESIZE, "logs", vm.name, "-f", "--since", "1s", "--timestamps"]
    following += ["--kubeconfig", str(vm.up.kubeconfig)]
    with subprocess.Popen(following, stdout=subprocess.PIPE, text=True) as follower:
        try:
            time.sleep(1.5)
            vm.run_in_guest("echo three > /dev/ttyS0")
            assert follower.stdout is not None
            moment, words = follower.stdout.readline().split()
        finally:
            follower.kill()
    assert (moment[:4].isdigit(), moment[-1], words) == (True, "Z", "three"), "nothing older"

    path = f"/api/v1/namespaces/default/pods/{vm.name}/log"
    raw = vm.up.kubectl("get", "--raw", f"{path}?tailLines=1").stdout
    assert raw.split() == ["three"], "kubectl has this way only"


def test_a_console_that_says_too_much_is_shortened(vm: Vm) -> None:
    with vm.console.open("ab") as log:  # as QEMU does it
        log.write(b"an old line\n" * (MIB // 4) + b"the last words before\n")
    held = lambda: vm.console.stat().st_blocks * 512  # noqa: E731
    vm.until(lambda: held() < 2 * MIB, "the oldest were given back")
    assert logs(vm, "--tail", "1") == "the last words before\n"
    assert 0 < len(logs(vm)) < 2 * MIB
    vm.run_in_guest("echo the first words after > /dev/ttyS0")
    vm.until(lambda: "the first words after" in logs(vm, "--tail", "1"), "QEMU goes on writing")


def test_memory_in_use_is_never_taken_from_the_guest(vm: Vm) -> None:
    vm.resize(memory="1Gi")
    boot_id = vm.boot_id()
    vm.run_in_guest(
        "mkdir -p /held && mount -t tmpfs -o size=700m none /held"
        " && dd if=/dev/zero of=/held/file bs=1M count=450"
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((1, 512), (2, 768), id="grow"),
        pytest.param((2, 1024), (1, 512), id="shrink", marks=pytest.mark.matrix),
    ],
)
def test_libvirtd_killed_in_the_middle(
    vm: Vm, before: tuple[int, int], after: tuple[int, int]
) -> None:
    vm.resize(cpu=str(before[0]), memory=f"{before[1]}Mi")
    boot_id, daemon = vm.boot_id(), vm.libvirtd_pid()
    code, answer = vm.ask(cpu=str(after[0]), memory=f"{after[1]}Mi")
    assert code == 200, answer
    os.kill(daemon, signal.SIGKILL)
    vm.wait_resized()
    vm.check(*after)
    assert vm.libvirtd_pid() != daemon
    assert vm.boot_id() == boot_id


def test_a_domain_that_refuses_gets_its_groups_narrowed_again(vm: Vm) -> None:
    """F49. Without its memory device the domain has nothing to grow with."""
    vm.resize(cpu="1", memory="512Mi")
    boot_id, device = vm.boot_id(), vm.detach_memory()
    try:
        code, answer = vm.ask(cpu="2", memory="768Mi")
        assert code == 200, answer
        failed = lambda: vm.state.get("phase") == "Error" and vm.state["message"]  # noqa: E731
        message = vm.until(failed, "it is an error")
        assert "between 536870912 and 536870912 bytes" in message
        narrow = 512 * MIB + vm.overhead

        def limits() -> set[int | None]:
            return {vm.group.memory_limit_bytes(), vm.group.pod().memory_limit_bytes()}

        vm.until(lambda: limits() == {narrow}, "its groups are narrowed again")
        assert vm.online_vcpus() == 2, "the other resource does not wait"
        assert vm.condition("SafeToHotplug") is None
    finally:
        vm.attach_memory(device)
    vm.wait_resized()
    vm.check(2, 768)
    assert vm.boot_id() == boot_id


@pytest.mark.matrix
def test_the_agent_starts_again_and_leaves_the_guest_alone(vm: Vm) -> None:
    vm.resize(cpu="2", memory="768Mi")
    boot_id, qemu = vm.boot_id(), start_time(vm.status["pid"])
    vm.restart_agent()
    vm.resize(cpu="1", memory="640Mi")
    vm.check(1, 640)
    assert (vm.boot_id(), start_time(vm.status["pid"])) == (boot_id, qemu)


def test_qemu_needs_no_more_than_the_overhead_it_is_given(vm: Vm) -> None:
    """Last, when it has done a lot. 8 MiB of each vCPU it may have are in it (F70)."""
    vm.resize(cpu="6", memory="1Gi")
    used = vm.beside_the_guest()
    spare = vm.overhead - used
    assert spare >= 32 * MIB, f"only {spare >> 20} MiB are left of {vm.overhead >> 20}"


def test_qemu_killed_in_the_middle_of_a_resize_starts_again_at_the_allocated_size(vm: Vm) -> None:
    vm.resize(cpu="1", memory="1536Mi")
    restarts = vm.status["restartCount"]
    code, answer = vm.ask(cpu="2", memory="640Mi")
    assert code == 200, answer
    vm.until(lambda: vm.plugged_bytes() < 1536 * MIB, "the guest gives memory back")
    vm.kill_qemu()
    vm.wait_resized()
    vm.wait_ready(restarts + 1)
    vm.until(lambda: vm.sizes().plugged == 640 * MIB, "the guest has its memory", 60)
    vm.check(2, 640)
    assert vm.status["lastState"]["terminated"]["exitCode"] != 0


@pytest.mark.matrix
def test_a_vm_that_was_destroyed_starts_again_at_the_allocated_size(vm: Vm) -> None:
    vm.resize(cpu="2", memory="768Mi")
    restarts = vm.status["restartCount"]
    vm.destroy()
    vm.wait_ready(restarts + 1)
    vm.until(lambda: vm.sizes().plugged == 768 * MIB, "the guest has its memory", 60)
    vm.check(2, 768)


GROW_STEPS = [
    *("checkpoint", "pod:cpu", "vm:vcpus:safe"),
    *("vm:vcpus:plug", "vm:vcpus:guest", "vm:vcpus:persist"),
    *("pod:memory", "container:vm:memory", "vm:memory:safe", "vm:memory:note"),
    *("vm:memory:request", "vm:memory:guest", "vm:memory:persist", "vm:memory:clear"),
    *("actuated", "report"),
]
SHRINK_STEPS = [
    *("vm:vcpus:online", "vm:vcpus:guest", "vm:vcpus:persist", "container:vm:cpu", "pod:cpu"),
    *("vm:memory:note", "vm:memory:request", "vm:memory:guest", "vm:memory:persist"),
    *("vm:memory:clear", "container:vm:memory", "pod:memory", "actuated"),
]


def daily(steps: list[str], *chosen: str) -> list[ParameterSet]:
    """Each step, all but the chosen in long runs only."""
    marks = {step: [] if step in chosen else [pytest.mark.matrix] for step in steps}
    return [pytest.param(step, marks=marks[step]) for step in steps]


@pytest.mark.parametrize("step", daily(GROW_STEPS, "vm:memory:guest"))
def test_the_agent_is_killed_between_two_steps(vm: Vm, step: str) -> None:
    vm.resize(cpu="1", memory="512Mi")
    boot_id = vm.boot_id()
    # More than it ever had: otherwise nothing is left to plug in.
    wanted = str(min(6, vm.status["guest"]["vcpusPlugged"] + 1))
    vm.kill_agent_at(step, cpu=wanted, memory="768Mi")
    vm.check(int(wanted), 768)
    assert vm.boot_id() == boot_id


@pytest.mark.parametrize("step", daily(SHRINK_STEPS, "container:vm:memory"))
def test_the_agent_is_killed_between_two_steps_of_a_shrink(vm: Vm, step: str) -> None:
    vm.resize(cpu="2", memory="768Mi")
    boot_id = vm.boot_id()
    vm.kill_agent_at(step, cpu="1", memory="512Mi")
    vm.check(1, 512)
    assert vm.boot_id() == boot_id
