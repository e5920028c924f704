"""The options that say which store, the same for every command that opens one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

STORES = ("sqlite", "etcd")

_Command = TypeVar("_Command", bound=Callable[..., Any])
_file = click.Path(dir_okay=False)

store_option = click.option(
    "--store",
    type=click.Choice(STORES),
    default="sqlite",
    show_default=True,
    envvar="LIVESIZE_STORE",
    help="sqlite: a file in the data directory. etcd: one that several API servers share.",
)

_ETCD_OPTIONS = (
    click.option(
        "--etcd-endpoints",
        default="",
        envvar="LIVESIZE_ETCD_ENDPOINTS",
        metavar="URL,URL…",
        help="Where etcd answers, for instance https://10.0.0.1:2379.",
    ),
    click.option(
        "--etcd-ca",
        type=_file,
        default="",
        envvar="LIVESIZE_ETCD_CA",
        help="The authority that etcd's certificates are from.  [default: the system's]",
    ),
    click.option(
        "--etcd-cert",
        type=_file,
        default="",
        envvar="LIVESIZE_ETCD_CERT",
        help="Our certificate, where etcd asks for one.",
    ),
    click.option(
        "--etcd-key",
        type=_file,
        default="",
        envvar="LIVESIZE_ETCD_KEY",
        help="The key of our certificate.",
    ),
)


def etcd_options(command: _Command) -> _Command:
    for option in reversed(_ETCD_OPTIONS):
        command = option(command)
    return command
