"""Which store is opened, and what is said when it cannot be."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from livesize.machinery.clock import SystemClock
from livesize.main.wiring.stores import StoreChoice, open_store, read_etcd_settings
from livesize.store.epochs import epoch_at
from livesize.store.interface import StoreOpenError
from livesize.store.sqlite import SqliteStore


def test_the_options_become_settings_with_the_contents_of_the_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_bytes(name.encode())
    files = (str(tmp_path / name) for name in ("ca", "cert", "key"))
    settings = read_etcd_settings(StoreChoice("etcd", "https://a:1, https://b:2,", *files))
    assert settings.endpoints == ("https://a:1", "https://b:2")
    assert (settings.ca, settings.cert, settings.key) == (b"ca", b"cert", b"key")


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        pytest.param(StoreChoice("etcd"), "--etcd-endpoints", id="no endpoints"),
        pytest.param(StoreChoice("etcd", " , "), "--etcd-endpoints", id="only commas"),
        pytest.param(StoreChoice("etcd", "a:1", "/no/ca"), "cannot read /no/ca", id="no file"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(choice: StoreChoice, why: str) -> None:
    with pytest.raises(StoreOpenError, match=why):
        read_etcd_settings(choice)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StoreOpenError, match=r"livesize\[etcd\]"):
        read_etcd_settings(StoreChoice("etcd", "a:1"))


async def test_a_new_file_begins_in_the_epoch_of_now(tmp_path: Path) -> None:
    clock = SystemClock()
    before = epoch_at(clock.now())
    store = await open_store(tmp_path / "store.db", None, clock=clock)
    assert isinstance(store, SqliteStore)
    assert before <= store.epoch <= epoch_at(clock.now())
    await store.close()
