"""What the acts with virtual machines need of this machine, and the guest they boot."""

from __future__ import annotations

import re
from pathlib import Path

import click

from livesize.cli.doctor.vm_checks import (
    VmTools,
    check_binding,
    check_libvirt,
    check_qemu,
    observe_vm_tools,
)
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import default_cache_dir
from livesize.guest_images.vm_guest import build_guest, install_guest

NEEDED_MEMORY_MIB = 3 * 1024  # both guests, one at its largest, QEMU, the container, Livesize


def prepare_vms(images_dir: Path) -> list[str]:
    """Put a guest where VM pods find it; or say what is missing, and how to get it."""
    missing = missing_for_vms(observe_vm_tools(), Path("/proc/meminfo").read_text())
    return missing or _install_guest(images_dir)


def missing_for_vms(tools: VmTools, meminfo: str) -> list[str]:
    """A sentence for each. Older versions than the tested ones are tried. Pure."""
    found = [
        check_qemu(tools.qemu) if tools.qemu is None else None,
        check_libvirt(tools.libvirtd) if tools.libvirtd is None else None,
        check_binding(tools) if tools.binding_error else None,
    ]
    missing = [f"{one.what}\n    {one.remedy}" for one in found if one is not None]
    available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    if available and int(available[1]) // 1024 < NEEDED_MEMORY_MIB:
        free = int(available[1]) // 1024
        missing.append(
            f"{free} MiB of memory are available\n    free some: {NEEDED_MEMORY_MIB} MiB are needed"
        )
    return missing


def _install_guest(images_dir: Path) -> list[str]:
    cache = default_cache_dir()
    click.echo(f"Preparing the guest image (built once, then kept in {cache}) ...")
    try:
        built = build_guest(cache)
        install_guest(built, images_dir)
    except (GuestImageError, OSError) as failure:
        return [f"no guest image: {failure}\n    `livesize guest build` builds it"]
    if built.note:  # the witness, and under emulation the one who switches vCPUs off
        return [f"the guest was built {built.note}\n    as root, run apt-get update"]
    return []
