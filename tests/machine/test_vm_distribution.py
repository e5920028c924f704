"""Guests as users have them: stock Debian 12 and 13, with none of our options, resized both ways
and after a reboot of their own; and guests that lack something, which end in a sentence that says
what it is, never in Done.

Under emulation a Debian boots in 15 s on an idle machine and in minutes on a busy one: each boots
once for all that is asked of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import libvirt
import pytest

from leaks import claim
from livesize.guest_images.boot_disk import SECTOR_BYTES
from livesize.guest_images.debian import DISTRIBUTIONS
from livesize.guest_images.disk_guest import build_disk, install_disk
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import default_cache_dir
from livesize.machinery.data_directory import DataDirectory
from system.up import Up
from system.vm import MIB, Vm, manifest

pytestmark = pytest.mark.vms

BOOT_SECONDS = 900
STEP_SECONDS = 300
TECHNOLOGIES: Mapping[str, Mapping[str, str]] = {"virtio-mem": {}}
"""What a manifest says of each of them in spec.virtualMachine.memory."""
# Real-mode code of a first sector: start again, or go round in a circle.
BOOT_LOOP, HANG = bytes.fromhex("ea f0 ff 00 f0"), bytes.fromhex("eb fe")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    made = Up(tmp_path_factory.mktemp("up"), allocatable="cpu=16,memory=8Gi")
    claim(f"{made.node}-vms", made.directory)
    try:
        made.start()
        yield made
    finally:
        made.end()


def images(up: Up) -> Path:
    found = DataDirectory(up.directory).vm_images
    found.mkdir(parents=True, exist_ok=True)
    return found


def ask_for_disk(vm: Vm, image: str, technology: str = "virtio-mem") -> None:
    pod = manifest(vm.name, "1", "512Mi", kernel=None, disk={"image": image})
    pod["spec"]["virtualMachine"]["memory"].update(TECHNOLOGIES[technology])
    code, answer = vm.up.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert code == 201, answer


def stock_vm(
    up: Up, distribution: str, technology: str, not_run: Callable[[str], NoReturn]
) -> tuple[Vm, str]:
    """A running one, and its boot id."""
    chosen = DISTRIBUTIONS[distribution]
    try:
        built = build_disk(chosen, default_cache_dir(), lambda sentence: None)
    except GuestImageError as failure:
        not_run(str(failure))
    image = install_disk(built, chosen, images(up))
    vm = Vm(up, f"{distribution}-{technology}")
    ask_for_disk(vm, image.name, technology)
    vm.wait_ready(seconds=BOOT_SECONDS)
    line = vm.guest_file("/proc/cmdline")
    assert "memhp" not in line, line
    assert "movable" not in line, line
    return vm, vm.boot_id()


def resized(vm: Vm, **size: str) -> None:
    code, answer = vm.ask(**size)
    assert code == 200, answer
    vm.wait_resized(STEP_SECONDS)
    assert vm.state["phase"] == "Done", vm.state


def both_ways(vm: Vm, sizes: Sequence[tuple[int, int]]) -> None:
    """From 1 vCPU and 512 MiB to each of ``sizes``; the guest itself is asked each time."""
    small, boot_id = vm.memory_total(), vm.boot_id()
    for cpu, memory_mib in sizes:
        resized(vm, cpu=str(cpu), memory=f"{memory_mib}Mi")
        vm.check(cpu, memory_mib)
        assert vm.memory_total() - small == (memory_mib - 512) * MIB, (cpu, memory_mib)
    assert vm.boot_id() == boot_id


def reboot(vm: Vm) -> None:
    """As a user does, with systemd's own word."""
    before = vm.boot_id()
    vm.run_in_guest("(sleep 1; systemctl reboot) >/dev/null 2>&1 &")
    vm.until(lambda: told(vm.boot_id) not in (None, before), "it has booted", BOOT_SECONDS)


def told(ask: Callable[[], Any]) -> Any:
    """None: its agent does not answer now."""
    try:
        return ask()
    except libvirt.libvirtError:
        return None


def says(vm: Vm, *words: str) -> None:
    """The resize under way says all of it, and is not done."""

    def found() -> bool:
        message = vm.state.get("message", "")
        return all(one in message for one in words)

    vm.until(found, f"{words} is said", STEP_SECONDS)
    assert vm.state["phase"] not in ("Done", "None"), vm.state
    assert vm.condition("PodResizeInProgress") is not None


def ended_or_says(vm: Vm, words: str) -> bool:
    return vm.state["phase"] == "Done" or words in vm.state.get("message", "")


