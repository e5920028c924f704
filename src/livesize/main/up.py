"""`livesize up`: the whole system on one machine, in two processes.

This process is the node agent, as root. It starts the control plane as a child with an ordinary
user's rights, hands it the listening socket, and starts it again if it dies; the socket stays
open meanwhile, so that callers wait instead of being refused. The child ends when this process
does, however it ends; containers go on, and the next `livesize up` finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
import secrets
import signal
import socket
import sys
from pathlib import Path

import click
import msgspec
import uvloop

from livesize import VERSION
from livesize.agent.agent import Agent
from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.settings import AgentSettings
from livesize.api.quantity import QuantityError, cpu_milli, memory_bytes
from livesize.api.validation.names import LABEL_LENGTH, DnsRule, name_problems
from livesize.apiserver.auth.identities import Role
from livesize.apiserver.auth.records import Records, TokenEntry, change_records
from livesize.apiserver.auth.tokens import hash_token
from livesize.apiserver.tls import TlsFiles, ensure_tls
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.kubeconfig import KubeconfigError, connection_from, write_kubeconfig
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
from livesize.machinery.clock import Clock, SystemClock
from livesize.machinery.heap import settle_heap
from livesize.machinery.steps import Backoff, CrashPoints
from livesize.machinery.telemetry import get_logger, set_up_logging
from livesize.main.control_plane import ControlPlaneSettings
from livesize.main.layout import (
    Account,
    AlreadyRunningError,
    DataDirectory,
    control_plane_account,
    exclusive,
    give_to,
    may_write,
    prepare,
)
from livesize.main.runtimes import (
    RuntimeChoice,
    accept_delay_seconds,
    check_runtime,
    make_runtime,
)
from livesize.main.stores import StoreChoice, read_etcd_settings
from livesize.runtime.interface import Runtime, RuntimeCallError
from livesize.store.interface import StoreOpenError

log = get_logger("up")

MEMORY_KEPT_FOR_THE_HOST = 0.10
EVENT_DELAY_SECONDS = 0.05
"""Longer than a resize takes: written at once, its two events delay its status by 7 %."""


class UpSettings(msgspec.Struct, frozen=True):
    data_dir: Path
    listen: str
    runtime: str = "process"
    runtime_endpoint: str = ""
    node_name: str = ""
    allocatable: str = ""
    keep: bool = False
    log_level: str = "info"
    http: str = "uvicorn"
    audit_log: str = ""
    audit_level: str = "metadata"
    store: str = "sqlite"
    etcd_endpoints: str = ""
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""

    def store_choice(self) -> StoreChoice:
        files = (self.etcd_ca, self.etcd_cert, self.etcd_key)
        absolute = (str(Path(name).absolute()) if name else "" for name in files)
        return StoreChoice(self.store, self.etcd_endpoints, *absolute)


class Allocatable(msgspec.Struct, frozen=True):
    cpu_milli: int | None = None
    memory_bytes: int | None = None


def run_up(settings: UpSettings) -> None:
    """Run until SIGTERM or SIGINT. Wrong settings end in one sentence, before anything starts."""
    host, port = parse_listen(settings.listen)
    allocatable = parse_allocatable(settings.allocatable)
    node_name = parse_node_name(settings.node_name)
    if settings.store == "etcd":
        try:
            read_etcd_settings(settings.store_choice())
        except StoreOpenError as refusal:
            raise click.ClickException(str(refusal)) from refusal
    check_runtime(settings.runtime, settings.runtime_endpoint)
    check_http(settings.http)
    set_up_logging(settings.log_level)
    directory = DataDirectory(settings.data_dir.absolute())
    account = control_plane_account()
    try:
        _prepare(directory, account)
        audit_log = prepare_audit_log(settings.audit_log, account)
        with exclusive(directory), listen_on(host, port) as listener:
            named = msgspec.structs.replace(settings, node_name=node_name, audit_log=audit_log)
            up = _Up(named, directory, account, listener, allocatable)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(up.run())
    except (AlreadyRunningError, RuntimeCallError) as refusal:
        raise click.ClickException(str(refusal)) from None
    except PermissionError as failure:
        raise click.ClickException(
            f"{failure.filename} may not be written by this user: choose another --data-dir"
        ) from failure


def check_http(http: str) -> None:
    """granian is an extra; without it the control plane would die again and again."""
    if http == "granian" and importlib.util.find_spec("granian") is None:
        raise click.ClickException(
            "--http granian needs the extra: pip install 'livesize[h2]', or leave --http out"
        )


def _prepare(directory: DataDirectory, account: Account | None) -> None:
    try:
        prepare(directory, account)
    except PermissionError:
        raise
    except OSError as failure:
        raise click.ClickException(
            f"{failure.filename} cannot be made: {failure.strerror}; choose another --data-dir"
        ) from failure


def prepare_audit_log(text: str, account: Account | None) -> str:
    """The file's absolute path, in a folder that the control plane can write to: it begins new
    files there. A folder that is there already stays whose it is."""
    if not text:
        return ""
    path = Path(text).absolute()
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            if account is not None:
                give_to(path.parent, account)
        writable = account is None or may_write(path.parent, account)
    except OSError as failure:
        raise click.BadParameter(
            f"{path.parent} cannot be made: {failure.strerror}", param_hint="--audit-log"
        ) from failure
    if not writable or not os.access(path.parent, os.W_OK) or path.is_dir():
        user = account.name if account is not None else "this user"
        raise click.BadParameter(
            f"{path} cannot be written by {user}: choose a file in a folder of its own",
            param_hint="--audit-log",
        )
    return str(path)


def parse_listen(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(
            f"{text!r} is not HOST:PORT, for instance 127.0.0.1:7443", param_hint="--listen"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def parse_allocatable(text: str) -> Allocatable:
    """Read cpu=…,memory=…; either may be left out."""
    amounts: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, separator, amount = part.partition("=")
        if not separator or name not in ("cpu", "memory"):
            raise click.BadParameter(
                f"{part!r} is not cpu=AMOUNT or memory=AMOUNT", param_hint="--allocatable"
            )
        if name in amounts:
            raise click.BadParameter(f"{name} is given twice", param_hint="--allocatable")
        amounts[name] = amount
    try:
        allocatable = Allocatable(
            cpu_milli(amounts["cpu"]) if "cpu" in amounts else None,
            memory_bytes(amounts["memory"]) if "memory" in amounts else None,
        )
    except QuantityError as error:
        raise click.BadParameter(str(error), param_hint="--allocatable") from None
    for name, number in (
        ("cpu", allocatable.cpu_milli),
        ("memory", allocatable.memory_bytes),
    ):
        if number is not None and number <= 0:
            raise click.BadParameter(f"{name} must be more than 0", param_hint="--allocatable")
    return allocatable


def parse_node_name(text: str) -> str:
    """The name given, or the host's. It names an object, a label and a control group."""
    name = text or socket.gethostname().lower()
    problems = name_problems(name, DnsRule.SUBDOMAIN)
    if len(name) > LABEL_LENGTH or problems:
        where = "" if text else ", this host's name,"
        raise click.BadParameter(
            f"{name!r}{where} cannot be the name of a node: use at most {LABEL_LENGTH} characters,"
            " lower case letters, digits, '-' and '.', for instance node-1",
            param_hint="--node-name",
        )
    return name


