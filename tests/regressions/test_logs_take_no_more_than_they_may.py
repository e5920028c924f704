"""Logs of containers that run for long, write much, or are followed for days."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from livesize.machinery.clock import SystemClock
from livesize.runtime.logs import rotation as keeping
from livesize.runtime.logs import times
from livesize.runtime.logs.cri import log_files, read_cri, rotate
from livesize.runtime.logs.raw import Growth, times_path
from livesize.runtime.logs.rotation import LogRotation
from livesize.runtime.streams import LogLimits
from unit.runtime.test_logs import collected, data, query, record


def opened_below(folder: Path) -> int:
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += path.readlink().is_relative_to(folder)
    return count


async def test_following_holds_no_files_that_were_rotated_away(tmp_path: Path) -> None:
    """Each rotation left one open: thousands in a day, and what was removed stayed on the disk."""
    log, most, limits = tmp_path / "0.log", 0, LogLimits(10, 2)
    log.touch()

    async def reopen() -> None:
        log.touch()

    growth = Growth(lambda: True, lambda: asyncio.sleep(0.001))
    lines = read_cri(log, query(), growth)
    async with contextlib.aclosing(lines):
        await anext(lines)
        for number in range(10):
            with log.open("ab") as file:
                file.write(record(number, f"number {number}"))
            assert data(await anext(lines)) == f"number {number}\n".encode()
            await rotate(log, limits, float(number), reopen)
            most = max(most, opened_below(tmp_path))
    assert most <= 2
    assert opened_below(tmp_path) == 0


async def test_the_last_lines_hold_no_files_before_them(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"0.log.{number}").write_bytes(record(number, "old"))
    (tmp_path / "0.log").write_bytes(record(5, "new"))
    lines = read_cri(tmp_path / "0.log", query(tail_lines=1))
    async with contextlib.aclosing(lines):
        assert [len(await anext(lines)) for _ in range(2)] == [0, 1]
        assert opened_below(tmp_path) == 1


async def test_a_log_that_was_put_aside_by_one_who_was_killed_is_begun_anew(
    tmp_path: Path,
) -> None:
    """containerd went on to write the old one, which nobody ever looked at again."""
    (tmp_path / "0.log.20260101-000000").write_bytes(record(1, "x" * 200))
    log = tmp_path / "0.log"

    async def reopen() -> None:
        log.touch()

    await rotate(log, LogLimits(100, 3), 0.0, reopen)
    assert log.exists()
    await rotate(tmp_path / "1.log", LogLimits(100, 3), 0.0, reopen)
    assert len(log_files(log)) == 2


async def test_parts_of_two_streams_are_not_put_together(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    error = record(2, "error").replace(b"stdout", b"stderr")
    log.write_bytes(record(1, "a long ", "P") + error + record(3, "line") + record(4, "cut", "P"))
    read = [line.data for line in await collected(read_cri(log, query()))]
    assert read == [b"error\n", b"a long line\n", b"cut"]


def test_times_are_kept_for_so_many_moments(tmp_path: Path) -> None:
    """A line every 50 ms: 27 MB a day, all of it in memory while somebody read the log."""
    path, notes = tmp_path / "0.times", times.MOST_BYTES // 16
    times.note(path, 1, 1)
    with path.open("ab") as file:
        pairs = [number for moment in range(2, notes) for number in (moment, moment)]
        file.write(times.array.array("Q", pairs).tobytes())
    for moment in range(notes, notes + 10):
        times.note(path, moment, moment)
    assert path.stat().st_size <= times.MOST_BYTES * 0.6
    kept = times.LogTimes(path)
    assert (kept.start, kept.end) == (0, notes + 9)
    assert list(kept.offsets) == sorted(kept.offsets)
    for offset in (0, 1000, notes - 3, notes + 8):
        assert offset < kept.at(offset, 0) <= offset + 2


async def test_a_log_that_ends_too_long_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its container wrote much and ended within a second, again and again."""
    monkeypatch.setattr(keeping, "CUT_SECONDS", 0.05)
    log = tmp_path / "0.log"
    log.touch()
    rotation = LogRotation(SystemClock(), LogLimits(16 * 1024, 2))
    rotation.open()
    rotation.begin(log)
    log.write_bytes(b"much of it\n" * 100_000)
    rotation.end(log)
    async with asyncio.timeout(2):
        while log.stat().st_blocks * 512 > 64 * 1024:
            await asyncio.sleep(0.01)
    assert times.LogTimes(times_path(log)).start > 1_000_000
    rotation.close()
