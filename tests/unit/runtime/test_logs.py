"""Container logs on disk: which lines, from when, to the end and on; and never too many."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.machinery.clock import SystemClock
from livesize.runtime.logs import rotation as keeping
from livesize.runtime.logs import times
from livesize.runtime.logs.cri import log_files, read_cri, rotate
from livesize.runtime.logs.raw import Growth, read_raw, shorten, times_path
from livesize.runtime.logs.rotation import LogRotation
from livesize.runtime.streams import LogLimits, LogLine, LogLines, LogQuery, NoLogError

SECOND = 1_000_000_000


def query(**changes: object) -> LogQuery:
    return LogQuery("uid", "main", **changes)  # type: ignore[arg-type]


async def collected(lines: LogLines) -> list[LogLine]:
    return [line for several in [one async for one in lines] for line in several]


def data(lines: Sequence[LogLine]) -> bytes:
    return b"".join(line.data for line in lines)


# Plain bytes with times beside them


@given(st.lists(st.sampled_from([b"", b"a", b"bb\r", b"c" * 70_000]), max_size=5), st.data())
def test_the_last_lines_are_what_splitting_gives(lines: list[bytes], more: st.DataObject) -> None:
    content = b"".join(line + b"\n" for line in lines) + more.draw(st.sampled_from([b"", b"rest"]))
    count = more.draw(st.integers(0, 6))
    kept = content.splitlines(keepends=True) if b"\r" not in content else _split(content)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "0.log"
        log.write_bytes(content)
        read = asyncio.run(collected(read_raw(log, query(tail_lines=count))))
    assert [line.data for line in read] == kept[len(kept) - count if count < len(kept) else 0 :]


def _split(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    whole = [part + b"\n" for part in parts[:-1]]
    return [*whole, parts[-1]] if parts[-1] else whole


async def test_a_line_has_the_time_at_which_it_was_seen(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"one\ntwo\n")
    times.note(times_path(log), 4, 10 * SECOND)
    times.note(times_path(log), 8, 20 * SECOND)
    read = await collected(read_raw(log, query()))
    assert read == [LogLine(10 * SECOND, b"one\n"), LogLine(20 * SECOND, b"two\n")]
    assert data(await collected(read_raw(log, query(since=15)))) == b"two\n"
    assert data(await collected(read_raw(log, query(since=5)))) == b"one\ntwo\n"
    assert data(await collected(read_raw(log, query(since=25)))) == b""


async def test_a_log_that_is_not_there_is_said_before_anything_else(tmp_path: Path) -> None:
    for read in (read_raw, read_cri):
        with pytest.raises(NoLogError):
            await anext(read(tmp_path / "0.log", query()))


async def test_what_is_too_old_goes_and_the_rest_is_read_as_before(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    lines = [f"number {number}\n".encode() for number in range(30_000)]
    log.write_bytes(b"".join(lines))
    size, limits = log.stat().st_size, LogLimits(32 * 1024, 2)
    times.note(times_path(log), size // 2, SECOND)
    times.note(times_path(log), size, 2 * SECOND)
    start = shorten(log, size, limits)
    assert size - 32 * 1024 <= start < size
    assert log.stat().st_size == size
    assert log.stat().st_blocks * 512 < 64 * 1024
    read = await collected(read_raw(log, query()))
    assert data(read) == b"".join(lines)[start:]
    assert read[0].data in lines
    assert {line.time_ns for line in read} == {2 * SECOND}
    with log.open("ab") as file:
        file.write(b"goes on\n")
    assert data(await collected(read_raw(log, query(tail_lines=1)))) == b"goes on\n"


async def test_following_sees_what_comes_and_ends_with_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CUT_SECONDS", 0.05)
    log, running = tmp_path / "0.log", True
    log.write_bytes(b"before\n")
    rotation = LogRotation(SystemClock(), LogLimits(16 * 1024, 2))
    rotation.open()
    rotation.begin(log)
    seen: list[LogLine] = []

    async def follow() -> None:
        async for lines in read_raw(log, query(), rotation.following(log, lambda: running)):
            seen.extend(lines)

    expected = [b"before\n"]
    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        with log.open("ab", buffering=0) as file:
            for number in range(20):
                several = [f"{number} {index}\n".encode() * 20 for index in range(20)]
                expected += several
                file.write(b"".join(several))
                await asyncio.sleep(0.03)
        running = False
        rotation.end(log)
    assert data(seen) == b"".join(expected)
    assert seen[0].time_ns <= seen[-1].time_ns
    assert times.LogTimes(times_path(log)).start > 0, "it was rotated meanwhile"
    rotation.close()


async def test_a_log_that_its_workload_has_emptied_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"much of it\n" * 100)
    rotation = LogRotation(SystemClock(), LogLimits())
    rotation.open()
    rotation.begin(log)
    log.write_bytes(b"anew\n")
    rotation.end(log)
    assert data(await collected(read_raw(log, query()))) == b"anew\n"
    assert times.LogTimes(times_path(log)).end == 5
    rotation.close()


# As CRI has them


def record(second: int, text: str, tag: str = "F") -> bytes:
    return f"1970-01-01T00:00:{second:02d}.5Z stdout {tag} {text}\n".encode()


async def test_records_become_lines_and_parts_are_put_together(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(
        record(1, "one") + record(2, "a long ", "P") + record(3, "line") + b"no record\n"
        + b"1970-01-01T01:00:04.000000007+01:00 stderr F \n"
    )  # fmt: skip
    assert await collected(read_cri(log, query())) == [
        LogLine(SECOND + SECOND // 2, b"one\n"),
        LogLine(2 * SECOND + SECOND // 2, b"a long line\n"),
        LogLine(4 * SECOND + 7, b"\n"),
    ]
    assert data(await collected(read_cri(log, query(since=3)))) == b"\n"


async def test_lines_are_counted_over_all_files(tmp_path: Path) -> None:
    log = tmp_path / "3.log"
    (tmp_path / "3.log.20260101-000000").write_bytes(record(1, "a") + record(2, "b"))
    (tmp_path / "3.log.20260102-000000").write_bytes(record(3, "c"))
    log.write_bytes(record(4, "d") + record(5, "e"))
    for count, expected in ((0, b""), (1, b"e\n"), (3, b"c\nd\ne\n"), (4, b"b\nc\nd\ne\n")):
        assert data(await collected(read_cri(log, query(tail_lines=count)))) == expected
    assert data(await collected(read_cri(log, query()))) == b"a\nb\nc\nd\ne\n"


async def test_rotation_keeps_so_many_files_and_following_goes_on(tmp_path: Path) -> None:
    log, limits, running = tmp_path / "0.log", LogLimits(100, 3), True
    log.touch()
    written, seen = [], list[LogLine]()

    async def reopen() -> None:
        log.touch()

    async def follow() -> None:
        growth = Growth(lambda: running, lambda: asyncio.sleep(0.001))
        async for lines in read_cri(log, query(), growth):
            seen.extend(lines)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        for number in range(12):
            with log.open("ab") as file:
                file.write(record(number, f"number {number}"))
            written.append(f"number {number}\n".encode())
            await asyncio.sleep(0.01)
            await rotate(log, limits, float(number), reopen)
        running = False
    assert [line.data for line in seen] == written
    assert len(log_files(log)) == 3


async def test_a_log_that_cannot_be_opened_again_is_put_back(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(record(1, "x" * 200))

    async def refuse() -> None:
        raise OSError("containerd is away")

    with contextlib.suppress(OSError):
        await rotate(log, LogLimits(100, 3), 0.0, refuse)
    assert log_files(log) == [log]
