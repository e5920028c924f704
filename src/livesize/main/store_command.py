"""`livesize store`: backup, restore and copy of what the API server keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from livesize.main.layout import DataDirectory
from livesize.main.stores import StoreChoice, etcd_options, read_etcd_settings, store_option
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreOpenError
from livesize.store.snapshot import Snapshot

DEFAULT_DATA_DIR = "/var/lib/livesize"

_Result = TypeVar("_Result")

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    envvar="LIVESIZE_DATA_DIR",
    help="The data directory of `livesize up`, whose store is meant by sqlite.",
)
_replace = click.option(
    "--replace", is_flag=True, help="Also where there are objects already; they are replaced."
)


class Place(msgspec.Struct, frozen=True):
    """Where a store is: in a file, or in etcd."""

    name: str
    file: Path | None = None
    etcd: EtcdSettings | None = None


@click.group()
def store() -> None:
    """Back up, restore and copy what the API server keeps.

    What is restored or copied begins a new history: clients that watch are told to list again
    (410), instead of seeing time go back.
    """


@store.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@store_option
@_data_dir
@etcd_options
def backup(file: Path, store: str, data_dir: Path, **etcd: str) -> None:
    """Write the store to FILE, also while Livesize runs. FILE holds secrets: keep it safe.

    \b
    Examples:
      livesize store backup /backups/livesize.db
      livesize store backup livesize.db --store etcd --etcd-endpoints http://10.0.0.1:2379
    """
    count = _run(_backup(_place(store, data_dir, etcd), file.absolute()))
    click.echo(f"{file}: {_objects(count)}")


@store.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@store_option
@_data_dir
@etcd_options
@_replace
def restore(file: Path, store: str, data_dir: Path, replace: bool, **etcd: str) -> None:
    """Make the store what it was when FILE was written. Stop Livesize first.

    \b
    Examples:
      livesize store restore /backups/livesize.db --replace
      livesize store restore livesize.db --store etcd --etcd-endpoints http://10.0.0.1:2379
    """
    target = _place(store, data_dir, etcd)
    count = _run(_copy(Place(str(file), file=file), target, replace=replace, exclusive=False))
    click.echo(f"{target.name}: {_objects(count)} restored")


@store.command()
@click.argument("source")
@click.argument("target")
@_data_dir
@etcd_options
@_replace
def copy(source: str, target: str, data_dir: Path, replace: bool, **etcd: str) -> None:
    """Copy a store to another one: each is sqlite, etcd or a file. Stop Livesize first.

    \b
    Examples:
      livesize store copy sqlite etcd --etcd-endpoints http://10.0.0.1:2379
      livesize store copy etcd sqlite --etcd-endpoints http://10.0.0.1:2379 --replace
      livesize store copy sqlite /mnt/other/store.db
    """
    origin, goal = _place(source, data_dir, etcd), _place(target, data_dir, etcd)
    if origin == goal:
        raise click.UsageError("a store cannot be copied to itself")
    count = _run(_copy(origin, goal, replace=replace, exclusive=True))
    click.echo(f"{goal.name}: {_objects(count)} copied")


def _place(word: str, data_dir: Path, etcd: dict[str, str]) -> Place:
    if word == "etcd":
        try:
            settings = read_etcd_settings(StoreChoice(word, **etcd))
        except StoreOpenError as refusal:
            raise click.ClickException(str(refusal)) from refusal
        return Place("etcd", etcd=settings)
    if word == "sqlite":
        path = DataDirectory(data_dir.absolute()).store
        return Place(str(path), file=path)
    return Place(word, file=Path(word).absolute())


async def _backup(place: Place, file: Path) -> int:
    from livesize.store.copies import backup_sqlite, write_backup

    if place.file is not None:
        return len(backup_sqlite(place.file, file).values)
    snapshot = await _read(place, exclusive=False)
    write_backup(file, snapshot)
    return len(snapshot.values)


async def _copy(source: Place, target: Place, *, replace: bool, exclusive: bool) -> int:
    from livesize.machinery.clock import SystemClock
    from livesize.store.copies import write_sqlite
    from livesize.store.epochs import epoch_at

    snapshot = await _read(source, exclusive=exclusive)
    if not replace:
        await _require_empty(target)
    clock = SystemClock()
    epoch = epoch_at(clock.now())
    if target.etcd is not None:
        from livesize.store.etcd.copying import write_etcd

        await write_etcd(target.etcd, snapshot, epoch, clock)
    else:
        assert target.file is not None
        write_sqlite(target.file, snapshot, epoch)
    return len(snapshot.values)


async def _read(place: Place, *, exclusive: bool) -> Snapshot:
    if place.etcd is not None:
        from livesize.machinery.clock import SystemClock
        from livesize.store.etcd.copying import read_etcd

        return await read_etcd(place.etcd, SystemClock())
    from livesize.store.copies import read_sqlite

    assert place.file is not None
    return read_sqlite(place.file, exclusive=exclusive)


async def _require_empty(place: Place) -> None:
    if place.etcd is not None:
        from livesize.machinery.clock import SystemClock
        from livesize.store.etcd.copying import is_empty_etcd

        empty = await is_empty_etcd(place.etcd, SystemClock())
    else:
        from livesize.store.copies import read_sqlite

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
