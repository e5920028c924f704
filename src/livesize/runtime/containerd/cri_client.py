"""Calls to containerd over its socket: CRI v1, and its stream of events.

A call waits while containerd is away or still starting, up to its time limit, because it is
started again in a fraction of a second; unless who calls is not patient. A call that was under way
when the connection broke is asked again only where asking twice does no harm.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.containerd.messages import (
    Envelope,
    ProtobufMessage,
    SubscribeRequest,
    TaskExecStarted,
    TaskExit,
    TaskOOM,
    request_of,
    response_of,
)
from livesize.runtime.interface import GoneError, RuntimeCallError

NAMESPACE = "k8s.io"  # of everything that CRI makes
CALL_SECONDS = 30.0
_PAUSE_SECONDS = 0.01

_RUNTIME = "/runtime.v1.RuntimeService"
_IMAGES = "/runtime.v1.ImageService"
_SERVICES = {
    _RUNTIME: (
        "Version", "Status", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox",
        "PodSandboxStatus", "ListPodSandbox", "CreateContainer", "StartContainer",
        "StopContainer", "RemoveContainer", "ListContainers", "ContainerStatus", "ExecSync",
        "UpdateContainerResources", "Exec", "Attach", "ReopenContainerLog", "RuntimeConfig",
    ),
    _IMAGES: ("ListImages", "ImageStatus", "PullImage", "RemoveImage"),
}  # fmt: skip
_ONCE = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync"})
"""Asked a second time, these would meet what the first has made."""

_NOT_YET = "server is not initialized yet"
_EVENTS = "/containerd.services.events.v1.Events/Subscribe"
_FILTERS = tuple(
    f'namespace=="{NAMESPACE}",topic=="{topic}"'
    for topic in ("/tasks/exit", "/tasks/oom", "/tasks/exec-started")
)
_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 250),
    # A second agent on this machine, and the one before, have connections of their own.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),
]


class ContainerdUnreachableError(RuntimeCallError):
    """containerd does not answer."""


class CriRefusedError(RuntimeCallError):
    """containerd answered, and the answer is no; the words are its own."""


class TaskEvent(msgspec.Struct, frozen=True):
    """Something happened to the first process of a container or of a sandbox; or, where a ``pid``
    is given, that one was started beside it."""

    container_id: str
    oom: bool
    pid: int = 0


class CriClient:
    """One connection. Must be made inside the event loop that uses it."""

    def __init__(self, socket: Path, clock: Clock) -> None:
        self.socket = socket
        self._clock = clock
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._calls: dict[str, Any] = {
            name: self._channel.unary_unary(
                f"{service}/{name}",
                request_of(name).SerializeToString,
                response_of(name).FromString,
            )
            for service, names in _SERVICES.items()
            for name in names
        }
        self._subscribe = self._channel.unary_stream(
            _EVENTS, SubscribeRequest.SerializeToString, Envelope.FromString
        )

    async def call(
        self, name: str, *, seconds: float = CALL_SECONDS, patient: bool = True, **fields: Any
    ) -> ProtobufMessage:
        """Ask NAME with these fields of its request; returns the response. Who is not ``patient``
        does not wait for a containerd that is away."""
        request = request_of(name)(**fields)
        deadline = self._clock.monotonic() + seconds
        while True:
            left_seconds = max(deadline - self._clock.monotonic(), 0.001)
            try:
                return await self._calls[name](
                    request, timeout=left_seconds, wait_for_ready=patient
                )
            except grpc.aio.AioRpcError as failure:
                may_ask_again = patient and _may_ask_again(name, failure)
                if not may_ask_again or self._clock.monotonic() >= deadline:
                    raise self._failed(name, seconds, failure) from failure
            await self._clock.sleep(_PAUSE_SECONDS)

    async def events(self) -> AsyncGenerator[TaskEvent | None, None]:
        """What happens to tasks, until the connection breaks. First comes None, when they have
        been asked for; containerd does not say when it has begun to listen."""
        stream = self._subscribe(SubscribeRequest(filters=_FILTERS), wait_for_ready=True)
        try:
            yield None
            async for envelope in stream:
                event = _task_event(envelope)
                if event is not None:
                    yield event
        except grpc.aio.AioRpcError as failure:
            raise ContainerdUnreachableError(
                f"{self.socket}: no events: {failure.details()}"
            ) from failure
        finally:
            stream.cancel()

    async def close(self) -> None:
        await self._channel.close()

    def _failed(self, name: str, seconds: float, failure: grpc.aio.AioRpcError) -> RuntimeCallError:
        """The one place that turns a status into a sentence."""
        words = plain_words(failure.details() or "")
        match failure.code():
            case grpc.StatusCode.NOT_FOUND:
                return GoneError(f"{name}: {words}")
            case grpc.StatusCode.UNAVAILABLE:
                return ContainerdUnreachableError(
                    f"containerd at {self.socket} does not answer: {words}"
                )
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return ContainerdUnreachableError(
                    f"containerd at {self.socket} did not finish {name} in {seconds:.0f} s"
                )
            case _:
                return CriRefusedError(f"{name}: {words}")


def plain_words(details: str) -> str:
    """containerd's sentence without the layers of "rpc error" that it passed through."""
    for layer in ("rpc error: code = Unknown desc = ", "rpc error: code = NotFound desc = "):
        details = details.replace(layer, "")
    return details.strip().removesuffix(": unknown") or "no reason was given"


def _may_ask_again(name: str, failure: grpc.aio.AioRpcError) -> bool:
    if _NOT_YET in (failure.details() or ""):
        return True
    return failure.code() is grpc.StatusCode.UNAVAILABLE and name not in _ONCE


def _task_event(envelope: ProtobufMessage) -> TaskEvent | None:
    """None: the end of a process that somebody ran beside the first one."""
    if envelope.topic == "/tasks/oom":
        return TaskEvent(TaskOOM.FromString(envelope.event.value).container_id, oom=True)
    if envelope.topic == "/tasks/exec-started":
        started = TaskExecStarted.FromString(envelope.event.value)
        return TaskEvent(started.container_id, oom=False, pid=started.pid)
    exit_ = TaskExit.FromString(envelope.event.value)
    return TaskEvent(exit_.container_id, oom=False) if exit_.id == exit_.container_id else None
