"""`livesize join`: makes this machine a node of a cluster that is already there."""

from __future__ import annotations

from pathlib import Path

import click

from livesize.main.settings.options import data_dir_option


@click.command()
@click.argument("server", metavar="https://HOST:PORT")
@click.option("--token", required=True, help="From `livesize token create --join`; good once.")
@click.option(
    "--ca-hash",
    required=True,
    metavar="sha256:…",
    help="Of the cluster's authority; a server with another one never sees the token.",
)
@click.option("--node-name", default="", help="[default: host name]")
@data_dir_option
def join(server: str, token: str, ca_hash: str, node_name: str, data_dir: Path) -> None:
    """Join a cluster: get a certificate for this machine, and a kubeconfig for its agent.

    \b
    Example:
      livesize join https://10.0.0.1:7443 --token … --ca-hash sha256:…
    """
    import asyncio

    from livesize.api.errors import StatusError
    from livesize.client import node_join
    from livesize.client.authority import is_hash
    from livesize.machinery.clock import SystemClock
    from livesize.machinery.data_directory import DataDirectory
    from livesize.main.wiring.agent import parse_node_name

    if not server.startswith("https://"):
        raise click.UsageError(f"{server!r} is no https:// address")
    if not is_hash(ca_hash):
        raise click.BadParameter("use sha256: and 64 hexadecimal digits", param_hint="--ca-hash")
    path = DataDirectory(data_dir.absolute()).node_kubeconfig
    request = node_join.JoinRequest(
        server=server, ca_hash=ca_hash, token=token, node=parse_node_name(node_name)
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = asyncio.run(node_join.join(request, SystemClock()))
        node_join.write_node_kubeconfig(path, config)
    except (node_join.JoinError, StatusError) as refusal:
        raise click.ClickException(str(refusal)) from refusal
    except OSError as failure:
        raise click.ClickException(f"{failure.filename}: {failure.strerror}") from failure
    click.echo(f"{request.node} has joined {server}\n  {path} written")
