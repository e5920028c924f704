"""A real guest that says what cannot be, without end: the agent goes on, drops it, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaks import claim
from livesize.guest_images.cpio import CpioFile, Entry
from livesize.guest_images.image import build_image
from livesize.guest_images.kernel import default_cache_dir, fetch_kernel
from livesize.guest_images.vm_guest import KERNEL_NAME, guest_recipe
from livesize.machinery.data_directory import DataDirectory
from system.up import Up
from system.vm import READY_SECONDS, Vm, install_images

pytestmark = [pytest.mark.security, pytest.mark.matrix]

REPORT, LIAR = "usr/lib/livesize/report", "liar.initrd"


def install_liar(directory: Path) -> None:
    """Whoever asks it hears of ten million CPUs; and it does not wait to be asked."""
    recipe = guest_recipe({})
    entries: dict[str, Entry] = dict(recipe.entries)
    report = entries[REPORT]
    assert isinstance(report, CpioFile)
    lie = report.content.replace(
        b"read -r online </sys/devices/system/cpu/online", b"online=0-9999999"
    )
    assert lie != report.content
    entries[REPORT] = CpioFile(lie + b"\n")
    channel = entries["usr/lib/livesize/channel"]
    assert isinstance(channel, CpioFile)
    flood = channel.content.replace(b"report 0 >&3\n", b"while :; do report 0 >&3; done &\n", 1)
    assert flood != channel.content
    entries["usr/lib/livesize/channel"] = CpioFile(flood, 0o755)
    made = type(recipe)("liar", recipe.commands, recipe.modules, entries)
    cache = default_cache_dir()
    image = DataDirectory(directory).vm_images / LIAR
    image.write_bytes(build_image(made, fetch_kernel(cache), cache).read_bytes())
    image.chmod(0o644)


def test_a_guest_that_names_ten_million_cpus_stalls_nobody(tmp_path: Path) -> None:
    up = Up(tmp_path, allocatable="cpu=16,memory=8Gi")
    install_images(tmp_path)
    install_liar(tmp_path)
    claim(f"{up.node}-vms", tmp_path)
    try:
        up.start()
        vm = Vm(up, "liar")
        vm.ask_for("1", "512Mi", kernel={"image": KERNEL_NAME, "initrd": LIAR})
        words = "it names the CPUs '0-9999999', and its domain can have 6"
        heard = lambda: words in vm.status.get("guest", {}).get("message", "")  # noqa: E731
        vm.until(heard, words, READY_SECONDS)
        for number in range(20):  # each has ten seconds; one report took thirteen
            labels = {"metadata": {"labels": {"number": str(number)}}}
            code, _ = up.request("PATCH", vm.path, labels, "application/merge-patch+json")
            assert code == 200
            assert up.livesize("logs", f"pod/{vm.name}", "--tail", "1").returncode == 0
        dropped = up.log().count("a guest's word is dropped")
        assert 1 <= dropped < 10, "it does not decide how often we say so"
        vm.delete()
    finally:
        up.end()
