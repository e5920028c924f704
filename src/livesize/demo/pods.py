"""The demo's way to its pods: makes them, resizes them, and follows them as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from livesize.api.conditions import is_true
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, version_of
from livesize.api.patch import PatchType
from livesize.api.resize_phase import ResizePhase
from livesize.api.vm_status import statuses_of
from livesize.cli.sizes import format_requests, format_size, pod_sizes
from livesize.client.interface import Client
from livesize.demo.promises import BrokenPromiseError, promise
from livesize.machinery.clock import Clock

_NAMESPACE = "default"
_NEVER = (ResizePhase.INFEASIBLE, ResizePhase.DEFERRED)  # the demo's node has room, or never will

PodListener: TypeAlias = Callable[[Object], None]


class Resized(msgspec.Struct, frozen=True):
    pod: Object
    seconds: float  # from the question to the status that says it was read back


class Pods:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def get(self, name: str) -> Object:
        return await self._client.get(PODS, name, _NAMESPACE)

    async def create(self, name: str, spec: Object) -> Object:
        metadata = {"name": name, "namespace": _NAMESPACE}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return await self._client.create(PODS, pod)

    async def wait_ready(self, pod: Object, seconds: float) -> Object:
        name = name_of(pod)
        return await self._follow(pod, _is_ready, f"pod {name} is not ready", seconds)

    async def resize(
        self, name: str, spec: Object, seconds: float, on_change: PodListener = lambda _: None
    ) -> Resized:
        """Ask, and wait for the status that says it was read back. ``on_change`` hears of the
        question and of every change after it."""
        began = self._clock.monotonic()
        asked = await self._client.patch(
            PODS,
            name,
            {"spec": spec},
            namespace=_NAMESPACE,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )
        generation = lookup(asked, "metadata", "generation")
        on_change(asked)

        def done(pod: Object) -> bool:
            on_change(pod)
            state = lookup(pod, "status", "resizeState", default={})
            if state.get("generation") != generation:
                return False
            if state.get("phase") in _NEVER:
                raise BrokenPromiseError(f"pod {name} was not resized: {state.get('message')}")
            return bool(state.get("phase") == ResizePhase.DONE)

        pod = await self._follow(asked, done, f"pod {name} was not resized", seconds)
        return Resized(pod, self._clock.monotonic() - began)

    async def _follow(
        self, pod: Object, done: Callable[[Object], bool], otherwise: str, seconds: float
    ) -> Object:
        """The pod, when ``done`` says so; in time, or with a sentence that says how far it was."""
        selection = Selection(_NAMESPACE, fields=f"metadata.name={name_of(pod)}")
        stream = self._client.watch(PODS, selection, resource_version=version_of(pod))
        try:
            async with asyncio.timeout(seconds), aclosing(stream):
                async for event in stream:
                    pod = event.object
                    if done(pod):
                        return pod
        except TimeoutError:
            raise BrokenPromiseError(f"{otherwise} after {seconds:.0f} s{_words_of(pod)}") from None
        raise BrokenPromiseError(f"{otherwise}: the API server ended the watch")


def check_settled(pod: Object) -> None:
    """Never restarted, and desired, allocated and actual sizes are one."""
    restarts = sum(int(status.get("restartCount") or 0) for status in statuses_of(pod))
    promise(restarts == 0, f"pod {name_of(pod)} was restarted")
    sizes = pod_sizes(pod)
    promise(
        sizes.desired == sizes.actual and sizes.desired.requests == sizes.allocated,
        f"pod {name_of(pod)} shows desired {format_size(sizes.desired)}, allocated"
        f" {format_requests(sizes.allocated)} and actual {format_size(sizes.actual)}",
    )


def _is_ready(pod: Object) -> bool:
    return is_true(pod, "Ready")


def _words_of(pod: Object) -> str:
    """What the pod itself says about it."""
    waiting = (
        str(lookup(status, "state", "waiting", "message", default=""))
        for status in statuses_of(pod)
    )
    said = (str(lookup(pod, "status", "resizeState", "message", default="")), *waiting)
    return "".join(f": {words}" for words in said if words)
