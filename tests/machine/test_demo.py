"""`livesize demo` keeps its promises, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leaks import claim, sweep
from system.up import LIVESIZE

DEMO_SECONDS = 170
TIMELINE = re.compile(
    r"^ +[\d.]+  (\w+) +│ +(\d+) +(\d+|-) +(\d+|-) │ +(\d+) +(\d+|-) +(\d+|-) │", re.MULTILINE
)
PROOF = re.compile(
    r"^(start|grow|shrink) +(\d+) +(\d+) MiB +([\d.]+) s +(\w+) │ +(\d+) +(\d+)/100 ms +(\d+) MiB",
    re.MULTILINE,
)
CONTAINER = re.compile(r"^(start|grow|shrink) .* MiB +(\d+)(?:  +[\d.]+ ms)?$", re.MULTILINE)


@contextmanager
def demo(directory: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Begun, with its output to read; its temporary files are made in ``directory``."""
    # Whoever runs tests in the background of a shell has SIGINT ignored, and that is inherited.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command or [LIVESIZE, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    signal.signal(signal.SIGINT, before)
    for group in (f"demo-{process.pid}", f"demo-{process.pid}-vms"):
        claim(group, directory)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    shown = []
    for line in process.stdout:
        shown.append(line)
        if words in line:
            return
    raise AssertionError(f"{words!r} was not said:\n{''.join(shown)}")


def check_nothing_is_left(directory: Path) -> None:
    assert sweep(directory) == []
    assert list(directory.iterdir()) == []


@pytest.mark.vms
def test_container_and_virtual_machine_are_shown_with_proof(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        shown, errors = process.communicate(timeout=DEMO_SECONDS)

    assert process.returncode == 0, shown + errors
    assert "Nothing is left behind" in shown
    check_nothing_is_left(tmp_path)
    assert max(len(line) for line in shown.splitlines()) <= 100
    assert "\x1b" not in shown

    rows = CONTAINER.findall(shown)
    assert [word for word, _ in rows] == ["start", "grow", "shrink"]
    assert len({pid for _, pid in rows}) == 1

    moments = TIMELINE.findall(shown)
    assert [one[1:] for one in moments if one[0] == "Done"] == [
        ("4", "4", "4", "2048", "2048", str(int(moments[0][6]) + 1536)),
        ("1", moments[-1][2], "1", "512", "512", moments[0][6]),
    ]
    assert ("InProgress", "4", "1", "1") in [one[:4] for one in moments]
    between = {int(one[5]) for one in moments if one[0] == "InProgress" and one[5] != "-"}
    assert between - {512, 2048}, "memory was never seen on its way"

    proofs = PROOF.findall(shown)
    assert [one[:2] for one in proofs] == [("start", "1"), ("grow", "4"), ("shrink", "1")]
    small, large, back = (int(one[2]) for one in proofs)
    assert (large - small, back) == (1536, small)
    uptimes = [float(one[3]) for one in proofs]
    assert uptimes == sorted(set(uptimes))
    assert len({(boot, pid) for *_, boot, pid, _, _ in proofs}) == 1
    assert [int(one[6]) for one in proofs] == [100, 400, 100]


@pytest.mark.vms
@pytest.mark.matrix
def test_a_demo_that_is_ended_while_the_guest_boots_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        read_until(process, "Booting a virtual machine")
        wait_for_qemu(tmp_path)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert "left something behind" not in errors
    assert "Interrupted; everything was stopped and removed." in errors
    check_nothing_is_left(tmp_path)


@pytest.mark.vms
@pytest.mark.matrix
@pytest.mark.parametrize(
    "words", ["Starting Livesize", "cgroup CPU", "InProgress", "Asked without"]
)
def test_ctrl_c_twice_at_any_time_leaves_nothing_behind(tmp_path: Path, words: str) -> None:
    with demo(tmp_path) as process:
        read_until(process, words)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    check_nothing_is_left(tmp_path)


@pytest.mark.vms
@pytest.mark.matrix
def test_a_system_that_dies_fails_the_demo_and_is_cleaned_away(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        read_until(process, "Booting a virtual machine")
        wait_for_qemu(tmp_path)
        os.kill(child_of(process.pid), signal.SIGKILL)
        shown, errors = process.communicate(timeout=100)

    assert process.returncode == 1, shown + errors
    assert errors.startswith("Error: ")
    check_nothing_is_left(tmp_path)


@pytest.mark.containers
def test_without_qemu_the_container_is_shown_and_the_exit_code_says_so(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-system-x86_64")
    hide = f"mount --bind /dev/null {qemu} && " if qemu else ""
    script = f"{hide}exec {LIVESIZE} demo"
    with demo(tmp_path, "unshare", "--mount", "sh", "-c", script) as process:
        shown, errors = process.communicate(timeout=60)

    assert process.returncode == 3, shown + errors
    assert "QEMU is not installed" in errors
    assert "apt-get install qemu-system-x86" in errors
    assert [word for word, _ in CONTAINER.findall(shown)] == ["start", "grow", "shrink"]
    assert "Nothing is left behind" in shown
    check_nothing_is_left(tmp_path)


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def wait_for_qemu(directory: Path) -> None:
    """Until libvirt has written its pid."""
    deadline = time.monotonic() + 60
    while not list(directory.glob("*/data/agent/vms/libvirt/run/qemu/vm-*.pid")):
        assert time.monotonic() < deadline, "QEMU was not started"
        time.sleep(0.05)
