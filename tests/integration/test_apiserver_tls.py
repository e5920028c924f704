"""The API server over real TLS on SQLite, on either web server: refusals, watches, restarts,
HTTP/2, and stopping in time."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from livesize.api.roles import Role
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.apiserver.web import HttpServer
from livesize.machinery.context import system_context
from livesize.store.sqlite import SqliteStore

pytestmark = pytest.mark.apiserver

POD = {
    "metadata": {"name": "web"},
    "spec": {
        "containers": [
            {"name": "app", "image": "busybox:1", "resources": {"requests": {"cpu": "100m"}}}
        ]
    },
}
PODS = "/api/v1/namespaces/default/pods"


class ServerFiles:
    def __init__(self, folder: Path, http: HttpServer) -> None:
        self.folder = folder
        self.token, entry = issue_token("admin", Role.ADMIN)
        write_tokens(folder / "tokens", [entry])
        self.config = ApiServerConfig(folder / "tls", folder / "tokens", port=0, http=http)

    async def open(self) -> ApiServer:
        self.store = await SqliteStore.open(self.folder / "store.db", epoch=1)
        return ApiServer(self.config, self.store, context=system_context())

    def session(self, server: ApiServer, *, token: str | None = None) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=str(server.ca_path))
        return aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {token or self.token}"},
            connector=aiohttp.TCPConnector(ssl=context),
        )


@pytest.fixture(params=list(HttpServer))
def files(tmp_path: Path, request: pytest.FixtureRequest) -> ServerFiles:
    return ServerFiles(tmp_path, request.param)


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for line in answer.content:
        yield json.loads(line)


async def test_what_was_answered_is_there_after_a_restart(files: ServerFiles) -> None:
    server = await files.open()
    async with (
        server.running(),
        files.session(server) as session,
        session.post(PODS, json=POD) as answer,
    ):
        assert answer.status == 201
        made = await answer.json()
    await files.store.close()
    again = await files.open()
    async with (
        again.running(),
        files.session(again) as session,
        session.get(f"{PODS}/web") as answer,
    ):
        assert await answer.json() == made
    await files.store.close()


async def test_a_watch_sees_changes_and_ends_when_the_server_stops(files: ServerFiles) -> None:
    server = await files.open()
    loop = asyncio.get_running_loop()
    async with server.running():
        session = files.session(server)
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
    await files.store.close()


async def test_a_watcher_that_leaves_is_forgotten(files: ServerFiles) -> None:
    server = await files.open()
    async with server.running(), files.session(server) as session:
        before = server.service.cache.watcher_count()
        watch = await session.get(PODS, params={"watch": "true"})
        assert server.service.cache.watcher_count() == before + 1
        watch.close()
        async with asyncio.timeout(5):
            while server.service.cache.watcher_count() > before:
                await asyncio.sleep(0.01)
    await files.store.close()


async def test_who_comes_and_says_nothing_is_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.apiserver.http.heads.HEAD_SECONDS", 0.5)
    files = ServerFiles(tmp_path, HttpServer.UVICORN)
    server = await files.open()
    async with server.running():
        context = ssl.create_default_context(cafile=str(server.ca_path))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        async with files.session(server) as session, session.get(PODS) as answer:
            assert answer.status == 200
    await files.store.close()


async def test_strangers_stay_outside(files: ServerFiles) -> None:
    server = await files.open()
    async with server.running():
        async with files.session(server, token="guess") as session:
            async with session.get(PODS) as answer:
                assert answer.status == 401
            async with session.get("/readyz") as answer:
                assert answer.status == 200
        async with aiohttp.ClientSession() as unbelieving:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await unbelieving.get(server.url + "/readyz")
    await files.store.close()


async def test_http_2_where_granian_serves(tmp_path: Path) -> None:
    """One connection, many streams: a watch goes on while other requests are answered."""
    files = ServerFiles(tmp_path, HttpServer.GRANIAN)
    server = await files.open()
    curl = (
        *("curl", "--silent", "--http2", "--cacert", str(server.ca_path)),
        *("--header", f"Authorization: Bearer {files.token}", "--write-out", "\n%{http_version}"),
    )
    async with server.running():
        urls = (f"{server.url}{PODS}", f"{server.url}/readyz?verbose")
        process = await asyncio.create_subprocess_exec(*curl, *urls, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert said.decode().splitlines()[1].startswith("2"), "the version, after the list"
        assert b"readyz check passed" in said
        begun = await asyncio.create_subprocess_exec(
            *curl, "--no-buffer", f"{server.url}{PODS}?watch=true", stdout=asyncio.subprocess.PIPE
        )
        assert begun.stdout is not None
        async with files.session(server) as session, session.post(PODS, json=POD) as answer:
            assert answer.status == 201
        assert json.loads(await begun.stdout.readline())["type"] == "ADDED"
        before = server.service.cache.watcher_count()
        begun.terminate()
        await begun.wait()
        async with asyncio.timeout(5):
            while server.service.cache.watcher_count() >= before:
                await asyncio.sleep(0.01)
    await files.store.close()


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(files: ServerFiles) -> None:
    server = await files.open()
    async with server.running(), files.session(server) as session:
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                PODS, data=io.BytesIO(b"x" * 4_000_000), headers=headers
            ) as answer:
                assert answer.status == 413
        except aiohttp.ClientConnectionError:
            pass  # it hung up while we were still sending
        async with session.get("/readyz") as answer:
            assert answer.status == 200
    await files.store.close()
