"""Starts pods, and resizes one or many of them, from the PATCH to what a watch tells of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec
import orjson

from bench.following import Follower, Holds, has_come_to, is_ready
from bench.pods import PODS_PATH, STRATEGIC, resize_patch
from bench.servers import System
from bench.wire import Address, Wire, request_bytes
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, generation_of
from livesize.client.http import HttpClient
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import SystemClock

WAIT_SECONDS = 60.0
STARTED_TOGETHER = 8


@asynccontextmanager
async def operating(system: System, connections: int = 1) -> AsyncIterator[Operator]:
    """Speaks to ``system`` as its admin, over so many connections, and follows all pods."""
    connection = connection_from(system.directory.kubeconfig)
    client = await HttpClient.open(connection, SystemClock())
    address = Address(int(client.server.rpartition(":")[2]), system.directory.tls / "ca.crt")
    wires = [await Wire.open(address) for _ in range(connections)]
    follower = Follower(client)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(follower.run())
            yield Operator(client, address, wires, connection.token, follower)
            running.cancel()
    finally:
        for wire in wires:
            wire.close()
        await client.close()


class Operator(msgspec.Struct, frozen=True):
    client: HttpClient
    address: Address
    wires: list[Wire]
    token: str
    follower: Follower

    async def start_pods(self, pods: Iterable[Object]) -> list[Object]:
        """Make them, a few at a time; returned when all are ready."""
        wanted = list(pods)
        for first in range(0, len(wanted), STARTED_TOGETHER):
            some = wanted[first : first + STARTED_TOGETHER]
            async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
                for pod in some:
                    tasks.create_task(self._start(pod))
        return [self.follower.pod(pod["metadata"]["name"]) for pod in wanted]

    async def _start(self, pod: Object) -> None:
        made = await self.client.create(PODS, pod)
        await self.follower.until(made["metadata"]["name"], is_ready)

    def request(self, name: str, size: Object) -> bytes:
        path = f"{PODS_PATH}/{name}/resize"
        return request_bytes("PATCH", path, self.token, resize_patch(size), STRATEGIC)

    async def reopen(self) -> None:
        """Starting pods takes longer than the server keeps idle connections."""
        for number, wire in enumerate(self.wires):
            if wire.is_closed:
                self.wires[number] = await Wire.open(self.address)

    async def ask(self, name: str, size: Object, *, wire: int = 0) -> int:
        """PATCH; the generation that was asked."""
        await self.reopen()
        answer = await self.wires[wire].ask(self.request(name, size))
        return generation_of(orjson.loads(answer))

    async def resize(self, name: str, size: Object) -> float:
        """PATCH, and wait until the watch tells that it is done; the moment it did."""
        return await self.told(name, has_come_to("Done", await self.ask(name, size)))

    async def told(self, name: str, holds: Holds) -> float:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.follower.until(name, holds)

    async def resize_all(self, names: Sequence[str], size: Object) -> float:
        """All at once, over all connections; seconds until the last of them is told to be done."""
        await self.reopen()
        requests = [(name, self.request(name, size)) for name in names]
        shares = [requests[number :: len(self.wires)] for number in range(len(self.wires))]
        began = time.perf_counter()
        async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
            sending = [
                tasks.create_task(self._resize_some(wire, share))
                for wire, share in zip(self.wires, shares, strict=True)
            ]
        return max(task.result() for task in sending) - began

    async def _resize_some(self, wire: Wire, requests: list[tuple[str, bytes]]) -> float:
        told = []
        for name, request in requests:
            generation = generation_of(orjson.loads(await wire.ask(request)))
            told.append(self.follower.until(name, has_come_to("Done", generation)))
        return max([await moment for moment in told])
