"""Finds out whether KVM is real here: QEMU uses it, or emulates the processor itself (TCG).

That /dev/kvm opens says little: there are machines where it does, and then interprets every
instruction, slower than TCG. So real work is timed, in a process of its own (kvm_loop.py). The
answer holds until the machine boots again, and is cached until then.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from livesize.runtime import kvm_loop
from livesize.runtime.process.machine_facts import boot_id
from livesize.runtime.process.records import write_whole
from livesize.runtime.vm import Accelerator

KVM_DEVICE = Path("/dev/kvm")
SLOW_SECONDS = 0.020  # real KVM needs a tenth of it, an emulated one thirty times as much
_PROCESS_SECONDS = 10


class LoopRun(msgspec.Struct, frozen=True):
    """How the timed loop went: the seconds it took, or what stopped it."""

    seconds: float | None = None
    error: str = ""


class FoundAccelerator(msgspec.Struct, frozen=True):
    accelerator: Accelerator
    why: str  # one sentence, for `livesize doctor` and the log


class _CachedAccelerator(msgspec.Struct, frozen=True):
    boot_id: str
    found: FoundAccelerator


def find_accelerator(cache_dir: Path, device: Path = KVM_DEVICE) -> FoundAccelerator:
    """As found since the machine booted, or found out now. Blocks for up to half a second."""
    path = cache_dir / "accelerator.json"
    cached = _load(path)
    if cached is not None and cached.boot_id == boot_id():
        return cached.found
    found = observe_accelerator(device)
    cache_dir.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(_CachedAccelerator(boot_id(), found)))
    return found


def observe_accelerator(device: Path = KVM_DEVICE) -> FoundAccelerator:
    if platform.machine() != "x86_64":
        return FoundAccelerator(Accelerator.TCG, f"this is {platform.machine()}, not x86_64")
    if not device.exists():
        return FoundAccelerator(Accelerator.TCG, f"there is no {device}")
    if not os.access(device, os.R_OK | os.W_OK):
        return FoundAccelerator(Accelerator.TCG, f"{device} may not be used by this user")
    return judge(device, _run_loop(device))


def judge(device: Path, run: LoopRun) -> FoundAccelerator:
    """Pure: from how the loop went to what is used."""
    if run.seconds is None:
        return FoundAccelerator(Accelerator.TCG, f"{device} does not work: {run.error}")
    took = f"{kvm_loop.LOOPS:,} steps in {run.seconds * 1000:.1f} ms"
    if run.seconds > SLOW_SECONDS:
        return FoundAccelerator(
            Accelerator.TCG, f"{device} is there but emulates by itself: {took} is too slow"
        )
    return FoundAccelerator(Accelerator.KVM, f"{device} is real: {took}")


def _run_loop(device: Path) -> LoopRun:
    command = [sys.executable, "-I", "-S", str(Path(kvm_loop.__file__)), str(device)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PROCESS_SECONDS
        )
    except subprocess.TimeoutExpired:
        return LoopRun(error=f"no answer within {_PROCESS_SECONDS} s")
    if done.returncode == -signal.SIGALRM:
        took = f"{kvm_loop.LOOPS:,} steps took longer than {kvm_loop.LIMIT_SECONDS} s"
        return LoopRun(error=f"{took}, so it emulates by itself")
    if done.returncode != 0:
        return LoopRun(error=done.stderr.strip() or f"it ended with {done.returncode}")
    return LoopRun(seconds=float(done.stdout))


def _load(path: Path) -> _CachedAccelerator | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_CachedAccelerator)
    except (OSError, msgspec.MsgspecError):
        return None
