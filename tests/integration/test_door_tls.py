"""The door over real TLS on SQLite: refusals, watches, restarts, and stopping in time."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from livesize.apiserver.auth.identities import Role
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.store.sqlite import SqliteStore

pytestmark = pytest.mark.door

POD = {
    "metadata": {"name": "web"},
    "spec": {
        "containers": [
            {"name": "app", "image": "busybox:1", "resources": {"requests": {"cpu": "100m"}}}
        ]
    },
}
PODS = "/api/v1/namespaces/default/pods"


class Door:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token, entry = issue_token("admin", Role.ADMIN)
        write_tokens(folder / "tokens", [entry])
        self.config = ApiServerConfig(folder / "tls", folder / "tokens", port=0)

    async def open(self) -> ApiServer:
        self.store = await SqliteStore.open(self.folder / "store.db", epoch=1)
        return ApiServer(self.config, self.store)

    def session(self, server: ApiServer, *, token: str | None = None) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=str(server.ca_path))
        return aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {token or self.token}"},
            connector=aiohttp.TCPConnector(ssl=context),
        )


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for line in answer.content:
        yield json.loads(line)


async def test_what_was_answered_is_there_after_a_restart(door: Door) -> None:
    server = await door.open()
    async with (
        server.running(),
        door.session(server) as session,
        session.post(PODS, json=POD) as answer,
    ):
        assert answer.status == 201
        made = await answer.json()
    await door.store.close()
    again = await door.open()
    async with (
        again.running(),
        door.session(again) as session,
        session.get(f"{PODS}/web") as answer,
    ):
        assert await answer.json() == made
    await door.store.close()


async def test_a_watch_sees_changes_and_ends_when_the_server_stops(door: Door) -> None:
    server = await door.open()
    loop = asyncio.get_running_loop()
    async with server.running():
        session = door.session(server)
        watch = await session.get(PODS, params={"watch": "true"})
        assert watch.status == 200
        events = lines(watch)
        async with session.post(PODS, json=POD) as answer:
            assert answer.status == 201
        first = await anext(events)
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "web")
        began = loop.time()
    assert loop.time() - began < 2.5
    assert [event async for event in events] == []
    await session.close()
    await door.store.close()


async def test_a_watcher_that_leaves_is_forgotten(door: Door) -> None:
    server = await door.open()
    async with server.running(), door.session(server) as session:
        before = server.service.cache.watcher_count()
        watch = await session.get(PODS, params={"watch": "true"})
        assert server.service.cache.watcher_count() == before + 1
        watch.close()
        async with asyncio.timeout(5):
            while server.service.cache.watcher_count() > before:
                await asyncio.sleep(0.01)
    await door.store.close()


async def test_strangers_stay_outside(door: Door) -> None:
    server = await door.open()
    async with server.running():
        async with door.session(server, token="guess") as session:
            async with session.get(PODS) as answer:
                assert answer.status == 401
            async with session.get("/readyz") as answer:
                assert answer.status == 200
        async with aiohttp.ClientSession() as unbelieving:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await unbelieving.get(server.url + "/readyz")
    await door.store.close()
