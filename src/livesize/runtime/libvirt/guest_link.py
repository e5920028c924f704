"""What a guest says: on a line of its own where it has one, else through its agent.

The guest is not trusted: words that its domain cannot have are dropped, with the sentence why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.environment import VmThread
from livesize.runtime.libvirt.guest_bounds import (
    GuestLimits,
    GuestReport,
    ImplausibleReportError,
    guest_cpus,
    memory_by_node,
)
from livesize.runtime.libvirt.guest_channel import GuestChannel
from livesize.runtime.vm import GuestView

log = get_logger("vm")

_ANSWER_SECONDS = 2.0
_FIRST_ANSWER_SECONDS = 0.5
_SILENT_ANSWER_SECONDS = 0.05
_DROPPED_SECONDS = 10.0


class GuestCallbacks(msgspec.Struct, frozen=True):
    """``spoke``: it said something unasked, other than before or not. ``dropped``: for the first
    time in a while it said what cannot be."""

    spoke: Callable[[bool], None]
    dropped: Callable[[], None]


class GuestLink:
    """``view``: what the guest said last; None where it was not heard, or did not answer. ``said``:
    how often it has spoken, or did not answer when it was asked."""

    def __init__(
        self,
        pod_uid: str,
        domain: Domain,
        thread: VmThread,
        limits: GuestLimits,
        clock: Clock,
        callbacks: GuestCallbacks,
    ) -> None:
        self.view: GuestView | None = None
        self.said = 0
        self.dropped = ""
        self.agent_connected = False
        self._pod_uid = pod_uid
        self._domain = domain
        self._thread = thread
        self._limits = limits
        self._clock = clock
        self._callbacks = callbacks
        self._channel = GuestChannel(limits, self._reported, self._hung_up, self._drop)
        self._dropped_at = -_DROPPED_SECONDS

    @property
    def speaks_up(self) -> bool:
        """It has a line of its own, and says on it what changes."""
        return self._channel.last is not None and not self._channel.is_silent

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def open(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # QEMU has just ended, or another process listens
            self._channel.open(path)

    def close(self) -> None:
        self._channel.close()

    async def ask(self) -> None:
        """Through its own line where the guest has one, else through its agent."""
        self.view = await self._answer()
        self.said += 1

    async def keep_busy(self) -> None:
        """Have the guest answer by every way it has."""
        await self._channel.ask(_ANSWER_SECONDS)
        with contextlib.suppress(RuntimeCallError):
            await self._thread.run(self._domain.ask_agent)

    async def _answer(self) -> GuestView | None:
        report = await self._channel.ask(self._patience())
        if report is not None:
            return _guest_view(report, self._limits, agent=self.agent_connected)
        if self._channel.last is None and self.agent_connected:
            try:
                told = await self._thread.run(self._domain.ask_agent)
            except ImplausibleReportError as unfit:
                self._drop(str(unfit))
            else:
                self.dropped = "" if told is not None else self.dropped
                return told
        return None

    def _patience(self) -> float:
        if self._channel.is_silent:
            return _SILENT_ANSWER_SECONDS
        return _FIRST_ANSWER_SECONDS if self._channel.last is None else _ANSWER_SECONDS

    def _reported(self, report: GuestReport) -> None:
        before = self.view
        self.view = _guest_view(report, self._limits, agent=self.agent_connected)
        self.dropped = ""
        self.said += 1
        self._callbacks.spoke(before is None or _shape(before) != _shape(self.view))

    def _hung_up(self) -> None:
        self.view = None

    def _drop(self, why: str) -> None:
        """Nothing of what cannot be is believed. The guest decides how often it says such things;
        how often we report it, we do."""
        self.view = None
        now = self._clock.monotonic()
        if now - self._dropped_at >= _DROPPED_SECONDS:
            self._dropped_at, self.dropped = now, why
            log.warning("a guest's word is dropped", pod=self._pod_uid, why=why)
            self._callbacks.dropped()
        elif not self.dropped:
            self.dropped = why


def _guest_view(report: GuestReport, limits: GuestLimits, *, agent: bool) -> GuestView:
    """Of a report that fits."""
    return GuestView(
        boot_id=report.boot_id,
        uptime_seconds=report.uptime,
        vcpus_online=len(guest_cpus(report.online, limits)),
        memory_seen_bytes=report.mem_total * 1024,
        memory_available_bytes=report.available * 1024,
        agent=agent,
        memory_by_node=memory_by_node(report.nodes, limits),
    )


def _shape(guest: GuestView) -> tuple[object, ...]:
    """What is worth an event when it changes."""
    sizes = guest.vcpus_online, guest.memory_seen_bytes, guest.memory_by_node
    return guest.boot_id, *sizes, guest.agent
