"""Certificates, revocation and nodes that join, over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.records import change_records, read_records, write_tokens
from livesize.apiserver.auth.tokens import issue_token
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.apiserver.tls import ensure_tls
from livesize.client.http import ConnectionConfig, HttpClient, ServerUnreachableError
from livesize.client.kubeconfig import connection_from, write_kubeconfig
from livesize.client.node_join import (
    JoinError,
    JoinRequest,
    join,
    maintain_certificate,
    node_of,
    renew,
    renewal_time,
    write_node_kubeconfig,
)
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.data_directory import DataDirectory
from livesize.main.entry import cli
from livesize.store.memory import MemoryStore

pytestmark = pytest.mark.apiserver

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Cluster:
    """An API server on its data directory, as `livesize token` and `cert` know it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.directory = DataDirectory(folder / "data")
        self.directory.control.mkdir(parents=True)
        self.admin, entry = issue_token("admin", Role.ADMIN)
        write_tokens(self.directory.tokens, [entry])
        config = ApiServerConfig(self.directory.tls, self.directory.tokens, port=0, **settings)
        self.server = ApiServer(config, MemoryStore(), context=system_context())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Cluster]:
        async with self.server.running():
            ca_pem = self.server.ca_path.read_bytes()
            kubeconfig = self.directory.kubeconfig
            write_kubeconfig(kubeconfig, self.server.url, ca_pem, self.admin, "admin")
            yield self

    def command(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--data-dir", str(self.directory.root)])

    def made(self, *words: str) -> Any:
        done = self.command(*words, "-o", "json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def joining(self, *words: str, node: str = "n1") -> JoinRequest:
        made = self.made("token", "create", "--join", *words)
        return JoinRequest(
            server=made["server"], ca_hash=made["caHash"], token=made["token"], node=node
        )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path).running() as running:
        yield running


@contextlib.asynccontextmanager
async def client_of(config: ConnectionConfig | Path) -> AsyncIterator[HttpClient]:
    known = connection_from(config) if isinstance(config, Path) else config
    client = await HttpClient.open(known, SystemClock())
    try:
        yield client
    finally:
        await client.close()


async def who(config: ConnectionConfig | Path) -> str:
    async with client_of(config) as client:
        return str((await client.submit(SELF, {}))["status"]["userInfo"]["username"])


async def eventually_refused(ask: Callable[[], Any]) -> int:
    """The code with which it is refused, within two seconds."""
    async with asyncio.timeout(2):
        while True:
            try:
                await ask()
            except StatusError as refusal:
                return refusal.code
            await asyncio.sleep(0.05)


async def test_a_certificate_says_who_one_is_and_what_one_may(
    cluster: Cluster, tmp_path: Path
) -> None:
    where = ["--directory", str(tmp_path)]
    made = cluster.made("cert", "create", "ann", "--role", "viewer", "--namespaces", "a", *where)
    assert made["namespaces"] == ["a"]
    assert all(Path(file).stat().st_mode & 0o777 == 0o600 for file in made["files"])
    kubeconfig = tmp_path / "ann.kubeconfig"
    assert await who(kubeconfig) == "ann"
    async with client_of(kubeconfig) as client:
        with pytest.raises(StatusError) as refused:
            await client.list(PODS)
        assert refused.value.code == 403
        assert (await client.list(PODS, Selection(namespace="a"))).items == ()


async def test_a_revoked_certificate_is_refused_also_on_a_connection_that_is_open(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.made("cert", "create", "ann", "--role", "admin", "--directory", str(tmp_path))
    async with client_of(tmp_path / "ann.kubeconfig") as client:
        await client.list(PODS)
        assert cluster.command("cert", "revoke", "ann").output == "1 certificate of ann revoked\n"
        assert await eventually_refused(lambda: client.list(PODS)) == 401
    (entry,) = cluster.made("cert", "list")
    assert entry["revoked"] is True
    cluster.made("cert", "create", "ann", "--role", "admin", "--directory", str(tmp_path))
    assert await who(tmp_path / "ann.kubeconfig") == "ann", "a new one of that name is good"


async def test_a_certificate_of_another_authority_does_not_come_in(
    cluster: Cluster, tmp_path: Path
) -> None:
    ensure_tls(tmp_path / "data2" / "control" / "tls", [], SystemClock().now())
    words = ["cert", "create", "eve", "--role", "admin", "--server", cluster.server.url]
    words += ["--directory", str(tmp_path), "--data-dir", str(tmp_path / "data2")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    forged = msgspec.structs.replace(
        connection_from(tmp_path / "eve.kubeconfig"), ca_pem=cluster.server.ca_path.read_bytes()
    )
    with pytest.raises(ServerUnreachableError):
        await who(forged)


async def test_the_server_s_own_certificate_is_nobody_s(cluster: Cluster) -> None:
    tls = cluster.directory.tls
    borrowed = ConnectionConfig(
        server=cluster.server.url,
        ca_pem=cluster.server.ca_path.read_bytes(),
        client_certificate_pem=(tls / "apiserver.crt").read_bytes(),
        client_key_pem=(tls / "apiserver.key").read_bytes(),
    )
    with pytest.raises(ServerUnreachableError):
        await who(borrowed)


async def test_a_token_works_and_is_revoked_while_the_server_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "ann.kubeconfig"
    words = ["token", "create", "ann", "--role", "editor", "--namespaces", "default"]
    cluster.made(*words, "--kubeconfig", str(kubeconfig))
    async with client_of(kubeconfig) as client:
        await client.list(PODS, Selection(namespace="default"))
        assert cluster.command("token", "revoke", "ann").exit_code == 0
        ask = Selection(namespace="default")
        assert await eventually_refused(lambda: client.list(PODS, ask)) == 401


async def test_kubectl_comes_in_with_a_certificate(cluster: Cluster, tmp_path: Path) -> None:
    cluster.made("cert", "create", "ann", "--role", "viewer", "--directory", str(tmp_path))
    command = ["kubectl", "--kubeconfig", str(tmp_path / "ann.kubeconfig"), "get", "namespaces"]
    command += ["--cache-dir", str(tmp_path / "cache"), "-o", "name"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert "namespace/default" in done.stdout.split(), done.stderr


async def test_a_node_joins_once(cluster: Cluster) -> None:
    asked = cluster.joining()
    config = await join(asked, SystemClock())
    assert node_of(config) == "n1"
    assert await who(config) == "system:node:n1"
    async with client_of(config) as client:
        await client.create(NODES, {"metadata": {"name": "n1"}})
        with pytest.raises(StatusError) as refused:
            await client.create(NODES, {"metadata": {"name": "n2"}})
        assert refused.value.code == 403
    with pytest.raises(StatusError, match="it was used already") as again:
        await join(msgspec.structs.replace(asked, node="n2"), SystemClock())
    assert again.value.code == 401
    assert read_records(cluster.directory.tokens).joins == ()
    (entry,) = cluster.made("cert", "list")
    assert (entry["name"], entry["node"]) == ("system:node:n1", "n1")


async def test_of_many_who_come_with_one_token_one_joins(cluster: Cluster) -> None:
    asked = cluster.joining()
    tries = [
        join(msgspec.structs.replace(asked, node=f"n{number}"), SystemClock())
        for number in range(8)
    ]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, ConnectionConfig) for one in outcomes) == 1
    assert all(getattr(one, "code", 401) == 401 for one in outcomes)


async def test_an_expired_join_token_is_refused(cluster: Cluster) -> None:
    asked = cluster.joining("--expires", "1s")
    await asyncio.sleep(1.1)
    with pytest.raises(StatusError) as refused:
        await join(asked, SystemClock())
    assert refused.value.code == 401


async def test_a_node_that_is_there_is_replaced_only_with_a_token_made_for_it(
    cluster: Cluster,
) -> None:
    await cluster.server.service.create(
        Identity("a", Role.ADMIN), NODES, "", {"metadata": {"name": "n1"}}
    )
    anybody = cluster.joining()
    with pytest.raises(StatusError, match="there is a node of this name"):
        await join(anybody, SystemClock())
    named = cluster.joining("--role", "node:n1")
    with pytest.raises(StatusError, match='for the node "n1" only'):
        await join(msgspec.structs.replace(named, node="n2"), SystemClock())
    assert node_of(await join(named, SystemClock())) == "n1", "a refusal does not use the token up"
    assert node_of(await join(msgspec.structs.replace(anybody, node="n3"), SystemClock())) == "n3"


@pytest.mark.parametrize(
    "body",
    [
        {"node": "n1"},
        {"node": "n1", "request": "no PEM"},
        {"node": "N_1", "request": "x"},
        {"node": "n" * 60, "request": "x"},
        ["n1"],
    ],
)
async def test_a_request_that_cannot_be_signed_is_refused(cluster: Cluster, body: Any) -> None:
    asked = cluster.joining()
    config = ConnectionConfig(
        server=asked.server, ca_pem=cluster.server.ca_path.read_bytes(), token=asked.token
    )
    async with client_of(config) as client:
        with pytest.raises(StatusError) as refused:
            await client.submit("/livesize/v1/join", body)
    assert refused.value.code == 400
    assert len(read_records(cluster.directory.tokens).joins) == 1


async def test_another_cluster_never_sees_the_token(cluster: Cluster, tmp_path: Path) -> None:
    """A false server in between, which even hands out the true authority's certificate."""
    asked = cluster.joining()
    heard: list[tuple[str, str]] = []
    served: list[bytes] = []

    async def listen(request: web.Request) -> web.Response:
        heard.append((request.path, request.headers.get("Authorization", "")))
        return web.Response(body=served[-1], content_type="application/x-pem-file")

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", listen)
    files = ensure_tls(tmp_path / "false", [], SystemClock().now())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    false = msgspec.structs.replace(asked, server=f"https://127.0.0.1:{port}")
    try:
        for pem in (files.ca_cert.read_bytes(), cluster.server.ca_path.read_bytes(), b"no"):
            served.append(pem)
            with pytest.raises(JoinError):
                await join(false, SystemClock())
    finally:
        await runner.cleanup()
    assert heard
    assert not any(authorization for _, authorization in heard)
    assert {path for path, _ in heard} == {"/livesize/v1/ca"}


async def test_a_node_renews_for_itself_and_nobody_else_does(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = await join(cluster.joining(), SystemClock())
    second = await renew(first, SystemClock())
    assert second.client_certificate_pem != first.client_certificate_pem
    assert second.client_key_pem != first.client_key_pem
    assert (node_of(second), await who(second)) == ("n1", "system:node:n1")
    cluster.made("cert", "create", "ann", "--role", "admin", "--directory", str(tmp_path))
    with pytest.raises(StatusError, match="is no node"):
        await renew(connection_from(tmp_path / "ann.kubeconfig"), SystemClock())


async def test_a_certificate_is_changed_before_it_expires(tmp_path: Path) -> None:
    """Certificates begin five minutes ago, so one of 5 seconds is due for renewal at once. A
    machine that stands still for so long locks its node out, so it is not shorter."""
    short = Cluster(tmp_path, node_certificate_seconds=5.0)
    kubeconfig = tmp_path / "agent" / "kubeconfig"
    async with short.running():
        write_node_kubeconfig(kubeconfig, await join(short.joining(), SystemClock()))
        first = connection_from(kubeconfig)
        assert renewal_time(first) < SystemClock().now()
        quick = msgspec.structs.replace(first, request_seconds=1.0)
        async with client_of(quick) as client, asyncio.TaskGroup() as group:
            keeping = group.create_task(maintain_certificate(kubeconfig, client, SystemClock()))
            async with asyncio.timeout(3):
                while connection_from(kubeconfig) == first:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(5.2)
            with pytest.raises((ServerUnreachableError, StatusError)):
                await who(first)
            assert (await client.submit(SELF, {}))["status"]["userInfo"]["username"] == (
                "system:node:n1"
            ), "the client goes on with the new one"
            keeping.cancel()


async def test_livesize_join_writes_what_the_agent_needs(cluster: Cluster, tmp_path: Path) -> None:
    made = cluster.made("token", "create", "--join", "--role", "node:worker-1")
    words = made["command"].split()[1:]
    joined = await asyncio.to_thread(
        CliRunner().invoke, cli, [*words, "--data-dir", str(tmp_path / "worker")]
    )
    assert joined.exit_code == 0, joined.output
    kubeconfig = DataDirectory(tmp_path / "worker").node_kubeconfig
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert await who(kubeconfig) == "system:node:worker-1"
    again = await asyncio.to_thread(
        CliRunner().invoke, cli, [*words, "--data-dir", str(tmp_path / "worker")]
    )
    assert again.exit_code == 1
    assert "it was used already" in again.output


async def test_what_the_server_signs_does_not_lose_what_the_command_writes(
    cluster: Cluster,
) -> None:
    """Both change one file at the same time, each under its lock."""
    tokens = [cluster.joining(node=f"n{number}") for number in range(6)]

    def add(number: int) -> None:
        _, entry = issue_token(f"user{number}", Role.VIEWER)
        change_records(
            cluster.directory.tokens,
            lambda old: (msgspec.structs.replace(old, tokens=(*old.tokens, entry)), None),
        )

    adding = [asyncio.to_thread(add, number) for number in range(20)]
    await asyncio.gather(*(join(one, SystemClock()) for one in tokens), *adding)
    records = read_records(cluster.directory.tokens)
    assert len(records.tokens) == 21
    assert {one.name for one in records.certificates} == {
        node_identity(f"n{number}").name for number in range(6)
    }
    assert records.joins == ()
