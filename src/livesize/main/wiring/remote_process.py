"""Runs a scheduler or the controllers as a process that speaks to an API server elsewhere."""

from __future__ import annotations

import functools
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from livesize import VERSION
from livesize.client.http import ConnectionConfig, HttpClient, with_servers
from livesize.client.kubeconfig import KubeconfigError, connection_from
from livesize.machinery.context import system_context
from livesize.machinery.telemetry import set_up_logging
from livesize.main.settings.table import Part, listed
from livesize.main.wiring.leader import Work, lead
from livesize.main.wiring.process_lifecycle import ProcessLifecycle, drop_root, run_in_loop

_ROLES = {Part.SCHEDULER: "scheduler", Part.CONTROLLERS: "controller"}


def run_remote_process(
    part: Part, work: Work, *, kubeconfig: str, server: str, log_level: str, log_format: str
) -> None:
    """Run until SIGTERM or SIGINT; ``work`` is done while we lead."""
    if not kubeconfig:
        raise click.UsageError(
            f"say how to reach the API server: --kubeconfig FILE, made there with"
            f" `livesize cert create {part} --role {_ROLES[part]}`"
        )
    connection = connect_with(Path(kubeconfig), server, f"livesize-{part}/{VERSION}")
    set_up_logging(log_level, form=log_format)
    drop_root()  # the kubeconfig was the last file that is root's
    run_in_loop(functools.partial(_run, part, work, connection))


async def _run(part: Part, work: Work, connection: ConnectionConfig) -> None:
    context = system_context()
    lifecycle = ProcessLifecycle(context.clock)
    client = await HttpClient.open(connection)
    holder = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    try:
        words = f"livesize {part} is ready, at {', '.join(client.servers)}, as {holder}."
        await lifecycle.run(words, lead(part, holder, work, client, context))
    finally:
        await client.close()


def connect_with(kubeconfig: Path, servers: str, user_agent: str) -> ConnectionConfig:
    """As the kubeconfig says, at the servers that were named, if any were."""
    try:
        connection = connection_from(kubeconfig)
    except KubeconfigError as refusal:
        raise click.ClickException(str(refusal)) from refusal
    named = listed(servers)
    for one in named:
        if urlsplit(one).scheme != "https" or not urlsplit(one).hostname:
            raise click.BadParameter(f"{one!r} is not https://HOST:PORT", param_hint="--server")
    named_connection = with_servers(connection, named) if named else connection
    return msgspec.structs.replace(named_connection, user_agent=user_agent)
