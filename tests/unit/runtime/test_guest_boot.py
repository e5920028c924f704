"""The guest of the machine tests: bounded in time, and its report read as far as it came."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from guest.boot import GuestRun, run_guest
from guest.session import parse_session
from livesize.guest_images.kernel import GuestKernel

KERNEL = GuestKernel("6.1", Path("vmlinuz"), Path("modules"))


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program in place of QEMU."""
    program = folder / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_guest_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    stand_in(tmp_path, monkeypatch, f"echo $$ >{pid_file}; echo booting; exec sleep 1000")
    start = time.monotonic()
    done = run_guest(KERNEL, Path("image"), tmp_path, memory_mib=64, limit_seconds=0.5)
    assert time.monotonic() - start < 10
    assert (done.timed_out, done.console) == (True, "booting\n")
    assert not Path("/proc", pid_file.read_text().strip()).exists()


def test_what_a_guest_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"echo login: >{tmp_path}/console.log; echo goodbye >&2")
    done = run_guest(KERNEL, Path("image"), tmp_path, memory_mib=64, limit_seconds=10)
    assert done == GuestRun("login:\ngoodbye\n", "", timed_out=False)


def test_a_report_counts_as_far_as_it_came() -> None:
    one = json.dumps({"test": "a", "outcome": "failed", "seconds": 1.5, "text": "}"})
    whole = parse_session(GuestRun("", f'{one}\n{{"finished": 1}}\n', timed_out=False))
    cut = parse_session(GuestRun("", f'{one}\n{{"test": "b}}', timed_out=True))
    assert (whole.exit_status, cut.exit_status) == (1, None)
    assert [result.test for result in whole.results] == ["a"] == [r.test for r in cut.results]
    assert whole.results[0].text == "}"
