"""`livesize store` and `livesize up --store etcd`, as processes, on real stores."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from etcd_servers import Member, cluster, find_etcd
from livesize.api.kinds.lease import LEASES
from livesize.apiserver.keys import prefix_of
from livesize.machinery.data_directory import DataDirectory
from livesize.main.entry import cli
from livesize.store.sqlite import SqliteStore
from system.up import LIVESIZE, Up, running_up

pytestmark = pytest.mark.apiserver

PATH = LEASES.path("default")


@pytest.fixture
def member(tmp_path: Path, not_run: Callable[[str], NoReturn]) -> Iterator[Member]:
    if find_etcd() is None:
        not_run("needs etcd")
    with cluster(tmp_path / "etcd") as [member]:
        yield member


def run_store(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LIVESIZE, "store", *words], capture_output=True, text=True, timeout=60, check=False
    )


def lease(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "me"}}


def make(up: Up, name: str) -> None:
    code, answer = up.request("POST", PATH, lease(name))
    assert code == 201, answer


def names(up: Up) -> tuple[set[str], int]:
    code, answer = up.request("GET", PATH)
    assert code == 200
    return (
        {item["metadata"]["name"] for item in answer["items"]},
        int(answer["metadata"]["resourceVersion"]),
    )


async def kept(data: Path) -> tuple[set[str], int]:
    """As ``names``, from the file itself."""
    store = await SqliteStore.open(DataDirectory(data).store)
    try:
        listing = await store.list(prefix_of(LEASES, "default"))
        return {entry.key.rpartition("/")[2] for entry in listing.entries}, listing.revision
    finally:
        await store.close()


def watch_code(up: Up, version: int) -> int:
    """What a watch from there is answered: its error's code, or that of the answer."""
    query = f"watch=1&timeoutSeconds=1&resourceVersion={version}"
    code, answer = up.request("GET", f"{PATH}?{query}")
    return int(answer.get("code") or answer.get("object", {}).get("code") or code)


def test_a_backup_taken_while_running_is_restored_and_nobody_goes_back_in_time(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", str(tmp_path / "backup.db")
    with running_up(data, runtime="fake") as up:
        make(up, "kept")
        made = run_store("backup", backup, "--data-dir", str(data))
        assert made.returncode == 0, made.stderr
        make(up, "lost")
        _, before = names(up)
        refused = run_store("restore", backup, "--data-dir", str(data), "--replace")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "in use by another process" in refused.stderr
        up.stop()
        full = run_store("restore", backup, "--data-dir", str(data))
        assert "--replace" in full.stderr
        done = run_store("restore", backup, "--data-dir", str(data), "--replace")
        assert done.returncode == 0, done.stderr
        up.start()
        found, after = names(up)
        assert "kept" in found
        assert "lost" not in found
        assert after > before
        assert watch_code(up, before) == 410


def test_a_store_moves_from_a_file_to_etcd_and_back(tmp_path: Path, member: Member) -> None:
    data = tmp_path / "data"
    etcd = ("--etcd-endpoints", member.endpoint)
    with running_up(data, runtime="fake") as up:
        make(up, "in-sqlite")
        versions = [names(up)[1]]
        up.stop()
        copied = run_store("copy", "sqlite", "etcd", "--data-dir", str(data), *etcd)
        assert copied.returncode == 0, copied.stderr
        up.start("--store", "etcd", *etcd)
        found, version = names(up)
        assert "in-sqlite" in found
        assert version > versions[-1]
        assert watch_code(up, versions[-1]) == 410
        make(up, "in-etcd")
        versions.append(names(up)[1])
        again = run_store("copy", "sqlite", "etcd", "--data-dir", str(data), *etcd)
        assert again.returncode == 1
        assert "has objects already" in again.stderr
        up.stop()
        back = run_store("copy", "etcd", "sqlite", "--data-dir", str(data), *etcd, "--replace")
        assert back.returncode == 0, back.stderr
    found, version = asyncio.run(kept(data))
    assert {"in-sqlite", "in-etcd"} <= found
    assert version > versions[-1]


def test_etcd_is_backed_up_and_restored(tmp_path: Path, member: Member) -> None:
    backup, data = str(tmp_path / "backup.db"), tmp_path / "data"
    words = ("--store", "etcd", "--etcd-endpoints", member.endpoint)
    up = Up(data, runtime="fake")
    up.start(*words)
    try:
        make(up, "kept")
        made = run_store("backup", backup, *words)
        assert made.returncode == 0, made.stderr
        make(up, "lost")
        _, before = names(up)
        # The control plane loses the store, starts again by itself, and goes on with the new one.
        done = run_store("restore", backup, *words, "--replace")
        assert done.returncode == 0, done.stderr

        def is_restored() -> bool:
            try:
                found, version = names(up)
            except (OSError, AssertionError):
                return False
            return version > before and "kept" in found and "lost" not in found

        up.wait_until(is_restored, "the restored state is served")
    finally:
        up.end()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("backup", "x.db", "--data-dir", "/nowhere"), "there is no store at"),
        (("copy", "sqlite", "etcd"), "--etcd-endpoints"),
        (("copy", "etcd", "etcd", "--etcd-endpoints", "http://h:1"), "to itself"),
        (("copy", "a.db", "b.db", "--etcd-endpoints", "x"), "there is no store at"),
    ],
)
def test_what_cannot_be_is_one_sentence(words: tuple[str, ...], why: str) -> None:
    refused = CliRunner().invoke(cli, ["store", *words])
    assert refused.exit_code in (1, 2)
    assert why in refused.output
    assert isinstance(refused.exception, SystemExit)
