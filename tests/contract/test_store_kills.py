"""Design 6: "what was answered 2xx survives kill -9 of any process". Asked of the SQLite store.

A child commits, with compactions in between, and prints what was acknowledged; it is killed, at a
random moment or at a crash point; the same file is opened again, by the next child too.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from livesize.store.interface import Store
from livesize.store.sqlite import SqliteStore

CHILD = Path(__file__).with_name("store_child.py")
BEFORE, AFTER = "store/commit/before", "store/commit/after"


def run_and_kill(path: Path, run: int, point: str, source: random.Random) -> dict[str, int]:
    """What the child had acknowledged when it died: key to revision."""
    arguments = [str(path), str(run), *([point, str(source.randint(1, 60))] if point else [])]
    child = subprocess.Popen([sys.executable, str(CHILD), *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    acknowledged: dict[str, int] = {}
    enough = source.randint(1, 800)
    for line in child.stdout:
        key, revision = line.decode().split()
        acknowledged[key] = int(revision)
        if not point and len(acknowledged) == enough:
            child.kill()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    assert point or len(acknowledged) >= enough
    return acknowledged


async def check_file(path: Path, acknowledged: dict[str, int], revision_before: int) -> int:
    store = await SqliteStore.open(path, epoch="checker")
    try:
        assert store.epoch == "run-0"
        await _check_values(store, acknowledged)
        revision = await store.revision()
        assert revision >= max(acknowledged.values(), default=0)
        assert revision >= revision_before
        await _check_history(store, revision)
    finally:
        await store.close()
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.pragma("integrity_check") == "ok"
    return revision


async def _check_values(store: Store, acknowledged: dict[str, int]) -> None:
    entries = {entry.key: entry for entry in (await store.list("run/")).entries}
    lost = acknowledged.keys() - entries.keys()
    assert not lost
    for key, entry in entries.items():
        assert entry.value == key.encode() * 50
        assert entry.mod_revision == acknowledged.get(key, entry.mod_revision)
    for newest in (await store.list("newest/")).entries:
        task = newest.key.removeprefix("newest/")
        written = max(key for key in entries if key.split("/")[2] == task)
        assert newest.value.decode() == written, "both keys of a commit, or none"


async def _check_history(store: Store, revision: int) -> None:
    """The last 100 revisions can be read again, without a gap."""
    after = max(0, revision - 100)
    seen: list[int] = []
    if revision > after:
        async for batch in store.watch("", after_revision=after):
            seen.extend(sorted({change.revision for change in batch}))
            if seen[-1] >= revision:
                break
    assert seen == list(range(after + 1, revision + 1))


async def kill_again_and_again(path: Path, points: list[str], seed: int) -> None:
    source = random.Random(seed)
    acknowledged: dict[str, int] = {}
    revision = 0
    for run, point in enumerate(points):
        acknowledged |= run_and_kill(path, run, point, source)
        revision = await check_file(path, acknowledged, revision)
    assert acknowledged


@pytest.mark.door
async def test_what_was_acknowledged_survives_six_kills(tmp_path: Path) -> None:
    points = ["", BEFORE, "", AFTER, "", AFTER]
    await kill_again_and_again(tmp_path / "store.db", points, seed=1)


@pytest.mark.door
@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2, 12))
async def test_what_was_acknowledged_survives_many_kills(tmp_path: Path, seed: int) -> None:
    points = ["", BEFORE, "", AFTER, "", ""]
    await kill_again_and_again(tmp_path / "store.db", points, seed=seed)
