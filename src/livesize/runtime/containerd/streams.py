"""Logs, sessions and ports of containers that containerd runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.containerd.cri_client import CriClient
from livesize.runtime.interface import ContainerPhase, ContainerView, PodView, RuntimeCallError
from livesize.runtime.logs.cri import read_cri, rotate
from livesize.runtime.logs.raw import Growth
from livesize.runtime.ports import connect_port
from livesize.runtime.spdy_session import open_spdy
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLimits,
    LogLines,
    LogQuery,
    NotRunningError,
    PortStreams,
    Session,
)

LOOK_SECONDS = 0.1
"""A log that is followed is looked at this often."""

_log = get_logger("containerd.logs")


class Streaming:
    def __init__(self, client: CriClient, clock: Clock, limits: LogLimits) -> None:
        self._client = client
        self._clock = clock
        self._limits = limits

    async def exec(self, view: ContainerView, request: ExecRequest) -> Session:
        _require_running(view)
        answer = await self._client.call(
            "Exec",
            container_id=view.id,
            cmd=list(request.command),
            tty=request.tty,
            stdin=request.stdin,
            stdout=True,
            stderr=not request.tty,
        )
        return await open_spdy(answer.url, _streams(request.stdin, request.tty))

    async def attach(self, view: ContainerView, request: AttachRequest) -> Session:
        _require_running(view)
        answer = await self._client.call(
            "Attach",
            container_id=view.id,
            stdin=request.stdin,
            tty=request.tty,
            stdout=True,
            stderr=not request.tty,
        )
        return await open_spdy(answer.url, _streams(request.stdin, request.tty))

    async def connect(self, pod: PodView, port: int) -> PortStreams:
        running = [one.pid for one in pod.containers if one.phase is ContainerPhase.RUNNING]
        if not running:
            raise NotRunningError(f"no container of pod {pod.uid} runs")
        return await connect_port(port, running[0] if pod.address else None)

    def read_log(
        self, view: ContainerView, query: LogQuery, is_live: Callable[[], bool]
    ) -> LogLines:
        path = Path(view.log_path)
        if query.previous:
            return read_cri(path.with_name(f"{view.attempt - 1}.log"), query)
        growth = Growth(is_live, functools.partial(self._clock.sleep, LOOK_SECONDS))
        return read_cri(path, query, growth if query.follow else None)

    async def rotate(self, views: list[ContainerView]) -> None:
        """Put aside what has become long; what cannot be is tried again the next time."""
        for view in views:
            reopen = functools.partial(self._reopen, view.id)
            try:
                await rotate(Path(view.log_path), self._limits, self._clock.now(), reopen)
            except (RuntimeCallError, OSError) as failure:
                _log.warning("log not rotated", log=view.log_path, reason=str(failure))

    async def _reopen(self, container_id: str) -> None:
        await self._client.call("ReopenContainerLog", container_id=container_id)


def _streams(stdin: bool, tty: bool) -> tuple[str, ...]:
    first = ("error", "stdin") if stdin else ("error",)
    return (*first, "stdout", "resize" if tty else "stderr")


def _require_running(view: ContainerView) -> None:
    if view.phase is not ContainerPhase.RUNNING:
        raise NotRunningError(f"container {view.name} does not run")
