"""Boots a guest under QEMU's own emulation, waits until it powers off, and says what it said.

Never KVM: these tests must give the same answer on machines where it is missing or emulated
itself. The guest is bounded twice: here by a time limit, after which QEMU is killed, and inside
by its own, for the case that nobody is left here to kill it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from livesize.guest_images.kernel import GuestKernel

RESULTS_PORT = "livesize.results"
DISK_BYTES = 256 * 1024 * 1024
COMMAND_LINE = "console=ttyS0 quiet panic=-1 psi=1 cryptomgr.notests rdinit=/init"


class GuestRun(NamedTuple):
    console: str
    results: str
    timed_out: bool


def run_guest(
    kernel: GuestKernel,
    image: Path,
    folder: Path,
    *,
    memory_mib: int,
    limit_seconds: float,
    cpus: int = 2,
    tell: str = "",
) -> GuestRun:
    """``folder`` gets the guest's disk and what it wrote: console.log and results.jsonl. ``tell``
    is added to the kernel's command line."""
    disk, console, results = folder / "disk", folder / "console.log", folder / "results.jsonl"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    command = [
        *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", str(cpus)),
        *("-m", str(memory_mib), "-display", "none", "-monitor", "none", "-no-reboot"),
        *("-kernel", str(kernel.image), "-initrd", str(image), "-nic", "none"),
        *("-append", f"{COMMAND_LINE} {tell}".strip()),
        *("-serial", f"file:{console}"),
        *("-drive", f"file={disk},if=virtio,format=raw"),
        *("-device", "virtio-serial-pci", "-chardev", f"file,id=results,path={results}"),
        *("-device", f"virtserialport,chardev=results,name={RESULTS_PORT}"),
    ]
    timed_out, said = _wait(command, limit_seconds)
    return GuestRun(_text(console) + said, _text(results), timed_out)


def _wait(command: list[str], limit_seconds: float) -> tuple[bool, str]:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as qemu:
        try:
            said, _ = qemu.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            qemu.kill()
            said, _ = qemu.communicate()
            return True, said.decode(errors="replace")
        except BaseException:
            qemu.kill()
            raise
    return False, said.decode(errors="replace")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
