"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from livesize.machinery.data_directory import DEFAULT_DATA_DIR, user_data_dir

Command = TypeVar("Command", bound=Callable[..., Any])


def data_dir(meaning: str) -> Callable[[Command], Command]:
    """--data-dir, with what the command does there in its help."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        default=DEFAULT_DATA_DIR,
        show_default=True,
        envvar="LIVESIZE_DATA_DIR",
        callback=chosen_data_dir,
        help=meaning,
    )


def chosen_data_dir(_context: click.Context, _option: click.Parameter, value: Path) -> Path:
    """The default is root's; an ordinary user has another."""
    if os.geteuid() == 0 or str(value) != DEFAULT_DATA_DIR:
        return value
    return user_data_dir(os.environ, Path.home())


data_dir_option = data_dir("The data directory of the server, or of this node.")


def namespaces_option(command: Command) -> Command:
    return click.option(
        "--namespaces",
        default="",
        metavar="A,B",
        help="Only there; for editors and viewers.  [default: everywhere]",
    )(command)


def expires_option(default: str) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        return click.option(
            "--expires", default="", metavar="TIME", help=f"After 30d, 12h, 90m, …  {default}"
        )(command)

    return add


def server_option(command: Command) -> Command:
    return click.option(
        "--server",
        default="",
        metavar="URL",
        help="Where the server is reached.  [default: as the admin's kubeconfig says]",
    )(command)


def output_option(command: Command) -> Command:
    return click.option(
        *("-o", "--output", "output"),
        type=click.Choice(["table", "json", "yaml", "name"]),
        default="table",
        show_default=True,
    )(command)
