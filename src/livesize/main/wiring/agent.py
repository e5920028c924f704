"""A node's agent with its runtime, the same in `livesize up` and `livesize agent`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import click
import msgspec

from livesize import VERSION
from livesize.agent.agent import Agent
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.cpus.plan import CpuSupply, make_supply
from livesize.agent.settings import AgentSettings, with_slow_calls
from livesize.api.cpu_list import parse_cpu_list
from livesize.api.quantity import QuantityError, cpu_milli, memory_bytes
from livesize.api.validation.names import LABEL_LENGTH, DnsRule, name_problems
from livesize.api.vm_size import Technology
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.steps import CrashPoints
from livesize.main.wiring.process_lifecycle import say
from livesize.main.wiring.runtimes import RuntimeChoice, make_runtime, make_volumes
from livesize.runtime.interface import MachineFacts, Runtime, RuntimeCallError
from livesize.runtime.ownership import NodeIdentity

USER_AGENT = f"livesize-agent/{VERSION}"
HOST_MEMORY_SHARE = 0.10
SCHEDULER_SECONDS = 0.2
"""Where the scheduler judges resizes, the node waits so long for its word."""


class Allocatable(msgspec.Struct, frozen=True):
    cpu_milli: int | None = None
    memory_bytes: int | None = None


class StaticCpus(msgspec.Struct, frozen=True):
    """The static CPU policy. ``reserved`` empty: the first CPU."""

    reserved: tuple[int, ...] = ()


class NodeSettings(msgspec.Struct, frozen=True):
    name: str
    identity: NodeIdentity
    address: str
    runtime: RuntimeChoice = RuntimeChoice()
    allocatable: Allocatable = Allocatable()
    resize_judge: str = "node"
    cpus: StaticCpus | None = None  # None: everybody shares all CPUs
    endpoint_port: int = 0
    vm_memory_technology: str = "auto"


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


def parse_cpu_policy(policy: str, reserved: str) -> StaticCpus | None:
    """Read --cpu-policy and --reserved-cpus."""
    if policy != "static":
        if reserved:
            raise click.BadParameter(
                f"it is for --cpu-policy static, and this is --cpu-policy {policy}",
                param_hint="--reserved-cpus",
            )
        return None
    try:
        return StaticCpus(parse_cpu_list(reserved))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--reserved-cpus") from None


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


@contextlib.asynccontextmanager
async def open_agent(
    directory: DataDirectory, settings: NodeSettings, client: Client, context: Context
) -> AsyncIterator[Agent]:
    """An agent that is ready to run. ``client`` stays open for as long."""
    runtime = make_runtime(settings.runtime, directory, settings.identity, context)
    async with contextlib.AsyncExitStack() as stack:
        await runtime.open()
        stack.push_async_callback(runtime.close)
        checkpoint = await open_checkpoint(directory.checkpoint)
        stack.push_async_callback(checkpoint.close)
        await checkpoint.load()  # what cannot be read is said before anything is begun
        cpus = None if settings.cpus is None else _supply(settings.cpus, runtime)
        yield Agent(
            client=client,
            runtime=runtime,
            checkpoint=checkpoint,
            context=context,
            settings=_agent_settings(settings, runtime.machine(), cpus),
            volumes=make_volumes(settings.runtime, directory),
            points=CrashPoints.from_environment(),
            vms=runtime,
        )


def _supply(policy: StaticCpus, runtime: Runtime) -> CpuSupply:
    try:
        return make_supply(runtime.cpus(), policy.reserved)
    except ValueError as error:
        raise RuntimeCallError(f"--reserved-cpus: {error}") from error


def _agent_settings(
    settings: NodeSettings, machine: MachineFacts, cpus: CpuSupply | None
) -> AgentSettings:
    memory, cpu = settings.allocatable.memory_bytes, settings.allocatable.cpu_milli
    if memory is None:
        memory = int(machine.memory_bytes * (1 - HOST_MEMORY_SHARE))
    if cpu is None and cpus is not None:
        cpu = len(cpus.assignable) * 1000  # the reserved ones are the host's
    usual = AgentSettings(
        node_name=settings.name,
        host_ip=settings.address,
        allocatable_cpu_milli=cpu,
        allocatable_memory_bytes=memory,
        version=VERSION,
        cpus=cpus,
        memory_technology=Technology(settings.vm_memory_technology),
        endpoint_port=settings.endpoint_port,
        scheduler_seconds=SCHEDULER_SECONDS if settings.resize_judge == "scheduler" else 0.0,
    )
    return with_slow_calls(usual) if settings.runtime.kind == "containerd" else usual


def say_what_stops(agent: Agent, instead: str) -> None:
    """``instead`` says how they would go on."""
    pods = len(agent.runtime.list_pods())
    if pods:
        word = "pod" if pods == 1 else "pods"
        deleted = agent.deleted_pods()
        among = f" ({deleted} of them deleted already)" if deleted else ""
        say(
            f"Stopping {pods} {word}{among}, each within its grace period; once more ends them at"
            f" once. ({instead})"
        )