def listen_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as failure:
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {_plain_reason(failure)};"
            " choose another with --listen"
        ) from failure


def _set_next(first: asyncio.Event, second: asyncio.Event) -> None:
    (second if first.is_set() else first).set()


def _plain_reason(failure: OSError) -> str:
    """Without Python's remark about the address, which our sentence has already."""
    return (failure.strerror or str(failure)).partition(" (while attempting")[0]


class _Up:
    """One run of the system, from its credentials to its clean end."""

    def __init__(
        self,
        settings: UpSettings,
        directory: DataDirectory,
        account: Account | None,
        listener: socket.socket,
        allocatable: Allocatable,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._account = account
        self._listener = listener
        self._allocatable = allocatable
        self._clock: Clock = SystemClock()
        self._node_name = settings.node_name
        host, port = listener.getsockname()[:2]
        self._host = str(host)
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104
        self._server = f"https://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"

    async def run(self) -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _set_next, stop, hurry)
        tls = ensure_tls(self._directory.tls, [self._host], now=self._clock.now())
        node_token = self._write_credentials(tls)
        connection = ConnectionConfig(
            server=self._server,
            ca_pem=tls.ca_cert.read_bytes(),
            token=node_token,
            user_agent=f"livesize-agent/{VERSION}",
        )
        supervisor = self._supervisor()
        choice = RuntimeChoice(self._settings.runtime, self._settings.runtime_endpoint)
        runtime = make_runtime(choice, self._directory, self._node_name, self._clock)
        async with contextlib.AsyncExitStack() as stack:
            await runtime.open()
            stack.push_async_callback(runtime.close)
            client = await HttpClient.open(connection)
            stack.push_async_callback(client.close)
            checkpoint = await Checkpoint.open(self._directory.checkpoint)
            stack.push_async_callback(checkpoint.close)
            agent = Agent(
                client=client,
                runtime=runtime,
                checkpoint=checkpoint,
                clock=self._clock,
                settings=self._agent_settings(runtime),
                points=CrashPoints.from_environment(),
                source=random.SystemRandom(),
                vms=runtime,
            )
            await self._run_parts(supervisor, agent, stop, hurry)

    async def _run_parts(
        self, supervisor: Supervisor, agent: Agent, stop: asyncio.Event, hurry: asyncio.Event
    ) -> None:
        async with asyncio.TaskGroup() as group:
            control_plane = group.create_task(supervisor.run())
            running_agent = group.create_task(agent.run())
            saying = group.create_task(self._say_when_ready(supervisor))
            await stop.wait()
            log.info("stopping", keep=self._settings.keep)
            saying.cancel()
            running_agent.cancel()
            if not self._settings.keep:
                self._say_what_stops(agent)
                await agent.stop_workloads(hurry)
            supervisor.stop()
            await control_plane

    def _say_what_stops(self, agent: Agent) -> None:
        pods = len(agent.runtime.list_pods())
        if pods:
            word = "pod" if pods == 1 else "pods"
            _say(
                f"Stopping {pods} {word}, each within its grace period; once more ends them at"
                " once. (With --keep they go on.)"
            )

    async def _say_when_ready(self, supervisor: Supervisor) -> None:
        await supervisor.wait_ready()
        settle_heap()
        _say(
            f"Livesize is ready at {self._server}, node {self._node_name}.\n"
            f"  export KUBECONFIG={self._directory.kubeconfig}\n"
            f"  livesize get pods    (or kubectl get pods)",
        )

    def _agent_settings(self, runtime: Runtime) -> AgentSettings:
        machine = runtime.machine()
        memory = self._allocatable.memory_bytes
        if memory is None:
            memory = int(machine.memory_bytes * (1 - MEMORY_KEPT_FOR_THE_HOST))
        return AgentSettings(
            node_name=self._node_name,
            host_ip=self._host if self._host not in ("0.0.0.0", "::") else "127.0.0.1",  # noqa: S104
            allocatable_cpu_milli=self._allocatable.cpu_milli,
            allocatable_memory_bytes=memory,
            version=VERSION,
            event_delay_seconds=EVENT_DELAY_SECONDS,
            accept_delay_seconds=accept_delay_seconds(self._settings.runtime),
        )

    def _write_credentials(self, tls: TlsFiles) -> str:
        """The admin's token outlives restarts, with every token made by hand; the node's is new."""
        admin = self._admin_token() or secrets.token_urlsafe(32)
        node = secrets.token_urlsafe(32)
        ours = [
            TokenEntry("admin", Role.ADMIN, hash_token(admin)),
            TokenEntry(
                f"system:node:{self._node_name}", Role.NODE, hash_token(node), self._node_name
            ),
        ]
        names = {entry.name for entry in ours}

        def renew(records: Records) -> tuple[Records, None]:
            kept = [entry for entry in records.tokens if entry.name not in names]
            return msgspec.structs.replace(records, tokens=(*ours, *kept)), None

        change_records(self._directory.tokens, renew)
        if self._account is not None:
            give_to(self._directory.control, self._account)
        ca = tls.ca_cert.read_bytes()
        write_kubeconfig(self._directory.kubeconfig, self._server, ca, admin, "admin")
        return node

    def _admin_token(self) -> str:
        with contextlib.suppress(KubeconfigError):
            return connection_from(self._directory.kubeconfig).token
        return ""

    def _supervisor(self) -> Supervisor:
        inherited = self._listener.fileno()
        settings = ControlPlaneSettings(
            directory=str(self._directory.root),
            listener=inherited,
            user=self._account.uid if self._account else None,
            group=self._account.gid if self._account else None,
            log_level=self._settings.log_level,
            http=self._settings.http,
            audit_log=self._settings.audit_log,
            audit_level=self._settings.audit_level,
            store=self._settings.store_choice(),
        )
        spec = ChildSpec(
            name="control-plane",
            argv=(
                sys.executable,
                *("-m", "livesize.main.control_plane"),
                msgspec.json.encode(settings).decode(),
            ),
            env=dict(os.environ),
            log_path=self._directory.logs / "control-plane.log",
            pass_fds=(inherited,),
        )
        backoff = Backoff(0.05, 5.0, random.SystemRandom())
        return Supervisor(
            spec, clock=self._clock, backoff=backoff, ready=told_ready, on_event=_log_child
        )


def _say(text: str) -> None:
    """To whoever reads our output; that they have gone away must not keep us from our work."""
    with contextlib.suppress(OSError):
        click.echo(text)
        sys.stdout.flush()


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
