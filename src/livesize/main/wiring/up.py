"""`livesize up`: the whole system on one machine, in two processes.

This process is the node agent, as root. It starts the control plane as a child with an ordinary
user's rights, hands it the listening socket, and starts it again if it dies; the socket stays
open meanwhile, so that callers wait instead of being refused. The child ends when this process
does, however it ends; containers go on, and the next `livesize up` finds them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import secrets
import socket
import sys

import msgspec

from livesize.agent.agent import Agent
from livesize.agent.endpoint.server import Endpoint, EndpointServer
from livesize.api.roles import Role
from livesize.apiserver.auth.records import TokenEntry
from livesize.apiserver.auth.tokens import hash_token
from livesize.apiserver.tls import ensure_tls
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.machinery.children import (
    ChildEvent,
    ChildFailed,
    ChildReady,
    ChildSpec,
    ChildStarted,
    ChildStopped,
    Supervisor,
    told_ready,
)
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger, set_up_logging
from livesize.main.wiring.accounts import Account, control_plane_account
from livesize.main.wiring.agent import (
    USER_AGENT,
    NodeSettings,
    open_agent,
    parse_allocatable,
    parse_cpu_policy,
    parse_node_name,
    say_what_stops,
)
from livesize.main.wiring.apiserver import ApiServerSettings
from livesize.main.wiring.apiserver_setup import (
    ApiServerOptions,
    check_api_server,
    keep_tokens,
    prepare_audit_log,
    write_credentials,
)
from livesize.main.wiring.control_plane import ControlPlaneSettings
from livesize.main.wiring.endpoint import local_endpoint
from livesize.main.wiring.folders import after_last_control_plane, exclusive, prepare
from livesize.main.wiring.listeners import listen_on, own_address, parse_listen, server_url
from livesize.main.wiring.ownership import own_node
from livesize.main.wiring.process_lifecycle import ProcessLifecycle, run_in_loop
from livesize.main.wiring.runtimes import check_runtime, parse_log_limits, rootless
from livesize.main.wiring.startup_errors import reported_startup_errors

READY_SECONDS = 120.0
"""A machine that is emulated, or has far too much to do, takes a minute; starting it anew would
only take another."""

LAST_CHILD_SECONDS = 60.0
"""So long the control plane of a killed start may take to end."""

log = get_logger("up")


class UpOptions(ApiServerOptions, frozen=True, kw_only=True):
    """As the options say it."""

    runtime: str = "process"
    runtime_endpoint: str = ""
    cgroup_driver: str = "auto"
    node_name: str = ""
    allocatable: str = ""
    cpu_policy: str = "none"
    reserved_cpus: str = ""
    vm_memory_technology: str = "auto"
    container_log_max_size: str = "10Mi"
    container_log_max_files: str = "5"
    resize_judge: str = "node"
    controllers: str = "all"
    keep: bool = False


def run_up(options: UpOptions) -> None:
    """Run until SIGTERM or SIGINT. Wrong settings end in one sentence, before anything starts."""
    host, port = parse_listen(options.listen)
    allocatable = parse_allocatable(options.allocatable)
    cpus = parse_cpu_policy(options.cpu_policy, options.reserved_cpus)
    node_name = parse_node_name(options.node_name)
    apiserver = options.apiserver_settings()
    logs = parse_log_limits(options.container_log_max_size, options.container_log_max_files)
    driver = options.cgroup_driver
    runtime = check_runtime(options.runtime, options.runtime_endpoint, driver, logs)
    directory = DataDirectory(options.data_dir.absolute())
    check_api_server(apiserver, directory.tokens, SystemClock().now())
    set_up_logging(options.log_level, form=options.log_format)
    with reported_startup_errors(), rootless(runtime, directory):
        account = control_plane_account()
        prepare(directory, account)
        audit_log = prepare_audit_log(apiserver.audit_log, account)
        apiserver = msgspec.structs.replace(apiserver, audit_log=audit_log)
        locks = (directory.lock, directory.agent_lock)
        with (
            exclusive(directory, *locks),
            own_node(directory, node_name, runtime) as identity,
            after_last_control_plane(directory, LAST_CHILD_SECONDS) as child_lock,
            listen_on(host, port) as listener,
        ):
            address = own_address(listener)
            judge = options.resize_judge
            node = NodeSettings(
                node_name,
                identity,
                address,
                runtime,
                allocatable,
                judge,
                cpus,
                vm_memory_technology=options.vm_memory_technology,
            )
            apiserver = msgspec.structs.replace(apiserver, local_node=node_name)
            with local_endpoint(directory, account) as endpoint:
                up = _Up(options, directory, account, (listener, child_lock), node, endpoint)
                run_in_loop(functools.partial(up.run, apiserver))


class _Up:
    """One run of the system, from its credentials to its clean end."""

    def __init__(
        self,
        options: UpOptions,
        directory: DataDirectory,
        account: Account | None,
        inherited: tuple[socket.socket, int],
        node: NodeSettings,
        endpoint: Endpoint,
    ) -> None:
        self._options = options
        self._directory = directory
        self._account = account
        self._listener, self._child_lock = inherited
        self._node = node
        self._endpoint = endpoint
        self._context = system_context()
        self._clock = self._context.clock
        self._server = server_url(self._listener)

    async def run(self, apiserver: ApiServerSettings) -> None:
        lifecycle = ProcessLifecycle(self._clock)
        connection = self._write_credentials(apiserver)
        supervisor = self._supervisor(apiserver)
        client = await HttpClient.open(connection)
        try:
            async with open_agent(self._directory, self._node, client, self._context) as agent:
                await self._run_parts(supervisor, agent, lifecycle)
        finally:
            await client.close()

    async def _run_parts(
        self, supervisor: Supervisor, agent: Agent, lifecycle: ProcessLifecycle
    ) -> None:
        async with asyncio.TaskGroup() as group:
            control_plane = group.create_task(supervisor.run())
            running_agent = group.create_task(agent.run())
            endpoint = EndpointServer(self._endpoint, agent.runtime, self._clock)
            answering = group.create_task(endpoint.run())
            saying = group.create_task(self._say_when_ready(supervisor, lifecycle))
            beating = group.create_task(lifecycle.beat())
            await lifecycle.stopped()
            saying.cancel()
            answering.cancel()
            running_agent.cancel()
            if not self._options.keep:
                say_what_stops(agent, "With --keep they go on.")
                await agent.stop_workloads(lifecycle.stop_now)
            supervisor.stop()
            await control_plane
            beating.cancel()

    async def _say_when_ready(self, supervisor: Supervisor, lifecycle: ProcessLifecycle) -> None:
        await supervisor.wait_ready()
        lifecycle.ready(
            f"Livesize is ready at {self._server}, node {self._node.name}.\n"
            f"  export KUBECONFIG={self._directory.kubeconfig}\n"
            f"  livesize get pods    (or kubectl get pods)",
        )

    def _write_credentials(self, apiserver: ApiServerSettings) -> ConnectionConfig:
        """The node's token is new at each start, and not kept."""
        names = (str(self._listener.getsockname()[0]), *apiserver.tls_names)
        tls = ensure_tls(self._directory.tls, names, now=self._clock.now())
        token, name = secrets.token_urlsafe(32), self._node.name
        entry = TokenEntry(f"system:node:{name}", Role.NODE, hash_token(token), name)
        keep_tokens(self._directory, [entry])
        write_credentials(self._directory, self._account, self._server, tls)
        return ConnectionConfig(
            server=self._server,
            ca_pem=tls.ca_cert.read_bytes(),
            token=token,
            user_agent=USER_AGENT,
        )

    def _supervisor(self, apiserver: ApiServerSettings) -> Supervisor:
        inherited = self._listener.fileno()
        settings = ControlPlaneSettings(
            directory=str(self._directory.root),
            listener=inherited,
            user=self._account.uid if self._account else None,
            group=self._account.gid if self._account else None,
            log_level=self._options.log_level,
            log_format=self._options.log_format,
            holder=self._holder(),
            resize_judge=self._options.resize_judge,
            controllers=self._options.controllers,
            apiserver=apiserver,
        )
        spec = ChildSpec(
            name="control-plane",
            argv=(
                sys.executable,
                *("-m", "livesize.main.wiring.control_plane"),
                msgspec.json.encode(settings).decode(),
            ),
            env=dict(os.environ),
            log_path=self._directory.logs / "control-plane.log",
            pass_fds=(inherited, self._child_lock),
            ready_timeout_seconds=READY_SECONDS,
        )
        backoff = Backoff(0.05, 5.0, self._context.random)
        return Supervisor(
            spec, clock=self._clock, backoff=backoff, ready=told_ready, on_event=_log_child
        )

    def _holder(self) -> str:
        """Who leads, on a shared store: the same after a restart, which then need not wait until
        its own lease has run out. The lock on the data directory keeps it the only one."""
        where = hashlib.sha256(str(self._directory.root).encode()).hexdigest()[:8]
        return f"{socket.gethostname()}-{where}"


def _log_child(event: ChildEvent) -> None:
    match event:
        case ChildStarted(name=name, pid=pid):
            log.debug("child started", child=name, pid=pid)
        case ChildReady(name=name, pid=pid, seconds=seconds):
            log.info("child ready", child=name, pid=pid, seconds=seconds)
        case ChildFailed(name=name, why=why, failures=failures, pause_seconds=pause):
            log.error("child failed", child=name, why=why, failures=failures, pause_seconds=pause)
        case ChildStopped(name=name, pid=pid, killed=killed):
            log.info("child stopped", child=name, pid=pid, killed=killed)
