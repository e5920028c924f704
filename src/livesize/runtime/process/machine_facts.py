"""Reads what this machine has and is."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

import msgspec

from livesize.runtime.interface import MachineFacts


def observe_machine() -> MachineFacts:
    """CPUs are those this process may use, which a container host may have narrowed."""
    return msgspec.structs.replace(
        _lasting_facts(),
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_bytes=_total_memory_bytes(_text("/proc/meminfo")),
    )


@functools.cache
def _lasting_facts() -> MachineFacts:
    """What cannot change while this process lives."""
    return MachineFacts(
        cpu_milli=0,
        memory_bytes=0,
        kernel_version=platform.release(),
        os_image=_os_image(_text("/etc/os-release")),
        architecture=platform.machine(),
        boot_id=boot_id(),
        machine_id=_text("/etc/machine-id").strip(),
        runtime_version=f"process://{_version()}",
    )


def boot_id() -> str:
    """Changes with every start of the machine."""
    return _text("/proc/sys/kernel/random/boot_id").strip()


def _total_memory_bytes(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/meminfo has no MemTotal")


def _os_image(release: str) -> str:
    for line in release.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip('"')
    return "Linux"


def _version() -> str:
    try:
        return metadata.version("livesize")
    except metadata.PackageNotFoundError:
        return "0"


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
