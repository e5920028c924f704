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
from livesize.client.http import ConnectionConfig, with_servers
from livesize.client.kubeconfig import KubeconfigError, connection_from
from livesize.controllers.kit.metrics import KitMetrics
from livesize.machinery.context import system_context
from livesize.machinery.telemetry import set_up_logging
from livesize.main.settings.table import Part, listed
from livesize.main.wiring.leader import PartWork, lead_remotely
from livesize.main.wiring.listeners import listen_on, parse_listen
from livesize.main.wiring.metrics_server import metrics_server
from livesize.main.wiring.process_lifecycle import ProcessLifecycle, drop_root, run_in_loop

_ROLES = {Part.SCHEDULER: "scheduler", Part.CONTROLLERS: "controller"}


def run_remote_process(  # noqa: PLR0913 - the settings of such a process
    part: Part,
    work: PartWork,
    metrics: KitMetrics,
    *,
    kubeconfig: str,
    server: str,
    metrics_listen: str,
    log_level: str,
    log_format: str,
) -> None:
    """Run until SIGTERM or SIGINT; ``work`` is done, and counted, while we lead."""
    if not kubeconfig:
        raise click.UsageError(
            f"say how to reach the API server: --kubeconfig FILE, made there with"
            f" `livesize cert create {part} --role {_ROLES[part]}`"
        )
    connection = connect_with(Path(kubeconfig), server, f"livesize-{part}/{VERSION}")
    listener = _listen_for_metrics(metrics_listen) if metrics_listen else None
    set_up_logging(log_level, form=log_format)
    drop_root()  # the kubeconfig was the last file that is root's
    run_in_loop(functools.partial(_run, part, work, connection, metrics, listener))


async def _run(
    part: Part,
    work: PartWork,
    connection: ConnectionConfig,
    metrics: KitMetrics,
    listener: socket.socket | None,
) -> None:
    context = system_context()
    lifecycle = ProcessLifecycle(context.clock)
    holder = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    servers = ", ".join((connection.server, *connection.others))
    words = f"livesize {part} is ready, at {servers}, as {holder}."
    async with metrics_server(listener, metrics.families):
        await lifecycle.run(words, lead_remotely(part, holder, work, connection, context))


def _listen_for_metrics(listen: str) -> socket.socket:
    option = "--metrics-listen"
    return listen_on(*parse_listen(listen, option), option)


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