@pytest.mark.matrix
@pytest.mark.parametrize("technology", TECHNOLOGIES)
def test_a_stock_debian_12_is_resized_both_ways_and_again_after_its_reboot(
    up: Up, not_run: Callable[[str], NoReturn], technology: str
) -> None:
    vm, _ = stock_vm(up, "debian12", technology, not_run)
    try:
        both_ways(vm, ((2, 512), (2, 1024), (3, 1280), (1, 1280), (1, 512)))
        resized(vm, cpu="2", memory="1Gi")
        large = vm.memory_total()
        reboot(vm)
        # What the kernel keeps for vCPUs differs a little where it boots with all of them.
        again = lambda: abs((told(vm.memory_total) or 0) - large) < 4 * MIB  # noqa: E731
        vm.until(again, "it has its memory again", STEP_SECONDS)
        vm.until(lambda: told(vm.online_vcpus) == 2, "it has its vCPUs again", STEP_SECONDS)
        vm.wait_resized(STEP_SECONDS)
        vm.check(2, 1024)
        resized(vm, cpu="1", memory="512Mi")
        both_ways(vm, ((2, 768), (1, 512)))
    finally:
        vm.delete()


@pytest.mark.matrix
@pytest.mark.parametrize("technology", TECHNOLOGIES)
def test_a_stock_debian_13_is_resized_and_takes_new_vcpus_with_its_reboot(
    up: Up, not_run: Callable[[str], NoReturn], technology: str
) -> None:
    """Its kernel takes vCPUs that are plugged in later only from hypervisors that it knows, and
    QEMU's emulator is none of them. It brings added memory online by itself, where it may use it
    for itself too: then a shrink ends in a sentence, and is done after the reboot."""
    vm, boot_id = stock_vm(up, "debian13", technology, not_run)
    try:
        small = vm.memory_total()
        both_ways(vm, ((1, 1024), (1, 1280)))
        assert vm.ask(memory="512Mi")[0] == 200
        vm.until(lambda: ended_or_says(vm, "its kernel holds some"), "how it ends", STEP_SECONDS)
        assert vm.boot_id() == boot_id
        assert vm.ask(cpu="2", memory="512Mi")[0] == 200
        says(vm, "cannot use 2", "it has them after a reboot of the guest")
        assert vm.online_vcpus() == 1
        reboot(vm)
        vm.wait_resized(STEP_SECONDS)
        vm.check(2, 512)
        assert small - vm.memory_total() < 2 * MIB, "but for what the second vCPU takes"
        resized(vm, cpu="1")
        both_ways(vm, ((2, 768),))
    finally:
        vm.delete()


@pytest.mark.matrix
def test_what_a_stock_debian_lacks_is_said(up: Up, not_run: Callable[[str], NoReturn]) -> None:
    """One guest, from which one thing after the other is taken: the driver of the memory device,
    the agent, and at last its kernel, which stands still after a panic as Debian's does."""
    vm, boot_id = stock_vm(up, "debian12", "virtio-mem", not_run)
    try:
        small = vm.memory_total()
        vm.run_in_guest("echo install virtio_mem /bin/false >/etc/modprobe.d/no.conf")
        vm.run_in_guest("rmmod virtio_mem")
        assert vm.ask(memory="768Mi")[0] == 200
        says(vm, "the guest takes no more", "virtio_mem")
        assert vm.memory_total() == small
        vm.run_in_guest("rm /etc/modprobe.d/no.conf; modprobe virtio_mem")
        vm.wait_resized(STEP_SECONDS)
        assert vm.memory_total() - small == 256 * MIB, "it goes on by itself"
        resized(vm, memory="512Mi")

        vm.run_in_guest("(sleep 1; systemctl stop qemu-guest-agent) >/dev/null 2>&1 &")
        vm.until(lambda: told(vm.boot_id) is None, "its agent has ended", STEP_SECONDS)
        assert vm.ask(cpu="2", memory="768Mi")[0] == 200
        says(vm, "install and start qemu-guest-agent in it")
        # Its console is only read: the guest gets its agent back when it boots again.
        vm.reset()
        vm.until(lambda: told(vm.boot_id) not in (None, boot_id), "it has booted", BOOT_SECONDS)
        vm.wait_resized(STEP_SECONDS)
        vm.check(2, 768)

        vm.run_in_guest("(sleep 1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &")
        vm.until(lambda: told(vm.boot_id) is None, "it stands still", STEP_SECONDS)
        assert vm.ask(cpu="1", memory="512Mi")[0] == 200
        says(vm, "the guest does not")
    finally:
        vm.delete()


@pytest.mark.parametrize(
    ("name", "code"), [("loop", BOOT_LOOP), ("hang", HANG)], ids=("loop", "hang")
)
def test_a_guest_that_never_boots_is_never_done(up: Up, name: str, code: bytes) -> None:
    sector = code.ljust(SECTOR_BYTES - 2, b"\0") + struct.pack("<H", 0xAA55)
    (images(up) / f"{name}.raw").write_bytes(sector.ljust(MIB, b"\0"))
    vm = Vm(up, name)
    ask_for_disk(vm, f"{name}.raw")
    vm.until(lambda: vm.status.get("pid"), "it was started")
    pid = vm.status["pid"]
    assert vm.ask(cpu="2")[0] == 200
    says(vm, "the guest has not answered yet")
    assert vm.status["state"] == "Starting"
    assert (vm.status["pid"], vm.status["restartCount"]) == (pid, 0)
    vm.delete()
