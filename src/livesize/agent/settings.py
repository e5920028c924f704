"""What can be set about a node agent."""

from __future__ import annotations

import msgspec

from livesize.agent.cpus.plan import CpuSupply
from livesize.api.vm_size import Technology

ACCEPT_DELAY_SECONDS = 0.005
_SLOW_CALLS_SECONDS = 0.1


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    node_name: str
    host_ip: str = "127.0.0.1"
    allocatable_cpu_milli: int | None = None  # None: all the machine has
    allocatable_memory_bytes: int | None = None
    version: str = "0.1.0"
    cpus: CpuSupply | None = None  # set: the static CPU policy, and what it has to give
    endpoint_port: int = 0  # where API servers on other machines find this agent; 0: nowhere

    recheck_seconds: float = 10.0  # a pod nothing happened to is read back this often
    resize_backoff_seconds: float = 0.1  # after a failed resize: first wait, doubling
    resize_backoff_maximum_seconds: float = 2.0
    post_backoff_seconds: float = 0.05  # after a failed post to the API server
    post_backoff_maximum_seconds: float = 5.0
    crash_backoff_seconds: float = 10.0  # after the second exit in a row, doubling
    crash_backoff_maximum_seconds: float = 300.0
    crash_forgotten_seconds: float = 600.0  # a container that ran this long begins afresh
    object_wait_seconds: float = 2.0  # a ConfigMap or Secret that is missing is asked for again
    object_refresh_seconds: float = 30.0  # files in volumes follow their objects within that
    scheduler_seconds: float = 0.0  # so long the scheduler is given to judge a resize first
    memory_technology: Technology = Technology.AUTO  # of VMs that do not name one
    guest_seconds: float = 10.0  # a guest that does nothing for so long has not confirmed
    boot_seconds: float = 120.0  # so long after its start a guest may not have been heard yet
    progress_seconds: float = 0.5  # how far a long change is, is told at most this often
    node_status_seconds: float = 60.0
    lease_seconds: float = 10.0
    accept_delay_seconds: float = ACCEPT_DELAY_SECONDS  # applied by then: Accepted goes with Done
    event_delay_seconds: float = 0.05 + ACCEPT_DELAY_SECONDS  # longer than that: events go with it


def with_slow_calls(settings: AgentSettings) -> AgentSettings:
    """Writing files takes less than a millisecond; containerd starts a program for each call."""
    later = _SLOW_CALLS_SECONDS - settings.accept_delay_seconds
    return msgspec.structs.replace(
        settings,
        accept_delay_seconds=_SLOW_CALLS_SECONDS,
        event_delay_seconds=settings.event_delay_seconds + later,
    )
