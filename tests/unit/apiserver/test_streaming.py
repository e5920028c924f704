"""How an API server comes to a node: over TLS with names compared, by a socket it was told; and
what it answers where it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from livesize.agent.endpoint.server import Endpoint, EndpointServer
from livesize.api.kernel_units import KernelLimits
from livesize.api.roles import Role
from livesize.apiserver.auth.certificates import Authority
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.streaming.endpoints import Endpoints, LocalNode, NodeUnreachableError
from livesize.apiserver.tls import ensure_tls
from livesize.machinery.context import system_context
from livesize.machinery.credentials import load_identity
from livesize.runtime.fake import FAKE_IMAGE, Behaviour, FakeMachine, FakeRuntime
from livesize.runtime.interface import ContainerConfig, PodConfig
from unit.apiserver.conftest import Rig

CONTEXT = system_context()
CLOCK = CONTEXT.clock
LIMITS = KernelLimits(1024, 100_000, 64 << 20)
WEB = "/api/v1/namespaces/default/pods/web"


def node(name: str, port: int, address: str = "127.0.0.1") -> dict[str, Any]:
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {"metadata": {"name": name}, "status": status}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    ensure_tls(folder, ("127.0.0.1",), CLOCK.now())
    return folder


@contextlib.asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[None]:
    """An agent with one container, which has written one line."""
    runtime = FakeRuntime(
        context=CONTEXT,
        machine=FakeMachine(CONTEXT, behaviours={("run",): Behaviour(output="hi\n")}),
    )
    await runtime.create_pod(PodConfig("u-1", "default", "db", LIMITS))
    await runtime.start_container(
        ContainerConfig("u-1", "app", FAKE_IMAGE, ("run",), (), (), "", "db", LIMITS)
    )
    server = asyncio.create_task(EndpointServer(endpoint, runtime, CLOCK).run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server


def tls_endpoint(tls: Path, identity: Identity) -> Endpoint:
    """As main/wiring/endpoint.py makes it, with the certificate of ``identity``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key, _ = Authority(tls).issue(identity, CLOCK.now(), 3600)
    load_identity(context, certificate + key)
    return Endpoint(socket.create_server(("127.0.0.1", 0)), context)


async def ask(endpoints: Endpoints, the_node: dict[str, Any]) -> bytes:
    async with endpoints.connected(the_node) as (reader, writer):
        writer.write(b"GET /logs/u-1/app HTTP/1.0\r\nHost: node\r\n\r\n")
        return await reader.read(-1)


async def test_a_node_is_reached_over_tls(tls: Path) -> None:
    endpoint = tls_endpoint(tls, node_identity("n1"))
    async with serving(endpoint):
        answer = await ask(Endpoints(tls, CLOCK), node("n1", endpoint.listener.getsockname()[1]))
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhi\n")


@pytest.mark.parametrize("other", [node_identity("n2"), Identity("admin", Role.ADMIN)])
async def test_who_is_not_that_node_is_told_nothing(tls: Path, other: Identity) -> None:
    endpoint = tls_endpoint(tls, other)
    async with serving(endpoint):
        with pytest.raises(NodeUnreachableError):
            await ask(Endpoints(tls, CLOCK), node("n1", endpoint.listener.getsockname()[1]))


async def test_a_node_of_another_cluster_is_not_believed(tls: Path, tmp_path: Path) -> None:
    ensure_tls(tmp_path / "other", ("127.0.0.1",), CLOCK.now())
    endpoint = tls_endpoint(tmp_path / "other", node_identity("n1"))
    async with serving(endpoint):
        with pytest.raises(NodeUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(Endpoints(tls, CLOCK), node("n1", endpoint.listener.getsockname()[1]))


async def test_a_socket_with_a_long_path_and_only_of_the_node_it_is_for(
    tls: Path, tmp_path: Path
) -> None:
    from livesize.machinery.data_directory import DataDirectory
    from livesize.main.wiring.endpoint import local_endpoint

    directory = DataDirectory(tmp_path / ("long" * 30))
    directory.control.mkdir(parents=True)
    with local_endpoint(directory, None) as endpoint:
        endpoints = Endpoints(tls, CLOCK, LocalNode("n1", directory.endpoint))
        async with serving(endpoint):
            assert (await ask(endpoints, node("n1", 0))).endswith(b"hi\n")
            with pytest.raises(NodeUnreachableError, match="no endpoint"):
                await ask(endpoints, node("n2", 0))
    assert not directory.endpoint.exists()


async def test_a_node_that_does_not_answer(tls: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NodeUnreachableError, match="node n1"):
        await ask(Endpoints(tls, CLOCK), node("n1", port))


# What who asks is answered

RUNNING = {"name": "app", "state": {"running": {}}, "restartCount": 0}
UPGRADE = {"upgrade": "websocket", "connection": "Upgrade"}


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    await rig.add_pod("web", node="n1")
    status = {"status": {"containerStatuses": [RUNNING]}}
    assert (await rig.patch(f"{WEB}/status", status, token="n1")).status == 200
    return rig


@pytest.mark.parametrize(
    ("path", "headers", "token", "code", "sentence"),
    [
        ("exec", {}, "admin", 400, "exec is spoken over WebSocket"),
        ("exec", UPGRADE, "admin", 501, "exec needs the web server uvicorn"),
        ("exec", UPGRADE, "viewer", 403, 'cannot create resource "pods/exec"'),
        ("attach", UPGRADE, "scheduler", 403, 'cannot create resource "pods/attach"'),
        ("portforward", UPGRADE, "n1", 403, 'cannot create resource "pods/portforward"'),
        ("log", {}, "controller", 403, 'cannot get resource "pods/log"'),
        ("log", {}, "viewer", 500, "error dialing backend: node n1 has no endpoint"),
    ],
)
async def test_what_is_refused(
    rig: Rig, path: str, headers: dict[str, str], token: str, code: int, sentence: str
) -> None:
    query = {"command": "true", "stdout": "true"}
    answer = await rig.request("GET", f"{WEB}/{path}", token=token, headers=headers, **query)
    assert answer.status == code
    assert sentence in answer.json["message"]


async def test_a_method_that_a_stream_does_not_have(rig: Rig) -> None:
    for method, path in (("POST", "log"), ("PUT", "exec"), ("DELETE", "portforward")):
        assert (await rig.request(method, f"{WEB}/{path}", {})).status == 405
