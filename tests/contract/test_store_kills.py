"""Design 6: "what was answered 2xx survives kill -9 of any process". Asked of the stores alone.

A child commits, with compactions in between, and prints what was acknowledged. It is killed, at a
random moment or at a crash point; with etcd, etcd itself is killed as well, while the child goes
on. After each kill everything acknowledged is there, at its revision; the revision has not gone
back; and a watch that goes on from where the last one ended sees every revision once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import apsw
import pytest

from contract import store_child
from etcd_servers import Member, cluster, find_etcd
from livesize.machinery.clock import SystemClock
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore
from livesize.store.interface import Store
from livesize.store.sqlite import SqliteStore

pytestmark = pytest.mark.apiserver

BEFORE, AFTER = "store/commit/before", "store/commit/after"
DURING_COMPACTION = "store/compact/during"
CRASH_POINTS = [BEFORE, AFTER, DURING_COMPACTION]
CHILD_KILLED, SERVER_KILLED = "child", "server"
SERVER_KILLED_COMPACTING = "server while it compacts"
RANDOM = (CHILD_KILLED, SERVER_KILLED, SERVER_KILLED_COMPACTING)
WRITES_AFTER_RESTART = 20


class Nursery:
    """Makes children that write to a store; they are processes to be killed."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._fifo = folder / "fifo"
        self._process = process
        os.mkfifo(self._fifo)

    @contextlib.contextmanager
    def child(self, words: list[str]) -> Iterator[tuple[int, BinaryIO]]:
        """Its pid, and the lines it tells; it must have been killed in the end."""
        pid = int(self._ask(json.dumps([str(self._fifo), *words])))
        try:
            with self._fifo.open("rb") as lines:
                yield pid, lines
        finally:
            code = int(self._ask("end"))
        assert code == -signal.SIGKILL

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    command = [sys.executable, store_child.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Nursery(tmp_path_factory.mktemp("nursery"), process)


class Bench:
    """One store, its history of kills, and what was acknowledged in it: key to revision."""

    kind = ""

    def __init__(self, nursery: Nursery, where: str, seed: int) -> None:
        self.nursery = nursery
        self.where = where
        self.source = random.Random(seed)
        self.acknowledged: dict[str, int] = {}
        self.seen = 0
        self.runs = 0

    async def open(self) -> Store:
        raise AssertionError

    def kill_server(self) -> None:
        raise AssertionError

    async def kill(self, how: str) -> None:
        """One kill, and what must hold after it."""
        before = dict(self.acknowledged)
        self._run_and_kill(how)
        store = await self.open()
        try:
            await check_values(store, self.acknowledged)
            revision = await store.revision()
            assert revision >= max(self.acknowledged.values(), default=0)
            assert revision >= self.seen
            new = {key: at for key, at in self.acknowledged.items() if key not in before}
            await check_history(store, self.seen, revision, new)
            self.seen = revision
        finally:
            await store.close()

    def _run_and_kill(self, how: str) -> None:
        point = how if how not in RANDOM else ""
        count = self.source.randint(1, 10 if point == DURING_COMPACTION else 60)
        words = [self.kind, self.where, str(self.runs), str(self.seen)]
        self.runs += 1
        if point:
            words += [point, str(count)]
        with self.nursery.child(words) as (pid, lines):
            self._read(pid, lines, how)

    def _read(self, child: int, lines: BinaryIO, how: str) -> None:
        enough, read = self.source.randint(1, 300), 0
        compactions = self.source.randint(1, 10)
        for line in lines:
            key, revision = line.decode().split()
            if key == store_child.COMPACTING:
                compactions -= 1
                now = how == SERVER_KILLED_COMPACTING and not compactions
            else:
                self.acknowledged[key] = int(revision)
                read += 1
                now = how == SERVER_KILLED and read == enough
            if now:
                self.kill_server()
                enough, how = read + WRITES_AFTER_RESTART, CHILD_KILLED
            elif how == CHILD_KILLED and read == enough:
                os.kill(child, signal.SIGKILL)
        assert how not in RANDOM or (how == CHILD_KILLED and read >= enough)


class SqliteBench(Bench):
    kind = "sqlite"

    async def open(self) -> Store:
        store = await SqliteStore.open(Path(self.where), epoch=99)
        assert store.epoch == 0
        with contextlib.closing(apsw.Connection(self.where)) as connection:
            assert connection.pragma("integrity_check") == "ok"
        return store


class EtcdBench(Bench):
    kind = "etcd"

    def __init__(self, nursery: Nursery, members: list[Member], seed: int) -> None:
        super().__init__(nursery, ",".join(member.endpoint for member in members), seed)
        self.members = members

    async def open(self) -> Store:
        settings = EtcdSettings(tuple(self.where.split(",")))
        return await EtcdStore.open(settings, epoch=99, clock=SystemClock())

    def kill_server(self) -> None:
        """Any of them; with three, the other two must be enough meanwhile."""
        member = self.source.choice(self.members)
        member.kill()
        member.start()
        if len(self.members) == 1:
            member.wait_ready()


async def check_values(store: Store, acknowledged: dict[str, int]) -> None:
    entries = {entry.key: entry for entry in (await store.list("run/")).entries}
    lost = acknowledged.keys() - entries.keys()
    assert not lost
    for key, entry in entries.items():
        assert entry.value == key.encode() * 50
        assert entry.mod_revision == acknowledged.get(key, entry.mod_revision)
    for newest in (await store.list("newest/")).entries:
        written = entries[newest.value.decode()]
        assert written.mod_revision == newest.mod_revision, "both keys of a commit, or none"


async def check_history(
    store: Store, after: int, revision: int, acknowledged: dict[str, int]
) -> None:
    """Every revision since ``after`` can be read, once each; all that was acknowledged is in it."""
    seen: list[int] = []
    found: dict[str, int] = {}
    if revision > after:
        async for batch in store.watch("", after_revision=after):
            seen.extend(sorted({change.revision for change in batch}))
            found |= {change.entry.key: change.revision for change in batch}
            if seen[-1] >= revision:
                break
    assert seen == list(range(after + 1, revision + 1))
    assert acknowledged.items() <= found.items()


@contextlib.contextmanager
def one_etcd(
    folder: Path, not_run: Callable[[str], NoReturn], size: int = 1
) -> Iterator[list[Member]]:
    if find_etcd() is None:
        not_run("needs etcd")
    with cluster(folder, size) as members:
        yield members


async def test_sqlite_keeps_what_it_acknowledged_through_kills(
    tmp_path: Path, nursery: Nursery
) -> None:
    bench = SqliteBench(nursery, str(tmp_path / "store.db"), seed=1)
    for how in [CHILD_KILLED] * 12 + CRASH_POINTS:
        await bench.kill(how)
    assert bench.acknowledged


async def test_etcd_keeps_what_it_acknowledged_through_kills(
    tmp_path: Path, nursery: Nursery, not_run: Callable[[str], NoReturn]
) -> None:
    with one_etcd(tmp_path, not_run) as members:
        bench = EtcdBench(nursery, members, seed=1)
        for how in [CHILD_KILLED, SERVER_KILLED] * 6 + CRASH_POINTS:
            await bench.kill(how)
        await bench.kill(SERVER_KILLED_COMPACTING)
        assert bench.acknowledged


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2, 12))
async def test_sqlite_keeps_what_it_acknowledged_through_many_kills(
    tmp_path: Path, nursery: Nursery, seed: int
) -> None:
    bench = SqliteBench(nursery, str(tmp_path / "store.db"), seed)
    for how in [CHILD_KILLED] * 20 + CRASH_POINTS:
        await bench.kill(how)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2, 12))
async def test_etcd_keeps_what_it_acknowledged_through_many_kills(
    tmp_path: Path, nursery: Nursery, seed: int, not_run: Callable[[str], NoReturn]
) -> None:
    with one_etcd(tmp_path, not_run) as members:
        bench = EtcdBench(nursery, members, seed)
        for how in [CHILD_KILLED, SERVER_KILLED] * 10 + CRASH_POINTS:
            await bench.kill(how)
        await bench.kill(SERVER_KILLED_COMPACTING)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(3))
async def test_three_etcd_servers_keep_it_when_one_is_killed(
    tmp_path: Path, nursery: Nursery, seed: int, not_run: Callable[[str], NoReturn]
) -> None:
    with one_etcd(tmp_path, not_run, size=3) as members:
        bench = EtcdBench(nursery, members, seed)
        for _ in range(6):
            await bench.kill(SERVER_KILLED)
            for member in members:
                member.wait_ready()
