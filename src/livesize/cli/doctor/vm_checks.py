"""What this machine has of what virtual machines need: QEMU, libvirt and its Python bindings.

Containers need none of it, so every finding is optional. Which accelerator QEMU would use is
known to the code that runs it; main hands the doctor a probe for that.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import msgspec

from livesize.cli.doctor.checks import Finding

NEEDED_QEMU = 10
NEEDED_LIBVIRT = 11
# libvirtd is started with this path; that of an ordinary user often lacks the sbin folders.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SETUP = "`make setup` as root installs it, from backports where the release has an older one"
_VERSION = re.compile(r"(\d+)\.\d+(?:\.\d+)?")
_ANSWER_SECONDS = 5.0


class VmTools(msgspec.Struct, frozen=True):
    """What was found: what each program says of its version, and why the bindings do not load.
    None: there is no such program."""

    qemu: str | None
    libvirtd: str | None
    binding_error: str = ""


def observe_vm_tools() -> VmTools:
    return VmTools(_version_of("qemu-system-x86_64"), _version_of("libvirtd"), _binding_error())


def vm_findings(tools: VmTools) -> list[Finding]:
    return [check_qemu(tools.qemu), check_libvirt(tools.libvirtd), check_binding(tools)]


def check_qemu(version: str | None) -> Finding:
    by_hand = "by hand: apt-get install qemu-system-x86"
    return _check_version("qemu", "QEMU", version, NEEDED_QEMU, f"{_SETUP}; {by_hand}")


def check_libvirt(version: str | None) -> Finding:
    by_hand = "by hand: apt-get install libvirt-daemon libvirt-daemon-driver-qemu"
    return _check_version("libvirt", "libvirt", version, NEEDED_LIBVIRT, f"{_SETUP}; {by_hand}")


def check_binding(tools: VmTools) -> Finding:
    if not tools.binding_error:
        return Finding("libvirt-python", True, "libvirt's Python bindings load", optional=True)
    remedy = (
        "`make setup` as root, or pip install 'livesize[vm]' (needs libvirt-dev, pkg-config, gcc)"
    )
    what = f"libvirt's Python bindings do not load: {tools.binding_error}"
    return Finding("libvirt-python", False, what, remedy, optional=True)


def accelerator_finding(accelerator: str, why: str) -> Finding:
    """Both work; the emulator is slower, and takes vCPUs away by switching them off."""
    titles = {"kvm": "KVM", "tcg": "TCG (QEMU emulates the processor; slower)"}
    what = f"{titles.get(accelerator, accelerator)}: {why}"
    return Finding("accelerator", True, what, optional=True)


def _check_version(name: str, title: str, version: str | None, needed: int, remedy: str) -> Finding:
    if version is None:
        what = f"{title} is not installed: virtual machines cannot run"
        return Finding(name, False, what, remedy, optional=True)
    found = _VERSION.search(version)
    if found is None:
        what = f"{title} does not say its version: virtual machines may not run"
        return Finding(name, False, what, remedy, optional=True)
    if int(found[1]) >= needed:
        return Finding(name, True, f"{title} {found[0]}", optional=True)
    what = f"{title} {found[0]} is older than {needed}, with which virtual machines are tested"
    return Finding(name, False, what, remedy, optional=True)


def _version_of(program: str) -> str | None:
    path = shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        return None
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout


def _binding_error() -> str:
    try:
        import libvirt
        import libvirt_qemu  # noqa: F401
    except ImportError as failure:
        return str(failure)
    return "" if hasattr(libvirt, "open") else "libvirt is not libvirt's own module"
