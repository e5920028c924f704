"""`livesize store`: backup, restore and copy of what the API server keeps."""

from __future__ import annotations

from pathlib import Path

import click

from livesize.main.settings.options import data_dir, etcd_options, store_option

_data_dir = data_dir("The data directory of `livesize up`, whose store is meant by sqlite.")
_replace = click.option(
    "--replace", is_flag=True, help="Also where there are objects already; they are replaced."
)


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
    from livesize.main.commands.store_copies import back_up

    click.echo(back_up((store, data_dir, etcd), file.absolute()))


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
    from livesize.main.commands.store_copies import bring_back

    click.echo(bring_back(file.absolute(), (store, data_dir, etcd), replace=replace))


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
    from livesize.main.commands.store_copies import copy_over

    words = (source, data_dir, etcd), (target, data_dir, etcd)
    click.echo(copy_over(*words, replace=replace))
