"""One watch of all pods, as a client has it, and when it told what was waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeAlias, cast

from bench.pods import NAMESPACE
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, lookup
from livesize.client.http import HttpClient

Holds: TypeAlias = Callable[[Object], bool]


class Follower:
    """``run`` in a task of its own; then ``until`` for each thing that is waited for."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._newest: dict[str, Object] = {}
        self._waiting: dict[str, list[tuple[Holds, asyncio.Future[float]]]] = {}

    async def run(self) -> None:
        selection = Selection(NAMESPACE)
        listed = await self._client.list(PODS, selection)
        for pod in listed.items:
            self._take(pod)
        stream = self._client.watch(PODS, selection, resource_version=listed.resource_version)
        async with aclosing(cast("Any", stream)):
            async for event in stream:
                if event.type is not WatchEventType.BOOKMARK:
                    self._take(event.object)

    def pod(self, name: str) -> Object:
        """As last told."""
        return self._newest[name]

    def until(self, name: str, holds: Holds) -> asyncio.Future[float]:
        """A future of the moment (``time.perf_counter``) at which the watch told so; at once
        where that is how it was told last."""
        future = asyncio.get_running_loop().create_future()
        known = self._newest.get(name)
        if known is not None and holds(known):
            future.set_result(time.perf_counter())
        else:
            self._waiting.setdefault(name, []).append((holds, future))
        return future

    def _take(self, pod: Object) -> None:
        now, name = time.perf_counter(), pod["metadata"]["name"]
        self._newest[name] = pod
        still = []
        for holds, future in self._waiting.pop(name, []):
            if not holds(pod):
                still.append((holds, future))
            elif not future.done():
                future.set_result(now)
        if still:
            self._waiting[name] = still


def is_ready(pod: Object) -> bool:
    conditions = lookup(pod, "status", "conditions", default=[])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def has_come_to(phase: str, generation: int) -> Holds:
    """The resize asked with that generation, or a newer one, is in that phase."""

    def holds(pod: Object) -> bool:
        state = lookup(pod, "status", "resizeState", default={})
        return bool(state.get("phase") == phase and state["generation"] >= generation)

    return holds
