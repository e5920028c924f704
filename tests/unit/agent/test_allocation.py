"""The ledger's arithmetic, and that what the checkpoint called durable survives kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import msgspec
import pytest

from livesize.agent.allocation.checkpoint import Checkpoint, SecuredEntry
from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.agent.allocation.ledger import Allocation, Ledger, footprint_of
from livesize.agent.allocation.sqlite_file import SqliteFile, open_checkpoint
from livesize.api.objects import Object
from livesize.api.resources import Amounts


def size(cpu: str, memory: str = "1Mi", name: str = "app") -> Object:
    return {"name": name, "requests": {"cpu": cpu, "memory": memory}}


def entry(uid: str = "u", cpu: str = "1", **more: object) -> Allocation:
    sizes = (size(cpu),)
    return Allocation(uid, "default", "db", 1, sizes, sizes, **more)  # type: ignore[arg-type]


def connection_of(checkpoint: Checkpoint) -> apsw.Connection:
    """To do things to it that happen to files."""
    assert isinstance(checkpoint._file, SqliteFile)
    connection = checkpoint._file._connection
    assert connection is not None
    return connection


@pytest.mark.parametrize(
    ("allocation", "cpu_milli"),
    [
        pytest.param(entry(), 1000, id="settled: allocated"),
        pytest.param(entry().accepted([size("2")], 2), 2000, id="growing: the new size"),
        pytest.param(entry().accepted([size("500m")], 2), 1000, id="shrinking: the old one"),
        pytest.param(
            entry().accepted([size("500m")], 2).applied((size("500m"),)), 500, id="shrink applied"
        ),
        pytest.param(
            entry().accepted([size("3")], 2).accepted([size("2")], 3),
            3000,
            id="overtaken while growing: what may be half applied counts",
        ),
        pytest.param(
            entry().accepted([size("3")], 2).accepted([size("2")], 3).applied((size("3"),)),
            3000,
            id="the overtaken one was applied",
        ),
        pytest.param(entry(overhead={"cpu": "100m"}), 1100, id="overhead counts"),
    ],
)
def test_footprint(allocation: Allocation, cpu_milli: int) -> None:
    assert footprint_of(allocation).cpu_milli == cpu_milli


def test_cpus_are_held_until_the_newest_promise_is_applied() -> None:
    """One generation may be promised twice: of a wish that cannot be had in full, first one
    resource, later more of it. CPUs that only the later promise gives up are still in use."""
    first = entry().accepted([size("4")], 1, {"app": (0, 1, 2, 3)})
    second = first.accepted([size("2")], 1, {"app": (0, 1)})
    assert second.cpu_applied(first).held_cpus == {"app": (0, 1, 2, 3)}
    assert second.cpu_applied(second).held_cpus == {}


def test_a_spelling_is_not_a_size() -> None:
    assert entry().accepted([size("1000m")], 2).settled


def test_promising_more_than_there_is_is_a_bug() -> None:
    ledger = Ledger(Amounts(1000, 1024**3))
    ledger.promise(entry("a"))
    with pytest.raises(AssertionError, match="more than there is"):
        ledger.promise(entry("b"))


def test_released_is_free_and_others_are_counted_without_oneself() -> None:
    ledger = Ledger(Amounts(4000, 1024**3), [entry("a"), entry("b", "2")])
    assert ledger.used.cpu_milli == 3000
    assert ledger.used_by_others("a").cpu_milli == 2000
    assert ledger.release("b")
    assert not ledger.release("b")
    assert ledger.used.cpu_milli == 1000


async def test_what_was_saved_is_loaded_and_what_was_forgotten_is_not(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "checkpoint.db"
    checkpoint = await open_checkpoint(path)
    kept = entry("a").accepted([size("2")], 7).with_restarts({"app": 3})
    checkpoint.save(entry("b"))
    checkpoint.save(kept)
    await checkpoint.durable()
    checkpoint.forget("b")
    await checkpoint.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = await open_checkpoint(path)
    assert await again.load() == (kept,)
    await again.close()


async def test_decisions_of_one_loop_turn_share_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    syncs: list[int] = []
    monkeypatch.setattr("os.fdatasync", syncs.append)
    entries = [SecuredEntry(checkpoint, None) for _ in range(20)]
    for index, one in enumerate(entries):
        one.secure(entry(f"u{index}"))
    async with asyncio.TaskGroup() as tasks:
        for one in entries:
            tasks.create_task(one.durable())
    assert len(syncs) == 1
    assert len(await checkpoint.load()) == 20
    entries[0].secure(entry("u0"))
    await entries[0].durable()
    assert len(syncs) == 1, "what is on disk already costs nothing"
    await checkpoint.close()


async def test_one_promise_on_a_quick_disk_is_synced_by_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr("os.fdatasync", lambda _: threads.append(threading.current_thread().name))
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    threads.clear()
    for limit_seconds, by in ((float("inf"), "MainThread"), (0.0, "checkpoint_0")):
        monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", limit_seconds)
        await checkpoint.durable(checkpoint.save(entry()))
        await checkpoint.durable()
        assert threads == [by]
        threads.clear()
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", float("inf"))
    both = checkpoint.save(entry("a")), checkpoint.save(entry("b"))
    for number in both:
        await checkpoint.durable(number)
    assert threads == ["checkpoint_0"], "where others are at work, they need not wait"
    await checkpoint.close()


async def test_what_nobody_waits_for_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", float("inf"))
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    syncs: list[int] = []
    monkeypatch.setattr("os.fdatasync", syncs.append)
    checkpoint.save(entry())
    async with asyncio.timeout(10):
        while not syncs:
            await asyncio.sleep(0.001)
    await checkpoint.close()


async def test_a_failed_commit_reaches_those_who_wait(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    connection = connection_of(checkpoint)
    connection.execute("DROP TABLE allocations")
    secured = SecuredEntry(checkpoint, None)
    with pytest.raises(CheckpointError, match="cannot write"):
        secured.secure(entry())
    assert not secured.holds(entry())
    await checkpoint.close()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.db"
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(CheckpointError, match="schema version 99"):
        await open_checkpoint(path)


_WRITER = """
import asyncio, sys
from pathlib import Path
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.allocation.ledger import Allocation

