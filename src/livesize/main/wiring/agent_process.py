"""`livesize agent`: runs the pods of this machine, for API servers that are elsewhere.

Containers and virtual machines do not belong to it: they go on while it is away, and the next agent
finds them. Only with --stop-pods they end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from livesize.agent.agent import Agent
from livesize.agent.endpoint.server import Endpoint, EndpointServer
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.node_join import maintain_certificate, node_of
from livesize.machinery.clock import Clock
from livesize.machinery.context import system_context
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.telemetry import set_up_logging
from livesize.main.wiring.agent import (
    USER_AGENT,
    NodeSettings,
    open_agent,
    parse_allocatable,
    parse_cpu_policy,
    parse_node_name,
    say_what_stops,
)
from livesize.main.wiring.endpoint import keep_identity, open_tls_endpoint, port_of
from livesize.main.wiring.folders import exclusive, prepare_agent
from livesize.main.wiring.listeners import parse_listen
from livesize.main.wiring.ownership import own_node
from livesize.main.wiring.process_lifecycle import ProcessLifecycle, run_in_loop
from livesize.main.wiring.remote_process import connect_with
from livesize.main.wiring.runtimes import check_runtime, parse_log_limits, rootless
from livesize.main.wiring.startup_errors import reported_startup_errors


class AgentOptions(msgspec.Struct, frozen=True):
    """As the options say it."""

    data_dir: Path
    kubeconfig: str = ""
    server: str = ""
    runtime: str = "process"
    runtime_endpoint: str = ""
    cgroup_driver: str = "auto"
    node_name: str = ""
    node_ip: str = ""
    allocatable: str = ""
    cpu_policy: str = "none"
    reserved_cpus: str = ""
    vm_memory_technology: str = "auto"
    container_log_max_size: str = "10Mi"
    container_log_max_files: str = "5"
    endpoint_listen: str = ""
    resize_judge: str = "node"
    stop_pods: bool = False
    log_level: str = "info"
    log_format: str = "text"


class _Run(msgspec.Struct, frozen=True):
    """What the options mean, on this machine."""

    directory: DataDirectory
    kubeconfig: Path
    connection: ConnectionConfig
    node: NodeSettings
    stop_pods: bool
    endpoint: Endpoint | None


def run_agent(command: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT. Wrong settings end in one sentence, before anything starts."""
    allocatable = parse_allocatable(command.allocatable)
    cpus = parse_cpu_policy(command.cpu_policy, command.reserved_cpus)
    logs = parse_log_limits(command.container_log_max_size, command.container_log_max_files)
    driver = command.cgroup_driver
    runtime = check_runtime(command.runtime, command.runtime_endpoint, driver, logs)
    directory = DataDirectory(command.data_dir.absolute())
    kubeconfig = _kubeconfig(command, directory)
    connection = connect_with(kubeconfig, command.server, USER_AGENT)
    name = _node_name(command.node_name, connection)
    address = command.node_ip or _address_towards(connection.server)
    set_up_logging(command.log_level, form=command.log_format)
    with reported_startup_errors(), rootless(runtime, directory):
        prepare_agent(directory)
        with (
            exclusive(directory, directory.agent_lock),
            own_node(directory, name, runtime) as identity,
        ):
            where = parse_listen(command.endpoint_listen or f"[{address}]:0", "--endpoint-listen")
            endpoint = open_tls_endpoint(*where, connection)
            judge, port = command.resize_judge, port_of(endpoint)
            node = NodeSettings(
                name,
                identity,
                address,
                runtime,
                allocatable,
                judge,
                cpus,
                port,
                command.vm_memory_technology,
            )
            run = _Run(directory, kubeconfig, connection, node, command.stop_pods, endpoint)
            run_in_loop(functools.partial(_run, run))


def _kubeconfig(command: AgentOptions, directory: DataDirectory) -> Path:
    if command.kubeconfig:
        return Path(command.kubeconfig).absolute()
    if not directory.node_kubeconfig.exists():
        raise click.ClickException(
            f"this machine has joined no cluster: {directory.node_kubeconfig} is not there. Join"
            " one with `livesize join`, or name a node's kubeconfig with --kubeconfig"
        )
    return directory.node_kubeconfig


def _node_name(given: str, connection: ConnectionConfig) -> str:
    """A certificate is for one node, and no other."""
    if not connection.client_certificate_pem:
        return parse_node_name(given)
    certified = node_of(connection)
    if given and given != certified:
        raise click.BadParameter(
            f"this machine has joined as {certified}, not as {given}", param_hint="--node-name"
        )
    return parse_node_name(certified)


def _address_towards(server: str) -> str:
    """Our own address on the way to the server; nothing is sent."""
    host, port = urlsplit(server).hostname or "127.0.0.1", urlsplit(server).port or 443
    with contextlib.suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return "127.0.0.1"


async def _run(run: _Run) -> None:
    context = system_context()
    clock = context.clock
    lifecycle = ProcessLifecycle(clock)
    client = await HttpClient.open(run.connection)
    try:
        async with (
            open_agent(run.directory, run.node, client, context) as agent,
            asyncio.TaskGroup() as group,
        ):
            beating = group.create_task(lifecycle.beat())
            tasks = [
                group.create_task(agent.run()),
                group.create_task(_keep_certificate(run, client, clock)),
                *(group.create_task(one) for one in _answering(run, agent, clock)),
            ]
            lifecycle.ready(
                f"livesize agent is ready, node {run.node.name}, at {', '.join(client.servers)}."
            )
            await lifecycle.stopped()
            for task in tasks:
                task.cancel()
            if run.stop_pods:
                say_what_stops(agent, "Without --stop-pods they go on.")
                await agent.stop_workloads(lifecycle.stop_now)
            beating.cancel()
    finally:
        await client.close()


def _answering(run: _Run, agent: Agent, clock: Clock) -> list[Coroutine[Any, Any, None]]:
    """Nothing where the agent came in by a token: it could not prove to be this node."""
    if run.endpoint is None:
        return []
    server = EndpointServer(run.endpoint, agent.runtime, clock)
    return [server.run(), keep_identity(run.endpoint, run.kubeconfig, clock)]


async def _keep_certificate(run: _Run, client: HttpClient, clock: Clock) -> None:
    """A token lasts as long as it was made for; a certificate is renewed here."""
    if run.connection.client_certificate_pem:
        await maintain_certificate(run.kubeconfig, client, clock)
