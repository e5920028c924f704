"""The work of `livesize store`: from which store to which, and what it says when it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
import msgspec

from livesize.machinery.clock import SystemClock
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.stores import StoreChoice, read_etcd_settings
from livesize.store.epochs import epoch_at
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreOpenError, StoreSnapshot
from livesize.store.sqlite_backups import backup_sqlite, read_sqlite, write_backup, write_sqlite

Words: TypeAlias = tuple[str, Path, dict[str, str]]
"""A store as it was typed: sqlite, etcd or a file; the data directory; the options for etcd."""

_Result = TypeVar("_Result")


class StoreLocation(msgspec.Struct, frozen=True):
    """Where a store is: in a file, or in etcd."""

    name: str
    file: Path | None = None
    etcd: EtcdSettings | None = None


def back_up(words: Words, file: Path) -> str:
    return f"{file}: {_objects(_run(_backup(_place(words), file)))}"


def bring_back(file: Path, words: Words, *, replace: bool) -> str:
    source, target = StoreLocation(str(file), file=file), _place(words)
    count = _run(_copy(source, target, replace=replace, exclusive=False))
    return f"{target.name}: {_objects(count)} restored"


def copy_over(source: Words, target: Words, *, replace: bool) -> str:
    origin, goal = _place(source), _place(target)
    if origin == goal:
        raise click.UsageError("a store cannot be copied to itself")
    count = _run(_copy(origin, goal, replace=replace, exclusive=True))
    return f"{goal.name}: {_objects(count)} copied"


def _place(words: Words) -> StoreLocation:
    word, data_dir, etcd = words
    if word == "etcd":
        try:
            settings = read_etcd_settings(StoreChoice(word, **etcd))
        except StoreOpenError as refusal:
            raise click.ClickException(str(refusal)) from refusal
        return StoreLocation("etcd", etcd=settings)
    if word == "sqlite":
        path = DataDirectory(data_dir.absolute()).store
        return StoreLocation(str(path), file=path)
    return StoreLocation(word, file=Path(word).absolute())


async def _backup(place: StoreLocation, file: Path) -> int:
    if place.file is not None:
        return len(backup_sqlite(place.file, file).values)
    snapshot = await _read(place, exclusive=False)
    write_backup(file, snapshot)
    return len(snapshot.values)


async def _copy(
    source: StoreLocation, target: StoreLocation, *, replace: bool, exclusive: bool
) -> int:
    snapshot = await _read(source, exclusive=exclusive)
    if not replace:
        await _require_empty(target)
    clock = SystemClock()
    epoch = epoch_at(clock.now())
    if target.etcd is not None:
        from livesize.store.etcd.backups import write_etcd

        await write_etcd(target.etcd, snapshot, epoch, clock)
    else:
        assert target.file is not None
        write_sqlite(target.file, snapshot, epoch)
    return len(snapshot.values)


async def _read(place: StoreLocation, *, exclusive: bool) -> StoreSnapshot:
    if place.etcd is not None:
        from livesize.store.etcd.backups import read_etcd

        return await read_etcd(place.etcd, SystemClock())
    assert place.file is not None
    return read_sqlite(place.file, exclusive=exclusive)


async def _require_empty(place: StoreLocation) -> None:
    if place.etcd is not None:
        from livesize.store.etcd.backups import is_empty_etcd

        empty = await is_empty_etcd(place.etcd, SystemClock())
    else:
        assert place.file is not None
        empty = not place.file.exists() or not read_sqlite(place.file).values
    if not empty:
        raise StoreOpenError(f"{place.name} has objects already; replace them with --replace")


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    try:
        return asyncio.run(work)
    except StoreOpenError as refusal:
        raise click.ClickException(str(refusal)) from refusal


def _objects(count: int) -> str:
    return "1 object" if count == 1 else f"{count} objects"
