"""`livesize version`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from livesize import VERSION
from livesize.cli.connection import kubeconfig_option, run_with_client
from livesize.cli.plain_text import plain

if TYPE_CHECKING:
    from livesize.client.http import HttpClient


@click.command()
@click.option("--server", "ask_server", is_flag=True, help="Also ask the server for its version.")
@kubeconfig_option
def version(ask_server: bool, kubeconfig: str) -> None:
    """Print the version.

    \b
    Examples:
      livesize version
      livesize version --server
    """
    click.echo(f"livesize {VERSION}")
    if ask_server:
        click.echo(plain(f"server {run_with_client(kubeconfig, _ask_server)}"))


async def _ask_server(client: HttpClient) -> str:
    answer = await client.ask("/version")
    return str(answer.get("gitVersion", "unknown")) if isinstance(answer, dict) else "unknown"
