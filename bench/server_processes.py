"""The servers under measurement as processes: which they are, and the CPU they have used."""

from __future__ import annotations

from pathlib import Path

_NANO = 10**9


def child_with(text: str) -> int:
    """The process among those started from here whose command line has ``text`` in it."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            if text.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise AssertionError(f"no process was started with {text}")


def cpu_seconds(pid: int) -> float:
    """Used so far by all of its threads that still run."""
    spent = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        spent += int(schedstat.read_text().split()[0])
    return spent / _NANO
