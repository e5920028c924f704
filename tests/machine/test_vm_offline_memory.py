"""Real guests whose kernel leaves added memory offline, as a stock Debian does: a resize is done
when the guest itself has the memory, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import libvirt
import pytest

from leaks import claim
from livesize.guest_images.cpio import CpioFile, Entry
from livesize.guest_images.guest_agent import agent_entries, fetch_agent
from livesize.guest_images.image import build_image
from livesize.guest_images.kernel import default_cache_dir, fetch_kernel
from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME, guest_recipe
from livesize.machinery.data_directory import DataDirectory
from livesize.runtime.vm_config import COMMAND_LINE
from system.up import Up
from system.vm import MIB, READY_SECONDS, Vm, install_images

pytestmark = pytest.mark.vms

STOCK_LINE = COMMAND_LINE.replace("memhp_default_state=online_movable", "").strip()
BLOCKED, BARE = "blocked.initrd", "bare.initrd"
AGENT_SCRIPT = "usr/lib/livesize/agent"


def install_variants(directory: Path) -> None:
    """Guests without an agent, and with one that may run nothing."""
    cache = default_cache_dir()
    kernel, agent = fetch_kernel(cache), agent_entries(fetch_agent(cache))
    images = DataDirectory(directory).vm_images
    images.mkdir(parents=True, exist_ok=True)
    bare = guest_recipe({})
    blocked: dict[str, Entry] = dict(guest_recipe(agent).entries)
    script = blocked[AGENT_SCRIPT]
    assert isinstance(script, CpioFile)
    content = script.content.replace(b"-m virtio-serial", b"-b guest-exec -m virtio-serial")
    assert content != script.content
    blocked[AGENT_SCRIPT] = CpioFile(content, 0o755)
    for name, entries in ((BARE, bare.entries), (BLOCKED, blocked)):
        recipe = type(bare)(name, bare.commands, bare.modules, entries)
        built = build_image(recipe, kernel, cache)
        (images / name).write_bytes(built.read_bytes())
        (images / name).chmod(0o644)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    made = Up(directory, allocatable="cpu=16,memory=8Gi")
    install_images(directory)
    install_variants(directory)
    claim(f"{made.node}-vms", directory)
    try:
        made.start()
        yield made
    finally:
        made.end()


def stock(initrd: str = INITRD_NAME) -> dict[str, Any]:
    return {"kernel": {"image": KERNEL_NAME, "initrd": initrd, "commandLine": STOCK_LINE}}


def zones(vm: Vm) -> str:
    """What the guest's kernel keeps apart so that it can be given back."""
    return vm.guest_file("/proc/zoneinfo")


def movable_pages(vm: Vm) -> int:
    told = zones(vm).partition("zone  Movable")[2]
    return int(told.partition("managed")[2].split()[0])


T = TypeVar("T")


def answered(ask: Callable[[], T]) -> T | None:
    """None: its agent does not answer now."""
    try:
        return ask()
    except libvirt.libvirtError:
        return None


def test_what_stays_offline_is_brought_online_where_it_can_be_taken_back(up: Up) -> None:
    vm = Vm(up, "stock")
    vm.create("1", "512Mi", **stock())
    before, boot_id = vm.memory_total(), vm.boot_id()
    vm.resize(memory="1Gi")
    assert vm.memory_total() - before == 512 * MIB, "the guest's own figure"
    assert movable_pages(vm) * 4096 == 512 * MIB
    vm.check(1, 1024)
    vm.resize(memory="512Mi")
    vm.check(1, 512)
    assert (vm.memory_total(), vm.boot_id()) == (before, boot_id)
    vm.delete()


@pytest.mark.matrix
def test_what_is_offline_again_after_a_reboot_is_brought_online(up: Up) -> None:
    vm = Vm(up, "again")
    vm.create("1", "1Gi", **stock())
    vm.until(lambda: vm.memory_total() > 800 * MIB, "it has what it was made with")
    before, boot_id = vm.memory_total(), vm.boot_id()
    vm.reboot()
    vm.until(lambda: answered(vm.boot_id) not in (None, boot_id), "it has booted", READY_SECONDS)
    vm.until(lambda: answered(vm.memory_total) == before, "it has all of it again", READY_SECONDS)
    assert movable_pages(vm) * 4096 == 512 * MIB
    vm.delete()


@pytest.mark.matrix
def test_where_the_agent_may_run_nothing_a_shrink_may_be_refused_and_that_is_said(up: Up) -> None:
    vm = Vm(up, "blocked")
    vm.create("1", "512Mi", **stock(BLOCKED))
    before = vm.memory_total()
    vm.resize(memory="768Mi")
    assert vm.memory_total() - before == 256 * MIB
    assert movable_pages(vm) == 0
    told = vm.condition("PodResized")
    assert told is not None
    assert "may refuse to give it back in a later shrink" in told["message"]
    vm.delete()


def test_without_an_agent_it_stays_in_progress_and_says_what_the_guest_lacks(up: Up) -> None:
    vm = Vm(up, "bare")
    vm.ask_for("1", "512Mi", **stock(BARE))
    vm.until(lambda: vm.status.get("state") == "Running", "the guest is heard", READY_SECONDS)
    code, answer = vm.ask(memory="768Mi")
    assert code == 200, answer
    words = "it has no qemu-guest-agent that could bring them online"
    vm.until(lambda: words in vm.state["message"], words, 60)
    assert vm.plugged_bytes() == 768 * MIB
    looked = vm.up.log().count("resize not done yet")
    vm.until(lambda: vm.up.log().count("resize not done yet") > looked, "it was tried again", 60)
    assert vm.state["phase"] == "InProgress"
    assert vm.condition("PodResizeInProgress") is not None
    vm.resize(memory="512Mi")
    vm.delete()