async def main():
    checkpoint = await open_checkpoint(Path(sys.argv[1]))
    for number in range(1_000_000):
        checkpoint.save(Allocation("u", "default", "db", number, (), ()))
        await checkpoint.durable()
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_durable_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.db"
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [int(child.stdout.readline()) for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    said += [int(line) for line in child.stdout.read().split()]
    child.wait()
    child.stdout.close()
    checkpoint = await open_checkpoint(path)
    (found,) = await checkpoint.load()
    await checkpoint.close()
    assert found.generation in (said[-1], said[-1] + 1)


async def test_what_was_noted_soon_is_on_disk_with_whatever_is_waited_for(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    early, late = SecuredEntry(checkpoint, None), SecuredEntry(checkpoint, None)
    early.note_applied(entry("early"))
    late.secure(entry("late"))
    # A second connection sees what a crash would leave.
    left = await (await open_checkpoint(tmp_path / "checkpoint.db")).load()
    assert [one.uid for one in left] == ["early", "late"]


async def test_what_was_noted_soon_reaches_the_disk_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.agent.allocation.checkpoint.SOON_SECONDS", 0.001)
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    SecuredEntry(checkpoint, None).note_applied(entry("early"))
    other = await open_checkpoint(tmp_path / "checkpoint.db")
    async with asyncio.timeout(10):
        while not await other.load():
            await asyncio.sleep(0.001)


async def test_a_failed_commit_is_made_good_by_the_next(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    connection = connection_of(checkpoint)
    connection.set_commit_hook(lambda: True)  # roll back
    with pytest.raises(CheckpointError):
        SecuredEntry(checkpoint, None).secure(entry("first"))
    connection.set_commit_hook(None)
    SecuredEntry(checkpoint, None).secure(entry("second"))
    assert {one.uid for one in await checkpoint.load()} == {"first", "second"}


async def test_a_promise_that_was_begun_is_only_waited_for(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    connection = connection_of(checkpoint)
    commits: list[int] = []
    connection.set_commit_hook(lambda: bool(commits.append(1)))
    secured = SecuredEntry(checkpoint, None)
    secured.begin(entry("u"))
    assert not secured.holds(entry("u")), "begun is not durable"
    secured.secure(entry("u"))
    assert secured.holds(entry("u"))
    assert (len(commits), len(await checkpoint.load())) == (1, 1)
    await checkpoint.close()


async def test_a_promise_that_was_begun_and_failed_is_not_taken_for_durable(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    connection = connection_of(checkpoint)
    connection.set_commit_hook(lambda: True)  # roll back
    secured = SecuredEntry(checkpoint, None)
    secured.begin(entry("u"))
    await checkpoint.load()  # on the same thread: the commit has been tried
    with pytest.raises(CheckpointError):
        secured.secure(entry("u"))
    connection.set_commit_hook(None)
    assert not secured.holds(entry("u"))
    secured.secure(entry("u"))
    assert len(await checkpoint.load()) == 1
    await checkpoint.close()


async def test_what_is_loaded_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote it may have been killed before it was synced, and it is told from now on."""
    first = await open_checkpoint(tmp_path / "checkpoint.db")
    first.save(entry("u"))
    await first.durable()
    synced: list[Path] = []

    def sync(log: int) -> None:
        synced.append(Path(f"/proc/self/fd/{log}").readlink())

    monkeypatch.setattr("os.fdatasync", sync)
    second = await open_checkpoint(tmp_path / "checkpoint.db")
    assert synced == [tmp_path / "checkpoint.db-wal"]
    assert len(await second.load()) == 1
    await second.close()
    await first.close()


async def test_a_log_that_has_grown_is_brought_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.agent.allocation.sqlite_file.LOG_PAGES", 20)
    path = tmp_path / "checkpoint.db"
    checkpoint = await open_checkpoint(path)
    for number in range(100):
        checkpoint.save(msgspec.structs.replace(entry("u"), generation=number))
        await checkpoint.durable()
        await checkpoint.load()  # after what the thread has to do: it begins anew in a pause only
    log = path.with_name("checkpoint.db-wal")
    assert log.stat().st_size < 30 * 4200, "begun anew each time it was brought in"
    await checkpoint.close()


async def test_a_promise_that_was_overtaken_before_it_was_secured(tmp_path: Path) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    secured = SecuredEntry(checkpoint, None)
    secured.begin(entry("u"))
    newer = msgspec.structs.replace(entry("u"), generation=entry("u").generation + 1)
    secured.secure(newer)
    assert await checkpoint.load() == (newer,)
    await checkpoint.close()
