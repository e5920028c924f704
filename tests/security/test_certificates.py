"""What was revoked stays so, a name is one machine's, and nodes hear API servers alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from integration.test_apiserver_identities import Cluster, client_of, eventually_refused, who
from livesize.agent.endpoint.server import Endpoint, EndpointServer
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.roles import Role
from livesize.apiserver.auth.certificates import Authority
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.records import read_records, write_tokens
from livesize.apiserver.auth.tokens import Tokens, issue_token
from livesize.apiserver.streaming.endpoints import Endpoints
from livesize.apiserver.tls import ensure_tls
from livesize.client.kubeconfig import connection_from
from livesize.client.node_join import join, node_of
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.credentials import load_identity
from livesize.runtime.fake import FakeRuntime

pytestmark = pytest.mark.security

HOUR = 3600.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path).running() as running:
        yield running


async def test_removing_the_file_of_identities_revives_no_certificate(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.made("cert", "create", "ann", "--role", "admin", "--directory", str(tmp_path))
    cluster.made("cert", "create", "bob", "--role", "viewer", "--directory", str(tmp_path))
    assert cluster.command("cert", "revoke", "ann").exit_code == 0
    async with client_of(tmp_path / "ann.kubeconfig") as client:
        assert await eventually_refused(lambda: client.list(PODS)) == 401
    cluster.directory.tokens.unlink()
    _, entry = issue_token("admin", Role.ADMIN)
    write_tokens(cluster.directory.tokens, [entry])  # as a start after that does
    await refused_after_a_restart(cluster, tmp_path / "ann.kubeconfig")
    assert await who(tmp_path / "bob.kubeconfig") == "bob"


async def refused_after_a_restart(cluster: Cluster, kubeconfig: Path) -> None:
    """By one who has not seen the revocation happen, too."""
    pem = connection_from(kubeconfig).client_certificate_pem
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert Tokens(cluster.directory.tokens).identify_certificate(der, SystemClock().now()) is None
    async with client_of(kubeconfig) as client:
        with pytest.raises(StatusError) as refused:
            await client.list(PODS)
    assert refused.value.code == 401


async def test_a_certificate_that_no_file_names_is_revoked_by_its_serial(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.made("cert", "create", "ann", "--role", "admin", "--directory", str(tmp_path))
    (entry,) = cluster.made("cert", "list")
    cluster.directory.tokens.unlink()
    assert await who(tmp_path / "ann.kubeconfig") == "ann"
    assert cluster.command("cert", "revoke", entry["serial"]).exit_code == 0
    async with client_of(tmp_path / "ann.kubeconfig") as client:
        assert await eventually_refused(lambda: client.list(PODS)) == 401


async def test_two_join_tokens_do_not_take_one_name(cluster: Cluster) -> None:
    first, second = cluster.joining(), cluster.joining()
    joined = await join(first, SystemClock())
    assert node_of(joined) == "n1"
    with pytest.raises(StatusError, match="one has joined by it"):
        await join(second, SystemClock())  # though no Node of this name has been registered yet


async def test_at_the_same_moment_neither(cluster: Cluster) -> None:
    asked = [cluster.joining() for _ in range(4)]
    done = await asyncio.gather(
        *(join(one, SystemClock()) for one in asked), return_exceptions=True
    )
    assert sum(not isinstance(one, BaseException) for one in done) == 1


async def test_who_takes_a_name_anew_is_its_only_one(cluster: Cluster) -> None:
    before = await join(cluster.joining(), SystemClock())
    named = [cluster.joining("--role", "node:n1") for _ in range(2)]
    after = await join(named[0], SystemClock())
    with pytest.raises(StatusError):
        await join(named[1], SystemClock())
    assert await eventually_refused(lambda: who(before)) == 401
    assert await who(after) == "system:node:n1"
    records = read_records(cluster.directory.tokens)
    assert [one.revoked for one in records.certificates] == [True, False]


def test_nobody_is_given_a_certificate_of_an_api_server(tmp_path: Path) -> None:
    made = Cluster(tmp_path)
    ensure_tls(made.directory.tls, [], SystemClock().now())
    refused = made.command("cert", "create", "x", "--role", "apiserver", "--server", "https://a:1")
    assert refused.exit_code == 2
    assert "API servers make certificates for themselves" in refused.output


@contextlib.asynccontextmanager
async def node_endpoint(tls: Path) -> AsyncIterator[int]:
    """A node's endpoint as others reach it."""
    certificate, key, _ = Authority(tls).issue(node_identity("n1"), SystemClock().now(), HOUR)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    load_identity(context, certificate + key)
    runtime = FakeRuntime(context=system_context())
    await runtime.open()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = EndpointServer(Endpoint(listener, context), runtime, SystemClock())
        task = asyncio.create_task(server.run())
        yield int(listener.getsockname()[1])
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_certificate_of_that_role_opens_no_node(tmp_path: Path) -> None:
    """One that was given out once, and revoked or not: a node cannot know."""
    ensure_tls(tmp_path, [], SystemClock().now())
    async with node_endpoint(tmp_path) as port:
        for identity in (
            Identity("old", Role.APISERVER),
            Identity("system:apiserver", Role.APISERVER),
            Identity("root", Role.ADMIN),
            node_identity("n2"),
        ):
            pair = Authority(tmp_path).issue(identity, SystemClock().now(), HOUR)[:2]
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            context.check_hostname = False
            load_identity(context, b"".join(pair))
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(f"https://127.0.0.1:{port}/logs/u-1/app") as answer,
            ):
                assert answer.status == 403


async def test_an_api_server_does(tmp_path: Path) -> None:
    ensure_tls(tmp_path, [], SystemClock().now())
    async with node_endpoint(tmp_path) as port:
        place = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
        ports = {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        node = {"metadata": {"name": "n1"}, "status": {**place, **ports}}
        async with Endpoints(tmp_path, SystemClock()).connected(node) as (reader, writer):
            writer.write(b"GET /logs/u-1/app HTTP/1.0\r\nHost: node\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"404"  # let in, and no such pod
