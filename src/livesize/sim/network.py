"""The network between components and the API server: latency, lost requests, lost answers, cuts.

``SimClient`` is the Client of one component. Each request runs as a task of the API server, so that
a component that is killed does not take the server's work with it. The network draws every fault
from the seed; a quiet network has latency and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from random import Random
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object, name_of, version_of
from livesize.api.patch import PatchType
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.request_types import WatchOptions
from livesize.apiserver.service import ApiService
from livesize.apiserver.watchers import Watcher
from livesize.machinery.clock import Clock
from livesize.sim.trace import Trace

_UNCOUNTED = ("Event", "Lease")

T = TypeVar("T")


class NetworkFaults(msgspec.Struct, frozen=True):
    """Probabilities of one request."""

    lost_requests: float = 0.01  # before the server has read it
    lost_answers: float = 0.01  # of a write that happened
    latency_seconds: float = 0.002  # of one way, on average
    stall_probability: float = 0.002  # one way takes much longer
    stall_seconds: float = 5.0
    delays_watches: bool = False
    """Each watch is behind the store by a way of its own."""


QUIET = NetworkFaults(lost_requests=0.0, lost_answers=0.0, stall_probability=0.0)


class Acknowledgement(msgspec.Struct, frozen=True):
    """A write that a component was told has happened."""

    resource: Resource
    namespace: str
    name: str
    version: str
    is_delete: bool


class Server(Protocol):
    """The API server, as long as one runs."""

    def service(self) -> ApiService:
        """Raises ConnectionError while none runs."""
        ...

    async def serve(self, work: Awaitable[T]) -> T:
        """Run ``work`` as a task of the server. ConnectionError: the server died meanwhile."""
        ...


class Network:
    """``faults`` may change while it runs. ``acknowledged`` takes every write that succeeded."""

    def __init__(
        self, server: Server, clock: Clock, random: Random, trace: Trace, faults: NetworkFaults
    ) -> None:
        self.server = server
        self.trace = trace
        self.faults = faults
        self.acknowledged: Callable[[Acknowledgement], None] = lambda _: None
        self.counts = {"requests": 0, "lost requests": 0, "lost answers": 0, "cut watches": 0}
        self._clock = clock
        self._random = random
        self._clients: dict[str, SimClient] = {}

    def connect(self, name: str, identity: Identity) -> SimClient:
        """A new connection; the one before of that name is gone."""
        client = self._clients[name] = SimClient(self, name, identity)
        return client

    def cut_watches(self) -> None:
        """Of one component, drawn from the seed."""
        names = [name for name, client in self._clients.items() if client.watches]
        if names:
            name = self._random.choice(names)
            self.counts["cut watches"] += self._clients[name].cut()
            self.trace.add(name, "watches cut")

    async def travel(self) -> None:
        faults = self.faults
        seconds = self._random.expovariate(1 / faults.latency_seconds)
        if faults.stall_probability and self._random.random() < faults.stall_probability:
            seconds += self._random.uniform(0, faults.stall_seconds)
        await self._clock.sleep(seconds)

    def loses(self, probability: float, what: str) -> bool:
        if not probability or self._random.random() >= probability:
            return False
        self.counts[what] += 1
        return True


class SimClient:
    """Satisfies livesize.client.interface.Client. After ``kill`` no call has any effect."""

    def __init__(self, network: Network, name: str, identity: Identity) -> None:
        self._network = network
        self._name = name
        self._identity = identity
        self._is_dead = False
        self._writes_left: int | None = None
        self._dies_after = False
        self.died = asyncio.Event()
        """At a write, as ``die_at`` has said."""
        self.watches: dict[Watcher, None] = {}

    def die_at(self, writes: int, *, after: bool) -> None:
        """The process dies at the write that is so many away, before it or after it was done."""
        self._writes_left, self._dies_after = writes, after

    def kill(self) -> None:
        """The process ends: its connections are gone, and nothing it still says is heard."""
        self._is_dead = True
        self.cut()

    def cut(self) -> int:
        """End every watch; the client finds its connection lost."""
        watches, self.watches = self.watches, {}
        for watcher in watches:
            watcher.close()
        return len(watches)

    async def get(self, resource: Resource, name: str, *parts: Any, **more: Any) -> Object:
        return await self._ask(lambda client: client.get(resource, name, *parts, **more))

    async def list(
        self, resource: Resource, selection: Selection = EVERYTHING, **more: Any
    ) -> ObjectList:
        return await self._ask(lambda client: client.list(resource, selection, **more))

    async def watch(
        self, resource: Resource, selection: Selection = EVERYTHING, **more: Any
    ) -> AsyncGenerator[WatchEvent, None]:
        await self._send()
        service = _WatchRegister(self._network.server.service(), self.watches)
        client = DirectClient(service, self._identity)  # type: ignore[arg-type]  # by its methods
        stream = client.watch(resource, selection, **more)
        async with aclosing(stream):
            async for event in stream:
                if self._network.faults.delays_watches:
                    await self._network.travel()
                yield event
        if service.watcher is not None and service.watcher not in self.watches:
            raise ConnectionError("the connection was cut")
        self.watches.pop(service.watcher, None)  # type: ignore[arg-type]  # it was opened

    async def create(self, resource: Resource, obj: Object, *parts: Any, **more: Any) -> Object:
        what = f"create {resource.plural}"
        return await self._write(
            what, resource, lambda client: client.create(resource, obj, *parts, **more)
        )

    async def update(self, resource: Resource, obj: Object, **more: Any) -> Object:
        what = f"update {resource.plural}/{name_of(obj)}{_part(more)}"
        return await self._write(
            what, resource, lambda client: client.update(resource, obj, **more)
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        patch_type: PatchType = PatchType.MERGE,
        **more: Any,
    ) -> Object:
        what = f"patch {resource.plural}/{name}{_part(more)}"
        return await self._write(
            what,
            resource,
            lambda client: client.patch(resource, name, patch, patch_type=patch_type, **more),
        )

    async def delete(self, resource: Resource, name: str, *parts: Any, **more: Any) -> Object:
        what = f"delete {resource.plural}/{name}"
        return await self._write(
            what,
            resource,
            lambda client: client.delete(resource, name, *parts, **more),
            is_delete=True,
        )

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        what = f"post {resource.plural}/{name}/{subresource}"
        return await self._write(
            what,
            resource,
            lambda client: client.post(resource, name, namespace, subresource, body),
        )

    async def close(self) -> None:
        self.kill()

    async def _send(self) -> None:
        network = self._network
        if self._is_dead:
            raise ConnectionError("this process is dead")
        network.counts["requests"] += 1
        await network.travel()
        if network.loses(network.faults.lost_requests, "lost requests"):
            raise ConnectionError("the request was lost")

    async def _ask(self, work: Callable[[DirectClient], Awaitable[T]]) -> T:
        await self._send()
        client = DirectClient(self._network.server.service(), self._identity)
        found = await self._network.server.serve(work(client))
        await self._network.travel()
        return found

    async def _write(
        self,
        what: str,
        resource: Resource,
        work: Callable[[DirectClient], Awaitable[Object]],
        *,
        is_delete: bool = False,
    ) -> Object:
        network = self._network
        dies = self._is_last(resource)
        if dies and not self._dies_after:
            self._die()
        try:
            written = await self._ask(work)
        except StatusError as refusal:
            network.trace.add(self._name, f"{what} {refusal.code}")
            raise
        except ConnectionError:
            network.trace.add(self._name, f"{what} lost")
            raise
        metadata = written.get("metadata") or {}
        version = version_of(written)
        if network.loses(network.faults.lost_answers, "lost answers"):
            network.trace.add(self._name, f"{what} unanswered", version)
            raise ConnectionError("the answer was lost")
        if dies:
            self._die()
        if self._is_dead:
            raise ConnectionError("this process is dead")
        network.trace.add(self._name, f"{what} {metadata.get('name', '-')}", version)
        network.acknowledged(
            Acknowledgement(
                resource,
                metadata.get("namespace", ""),
                metadata.get("name", ""),
                version,
                is_delete,
            )
        )
        return written

    def _is_last(self, resource: Resource) -> bool:
        """What is written of events and leases does not count."""
        if self._writes_left is None or resource.kind in _UNCOUNTED:
            return False
        self._writes_left -= 1
        return self._writes_left == 0

    def _die(self) -> NoReturn:
        self.kill()
        self.died.set()
        raise ConnectionError("this process is dead")


class _WatchRegister:
    """A Service that remembers the watch it opens, so that the network can cut it."""

    def __init__(self, service: ApiService, watches: dict[Watcher, None]) -> None:
        self._service = service
        self._watches = watches
        self.cache = service.cache
        self.watcher: Watcher | None = None

    async def watch(self, identity: Identity, resource: Resource, options: WatchOptions) -> Watcher:
        self.watcher = await self._service.watch(identity, resource, options)
        self._watches[self.watcher] = None
        return self.watcher


def _part(more: dict[str, Any]) -> str:
    subresource = more.get("subresource")
    return f"/{subresource}" if subresource else ""
