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
AMOUNT = r" +(\d+) +(\d+|-) +(\d+|-) │"
TIMELINE = {
    amounts: re.compile(rf"^ +[\d.]+  (\w+) +│{AMOUNT * amounts}", re.MULTILINE)
    for amounts in (2, 3)
}
LIFE = r" +([\d.]+) s +(\w+) │ +(\d+) +(\d+)/100 ms +(\d+) MiB"
CELLS_PROOF = re.compile(rf"^(start|grow|shrink) +(\d+) +(\d+) MiB +(\d+) MiB{LIFE}", re.MULTILINE)
DIMMS_PROOF = re.compile(
    rf"^(start|grow|shrink) +(\d+) +(\d+) MiB +([\d +]+ MiB|none){LIFE}", re.MULTILINE
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
def test_container_and_virtual_machines_are_shown_with_proof(tmp_path: Path) -> None:
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

    before, cells, dimms = re.split(r"^vm[12], with", shown, flags=re.MULTILINE)
    assert "Booting vm1" in before
    check_cells(cells)
    check_dimms(dimms)


def check_cells(shown: str) -> None:
    """Only cell 1 has moved, in the pod's words and in the guest's own."""
    moments = TIMELINE[3].findall(shown)
    first = moments[0]
    grown = str(int(first[9]) + 768)
    assert [one[1:] for one in moments if one[0] == "Done"] == [
        ("4", "4", "4", *first[4:7], "1024", "1024", grown),
        ("1", moments[-1][2], "1", *first[4:7], "256", "256", first[9]),
    ]
    assert ("InProgress", "4", "1", "1") in [one[:4] for one in moments]
    assert {one[4:6] for one in moments} == {("256", "256")}
    between = {int(one[8]) for one in moments if one[0] == "InProgress" and one[8] != "-"}
    assert between - {256, 1024}, "memory was never seen on its way"

    proofs = CELLS_PROOF.findall(shown)
    assert [one[:2] for one in proofs] == [("start", "1"), ("grow", "4"), ("shrink", "1")]
    (first_cell, second_cell), large, back = (tuple(map(int, one[2:4])) for one in proofs)
    assert large == (first_cell, second_cell + 768)
    assert back == (first_cell, second_cell)
    check_same_guest([one[4:] for one in proofs], quotas=[100, 400, 100])


def check_dimms(shown: str) -> None:
    moments = TIMELINE[2].findall(shown)
    seen = int(moments[0][6])
    assert [one[1:] for one in moments if one[0] == "Done"] == [
        ("1", "1", "1", str(size), str(size), str(seen + size - 512)) for size in (1152, 640, 512)
    ]

    proofs = DIMMS_PROOF.findall(shown)
    assert [one[0] for one in proofs] == ["start", "grow", "shrink", "shrink"]
    first, *others = (int(one[2]) for one in proofs)
    assert [other - first for other in others] == [640, 128, 0]
    assert [one[3] for one in proofs] == ["none", "512 + 128 MiB", "128 MiB", "none"]
    check_same_guest([one[4:] for one in proofs], quotas=[100] * 4)


def check_same_guest(lives: list[tuple[str, ...]], quotas: list[int]) -> None:
    uptimes = [float(life[0]) for life in lives]
    assert uptimes == sorted(set(uptimes))
    assert len({(boot, pid) for _, boot, pid, *_ in lives}) == 1
    assert [int(life[3]) for life in lives] == quotas


@pytest.mark.vms
@pytest.mark.matrix
def test_a_demo_that_is_ended_while_the_guest_boots_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        read_until(process, "Booting vm1")
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
        read_until(process, "Booting vm1")
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
