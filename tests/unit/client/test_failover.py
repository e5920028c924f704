"""Several API servers: one that cannot be reached is left for the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from etcd_servers import free_ports
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.client import addresses as addresses_module
from livesize.client.addresses import Addresses
from livesize.client.http import ConnectionConfig, HttpClient, ServerUnreachableError
from livesize.client.informer import Informer
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context


class Server:
    """Lists one pod, holds watches open; can be ended and begun again at the same port."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.status = 200
        self.cut = False
        self.hangs = False
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "sendInitialEvents" in request.query and not (self.cut or self.hangs):
            return web.Response(status=422)  # it is an older server, which lists in pages
        self.asked.append(f"{request.method} {request.query_string}".strip())
        if self.cut:
            assert request.transport is not None
            request.transport.abort()
        if self.hangs:
            await asyncio.Event().wait()
        if "watch=true" in request.query_string:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        pod = {"metadata": {"name": self.name, "uid": "1", "resourceVersion": "7"}}
        listing = {"metadata": {"resourceVersion": "7"}, "items": [pod]}
        return web.json_response(listing, status=self.status)


@asynccontextmanager
async def speaking(*servers: Server) -> AsyncIterator[HttpClient]:
    config: Any = {"server": servers[0].url, "others": tuple(one.url for one in servers[1:])}
    client = await HttpClient.open(ConnectionConfig(**config), SystemClock())
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    made = [Server(name, port) for name, port in zip("abc", free_ports(3), strict=True)]
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.stop()


async def name_from(client: HttpClient) -> str:
    listing = await client.list(PODS)
    return str(listing.items[0]["metadata"]["name"])


async def test_a_client_stays_with_the_one_that_answers(servers: list[Server]) -> None:
    async with speaking(*servers) as client:
        assert [await name_from(client) for _ in range(5)] == ["a"] * 5


async def test_a_server_that_is_gone_is_left_within_the_same_request(
    servers: list[Server],
) -> None:
    async with speaking(*servers) as client:
        await name_from(client)
        await servers[0].stop()
        await servers[1].stop()
        assert await name_from(client) == "c"
        await servers[2].stop()
        await servers[0].start()
        assert await name_from(client) == "a"


async def test_what_was_sent_is_not_sent_to_another(servers: list[Server]) -> None:
    """It may have happened; only who asked can know whether to ask again."""
    servers[0].cut = True
    async with speaking(*servers) as client:
        with pytest.raises(ServerUnreachableError):
            await client.create(PODS, {"metadata": {}}, "default")
        assert servers[1].asked == []
        assert await name_from(client) == "b"


async def test_a_refusal_is_an_answer(servers: list[Server]) -> None:
    servers[0].status = 503
    async with speaking(*servers) as client:
        with pytest.raises(StatusError):
            await client.list(PODS)
        assert client.server == servers[0].url


async def test_when_nobody_answers_it_says_so(servers: list[Server]) -> None:
    for one in servers:
        await one.stop()
    async with speaking(*servers) as client:
        with pytest.raises(ServerUnreachableError):
            await client.list(PODS)


async def test_an_informer_goes_on_with_the_next(servers: list[Server]) -> None:
    async with speaking(*servers) as client:
        informer = Informer(
            client,
            PODS,
            context=system_context(),
            on_change=lambda _: None,
        )
        task = asyncio.create_task(informer.run())
        async with asyncio.timeout(5):
            await informer.synced.wait()
            while len(servers[0].asked) < 2:
                await asyncio.sleep(0.01)
            await servers[0].stop()
            while not servers[1].asked:
                await asyncio.sleep(0.01)
        task.cancel()
        assert "resourceVersion=7" in servers[1].asked[0], "from where it was"


async def test_one_that_hangs_is_left_by_who_gives_up_waiting_and_its_watches_are_cut(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses_module, "PATIENCE_SECONDS", 0.1)
    async with speaking(*servers) as client:
        informer = Informer(client, PODS, context=system_context(), on_change=lambda _: None)
        task = asyncio.create_task(informer.run())
        async with asyncio.timeout(5):
            while len(servers[0].asked) < 2:
                await asyncio.sleep(0.01)
            servers[0].hangs = True
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.list(PODS)
            assert client.server == servers[0].url, "it was not given time to answer"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.list(PODS)
            assert await name_from(client) == "b"
            while not any("watch=true" in asked for asked in servers[1].asked):
                await asyncio.sleep(0.01)
        task.cancel()


async def test_a_watch_that_is_cancelled_leaves_nobody(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses_module, "PATIENCE_SECONDS", 0.0)
    async with speaking(*servers) as client:
        informer = Informer(client, PODS, context=system_context(), on_change=lambda _: None)
        task = asyncio.create_task(informer.run())
        async with asyncio.timeout(5):
            while len(servers[0].asked) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert client.server == servers[0].url


def test_of_many_that_find_out_at_once_one_goes_on() -> None:
    addresses = Addresses(["a", "b", "c"])
    for _ in range(5):
        addresses.leave("a")
    assert addresses.current == "b"
