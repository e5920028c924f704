"""The `livesize` command: the command line of cli/, and the commands that start parts of us.

Heavy modules are imported inside the commands, so that `livesize get` does not pay for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from livesize.cli.app import cli

DEFAULT_DATA_DIR = "/var/lib/livesize"
DEFAULT_LISTEN = "127.0.0.1:7443"


@cli.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    envvar="LIVESIZE_DATA_DIR",
    help="Where everything is kept: store, keys, checkpoints, logs, kubeconfig.",
)
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    envvar="LIVESIZE_LISTEN",
    metavar="HOST:PORT",
    help="Where the API server answers; port 0 takes a free one.",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "fake"]),
    default="process",
    show_default=True,
    envvar="LIVESIZE_RUNTIME",
    help="process: real containers in cgroups (root). fake: in memory, to try the API.",
)
@click.option("--node-name", default="", envvar="LIVESIZE_NODE_NAME", help="[default: host name]")
@click.option(
    "--allocatable",
    default="",
    envvar="LIVESIZE_ALLOCATABLE",
    metavar="cpu=…,memory=…",
    help="What pods may use of this machine.  [default: all CPUs, memory less 10 %]",
)
@click.option(
    "--keep", is_flag=True, envvar="LIVESIZE_KEEP", help="Leave workloads running when stopped."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="LIVESIZE_LOG_LEVEL",
)
def up(**settings: Any) -> None:
    """Start Livesize on this machine: API server, scheduler and node agent.

    \b
    Examples:
      livesize up
      livesize up --data-dir ./data --listen 127.0.0.1:0 --allocatable cpu=2,memory=4Gi
      KUBECONFIG=/var/lib/livesize/kubeconfig kubectl get pods
    """
    from livesize.main.up import UpSettings, run_up

    run_up(UpSettings(**settings))


@cli.command()
def demo() -> None:
    """Show it: a busy container grows and shrinks while it runs, with proof from the kernel."""
    from livesize.main.demo import run_demo

    run_demo()


def main() -> None:
    cli()
