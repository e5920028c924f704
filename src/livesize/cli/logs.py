"""`livesize logs`: what a container has written, and goes on writing."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from livesize.api.kinds.pod_resource import PODS
from livesize.cli.completion import complete_target
from livesize.cli.connection import (
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.targets import Duration, parse_pod

if TYPE_CHECKING:
    from livesize.client.http import HttpClient


@click.command()
@click.argument("pod", metavar="POD", shell_complete=complete_target)
@namespace_option
@click.option("-c", "--container", default="", help="Which one, where there are several.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("-p", "--previous", is_flag=True, help="Of the start before this one.")
@click.option("--tail", type=click.IntRange(min=0), help="The last so many lines.")
@click.option("--since", type=Duration(), help="Not older than that, for instance 5m.")
@click.option("--timestamps", is_flag=True, help="When each line came.")
@kubeconfig_option
def logs(pod: str, namespace: str, kubeconfig: str, **options: Any) -> None:
    """Show what a container has written.

    \b
    Examples:
      livesize logs db
      livesize logs pod/db -f --tail 10
      livesize logs db -c sidecar --previous
    """
    path = PODS.path(default_namespace(kubeconfig, namespace), parse_pod(pod, "asked"), "log")
    query = _query(options)

    async def work(client: HttpClient) -> None:
        async with contextlib.aclosing(client.stream(path, query)) as pieces:
            async for piece in pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()

    run_with_client(kubeconfig, work)


def _query(options: dict[str, Any]) -> dict[str, str]:
    query = {name: "true" for name in ("follow", "previous", "timestamps") if options[name]}
    if options["container"]:
        query["container"] = options["container"]
    if options["tail"] is not None:
        query["tailLines"] = str(options["tail"])
    if options["since"] is not None:
        query["sinceSeconds"] = str(max(round(options["since"]), 1))
    return query
