"""Design 6: "what was answered 2xx survives kill -9 of any process". Asked of the API server.

Clients write and one watches while the control plane is killed again and again; its supervisor
starts it anew. What was answered 201 is there, at its version, and the watch, which goes on from
the version it had, has seen each of them once.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest

from etcd_servers import cluster, find_etcd
from livesize.client.kubeconfig import connection_from
from system.up import Up, running_up

pytestmark = pytest.mark.apiserver

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
WRITERS = 8
MANY = 5  # in a row: who dies again and again is started again later and later
AWAY = (aiohttp.ClientError, TimeoutError, OSError)


class Load:
    """What clients were told: name to version, by the answer and by the watch."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.answered: dict[str, int] = {}
        self.watched: list[tuple[str, int]] = []
        self.goes_on = True

    async def write(self, writer: int) -> None:
        number = 0
        while self.goes_on:
            name = f"lease-{writer}-{number}"
            number += 1
            body = {"metadata": {"name": name}, "spec": {"holderIdentity": "me"}}
            try:
                async with self.session.post(LEASES, json=body) as answer:
                    said = await answer.json()
            except AWAY:
                await asyncio.sleep(0.05)
                continue
            if answer.status == 201:
                self.answered[name] = int(said["metadata"]["resourceVersion"])
            await asyncio.sleep(0.01)

    async def watch(self, version: int) -> None:
        while True:
            try:
                async for event in self._events(version):
                    assert event["type"] == "ADDED", event
                    metadata = event["object"]["metadata"]
                    version = int(metadata["resourceVersion"])
                    self.watched.append((metadata["name"], version))
            except AWAY:
                await asyncio.sleep(0.02)

    async def _events(self, version: int) -> AsyncIterator[Any]:
        query = {"watch": "1", "resourceVersion": str(version)}
        async with self.session.get(LEASES, params=query) as answer:
            assert answer.status in (200, 503), await answer.text()
            async for line in answer.content:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    async def versions(self) -> tuple[dict[str, int], int]:
        async with self.session.get(LEASES) as answer:
            said = await answer.json()
        items = [item["metadata"] for item in said["items"]]
        found = {item["name"]: int(item["resourceVersion"]) for item in items}
        return found, int(said["metadata"]["resourceVersion"])


async def survive(up: Up, kills: int, seed: int) -> None:
    source = random.Random(seed)
    known = connection_from(up.kubeconfig)
    context = ssl.create_default_context(cadata=known.ca_pem.decode())
    async with aiohttp.ClientSession(
        known.server,
        headers={"Authorization": f"Bearer {known.token}"},
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=20),
    ) as session:
        load = Load(session)
        _, begin = await load.versions()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(load.watch(begin))]
            tasks += [group.create_task(load.write(writer)) for writer in range(WRITERS)]
            for _ in range(kills):
                await until_more(load, source.randint(1, 60))
                os.kill(up.control_plane_pid(), signal.SIGKILL)
            await until_more(load, 20)
            load.goes_on = False
            await asyncio.wait(tasks[1:])  # what was sent may be stored after it was given up
            found, newest = await load.versions()
            assert newest >= max(load.answered.values())
            assert load.answered.items() <= found.items()
            ours = {name: at for name, at in found.items() if name.startswith("lease-")}
            async with asyncio.timeout(20):
                while len(load.watched) < len(ours):
                    await asyncio.sleep(0.05)
            tasks[0].cancel()
        assert sorted(load.watched) == sorted(ours.items())
        assert load.watched == sorted(load.watched, key=lambda one: one[1])
    await asyncio.sleep(0.1)  # connections with TLS take a moment to close


async def until_more(load: Load, count: int) -> None:
    goal = len(load.answered) + count
    async with asyncio.timeout(60):
        while len(load.answered) < goal:
            await asyncio.sleep(0.01)


async def test_the_api_server_keeps_what_it_answered_through_kills(fake_up: Up) -> None:
    await survive(fake_up, kills=2, seed=1)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2, 12))
async def test_the_api_server_keeps_what_it_answered_through_many_kills(
    tmp_path: Path, seed: int
) -> None:
    with running_up(tmp_path / "data", runtime="fake") as up:
        await survive(up, kills=MANY, seed=seed)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(12, 14))
async def test_the_api_server_keeps_what_it_answered_on_etcd_through_many_kills(
    tmp_path: Path, seed: int, not_run: Callable[[str], NoReturn]
) -> None:
    if find_etcd() is None:
        not_run("needs etcd")
    with cluster(tmp_path / "etcd") as [member]:
        up = Up(tmp_path / "data", runtime="fake")
        try:
            up.start("--store", "etcd", "--etcd-endpoints", member.endpoint)
            await survive(up, kills=MANY, seed=seed)
        finally:
            up.end()
