"""Reads what this machine has, is and uses."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

import msgspec

from livesize.api.architecture import architecture_of
from livesize.runtime.interface import MachineFacts, MachineUsage, RuntimeCallError


def observe_machine() -> MachineFacts:
    """CPUs are those this process may use, which a container host may have narrowed."""
    return msgspec.structs.replace(
        _lasting_facts(),
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_bytes=_memory_bytes(_text("/proc/meminfo"), "MemTotal"),
    )


@functools.cache
def _lasting_facts() -> MachineFacts:
    """What cannot change while this process lives."""
    return MachineFacts(
        cpu_milli=0,
        memory_bytes=0,
        kernel_version=platform.release(),
        os_image=_os_image(_text("/etc/os-release")),
        architecture=architecture_of(platform.machine()),
        boot_id=boot_id(),
        machine_id=_text("/etc/machine-id").strip(),
        runtime_version=f"process://{_version()}",
    )


def observe_usage() -> MachineUsage:
    """Everything that runs here, the system itself too. Memory: what could not be had."""
    meminfo = _text("/proc/meminfo")
    try:
        held_bytes = _memory_bytes(meminfo, "MemTotal") - _memory_bytes(meminfo, "MemAvailable")
        return MachineUsage(_busy_ns(_text("/proc/stat")), max(0, held_bytes))
    except ValueError as failure:
        raise RuntimeCallError(f"cannot read what the machine uses: {failure}") from failure


def _busy_ns(stat: str) -> int:
    """user, nice, system, irq, softirq and steal of all CPUs (proc(5)); a guest's time is in user
    already."""
    ticks = [int(word) for word in stat.partition("\n")[0].split()[1:9]]
    busy = sum(ticks) - sum(ticks[3:5])  # without idle and iowait
    return busy * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def boot_id() -> str:
    """Changes with every start of the machine."""
    return _text("/proc/sys/kernel/random/boot_id").strip()


def booted_at() -> float:
    """When the machine was started, in seconds since the epoch; 0 where it does not say."""
    for line in _text("/proc/stat").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def _memory_bytes(meminfo: str, name: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/meminfo has no {name}")


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
