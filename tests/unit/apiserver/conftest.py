"""The API server on a memory store, and the wire without sockets: app(scope, receive, send)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.http.app import App
from livesize.apiserver.keys import key_of
from livesize.apiserver.namespaces import run_namespaces
from livesize.apiserver.request_types import Target
from livesize.apiserver.streaming.endpoints import Endpoints
from livesize.apiserver.streaming.streams import NodeStreams
from livesize.machinery.context import Context
from livesize.sim.loop import VirtualClock
from livesize.store.memory import MemoryStore
from memory_service import MemoryService
from virtual_time import CLOCK

ADMIN = Identity("root", Role.ADMIN)
IDENTITIES = {
    "admin": ADMIN,
    "editor": Identity("ed", Role.EDITOR),
    "viewer": Identity("vi", Role.VIEWER),
    "team": Identity("tim", Role.EDITOR, "", ("default",)),
    "scheduler": Identity("sched", Role.SCHEDULER),
    "controller": Identity("ctl", Role.CONTROLLER),
    "n1": node_identity("n1"),
    "n2": node_identity("n2"),
}


class CountingIds:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uid(self) -> str:
        return f"uid-{next(self._numbers)}"

    def suffix(self) -> str:
        return f"x{next(self._numbers):04d}"


class TokenNames:
    def identify(self, token: str, now: float) -> Identity | None:
        return IDENTITIES.get(token)


class WireAnswer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Stream:
    """An open watch: read events with ``next``, hang up with ``hang_up``."""

    def __init__(self) -> None:
        self.status = 0
        self.began = asyncio.Event()
        self.ended = False
        self._lines: asyncio.Queue[Any] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.began.set()
            return
        for line in message.get("body", b"").splitlines():
            self._lines.put_nowait(orjson.loads(line))
        if not message.get("more_body", False):
            self.ended = True
            self._lines.put_nowait(None)

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self._lines.get()

    async def rest(self) -> list[Any]:
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events

    async def hang_up(self) -> None:
        self.gone.set()
        assert self.task is not None
        async with asyncio.timeout(5):
            await asyncio.wait([self.task])


class Rig(MemoryService):
    """Everything of the API server but sockets."""

    def __init__(self, store: MemoryStore | None = None, **cache_settings: Any) -> None:
        self.clock = CLOCK
        self.ids = CountingIds()
        self.context = Context(self.clock, random.Random(1), self.ids)
        super().__init__(self.context, store, **cache_settings)
        self.ready = True
        self.app = App(
            self.service,
            TokenNames(),
            self.clock,
            version="test",
            is_ready=lambda: self.ready,
            streams=NodeStreams(self.cache, Endpoints(Path("no-keys"), self.clock), self.clock),
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await super().start()
        self._tasks.append(asyncio.create_task(run_namespaces(self.service, clock=self.clock)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().stop()

    def _scope(self, method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        return {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": urlencode(query).encode(),
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        }

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "admin",
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> WireAnswer:
        sent = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        all_headers = {"accept": accept, **(headers or {})}
        if sent:
            all_headers["content-type"] = content_type
        if token:
            all_headers["authorization"] = f"Bearer {token}"
        parts: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            parts.append(message)

        await self.app(self._scope(method, path, query, all_headers), receive, send)
        start = parts[0]
        answer_headers = {key.decode(): value.decode() for key, value in start["headers"]}
        got = b"".join(part.get("body", b"") for part in parts[1:])
        return WireAnswer(start["status"], answer_headers, got)

    async def get(self, path: str, **more: Any) -> WireAnswer:
        return await self.request("GET", path, **more)

    async def patch(self, path: str, patch: Any, kind: str = "merge", **more: Any) -> WireAnswer:
        types = {
            "merge": PatchType.MERGE,
            "strategic": PatchType.STRATEGIC,
            "json": PatchType.JSON,
            "apply": PatchType.APPLY,
        }
        return await self.request("PATCH", path, patch, content_type=types[kind].value, **more)

    async def watch(
        self, path: str, *, token: str = "admin", accept: str = "application/json", **query: str
    ) -> Stream:
        stream = Stream()
        headers = {"accept": accept, "authorization": f"Bearer {token}"}
        first = True

        async def receive() -> Any:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await stream.gone.wait()
            return {"type": "http.disconnect"}

        scope = self._scope("GET", path, {"watch": "true", **query}, headers)
        stream.task = asyncio.create_task(self.app(scope, receive, stream.send))
        self._tasks.append(stream.task)
        async with asyncio.timeout(5):
            await stream.began.wait()
        return stream

    async def add_node(self, name: str = "n1") -> Object:
        node = {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
        return (await self.service.create(ADMIN, NODES, "", node)).served

    async def add_pod(
        self, name: str = "web", *, node: str = "", with_node: bool = True, **more: Any
    ) -> Object:
        """A pod, bound where a node is named, which is made with it unless it is there."""
        record = await self.service.create(ADMIN, PODS, "default", pod(name, **more))
        if node and with_node and self.cache.get(NODES, key_of(NODES, "", node)) is None:
            await self.add_node(node)
        if node:
            target = Target(PODS, "default", name, "binding")
            record = await self.service.post(ADMIN, target, {"target": {"name": node}})
        return record.served


def pod(name: str = "web", *, requests: Any = None, limits: Any = None, **spec: Any) -> Object:
    resources: Object = {"requests": requests or {"cpu": "500m", "memory": "64Mi"}}
    if limits is not False:
        resources["limits"] = limits or {"cpu": "1", "memory": "64Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [{"name": "app", "image": "busybox:1", "resources": resources}],
            **spec,
        },
    }


@pytest.fixture
async def rig(virtual_clock: VirtualClock) -> AsyncIterator[Rig]:
    made = Rig()
    await made.start()
    yield made
    if not made.cache.stopped:
        await made.check_nothing_was_changed_in_place()
    await made.stop()
