"""The HTTP client against a real HTTP server that cuts, refuses and vanishes on demand."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from livesize.api.errors import StatusError, conflict, expired
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection, WatchEvent, WatchEventType
from livesize.api.patch import PatchType
from livesize.api.write_options import WriteOptions
from livesize.client.http import (
    REQUESTS_AT_ONCE,
    ConnectionConfig,
    HttpClient,
    ServerUnreachableError,
)
from livesize.machinery.clock import Clock, SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Served:
    """One server, everything it was asked, and the answer it gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()
        self.answer: Handler = self._echo
        self.server = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            (request.method, request.path, dict(request.query), json.loads(body) if body else None)
        )
        self.headers.append(dict(request.headers))
        self.connections.add(id(request.transport))
        return await self.answer(request)

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Pod", "metadata": {"name": "db"}})


@asynccontextmanager
async def serving(
    make_site: Callable[[web.AppRunner], web.BaseSite] | None = None,
) -> AsyncIterator[Served]:
    served = Served()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = make_site(runner) if make_site else web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    if isinstance(site, web.TCPSite):
        scheme = site.name.partition("://")[0]
        served.server = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


@asynccontextmanager
async def speaking(
    served: Served, clock: Clock | None = None, **config: Any
) -> AsyncIterator[HttpClient]:
    client = await HttpClient.open(
        ConnectionConfig(server=served.server, **config), clock or SystemClock()
    )
    try:
        yield client
    finally:
        await client.close()


def stream(*chunks: bytes, cut: bool = False) -> Handler:
    """Answer with these chunks, each on its own; ``cut`` drops the connection afterwards."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.002)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


class Sleeps(SystemClock):
    """Sleeping takes no time but is remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def busy(times: int, status: int, **headers: str) -> Handler:
    """Refuse that often, as a server's flow control does (no Status, no JSON); then answer."""
    left = iter(range(times))

    async def answer(request: web.Request) -> web.StreamResponse:
        if next(left, None) is None:
            if "watch" in request.query:
                return web.Response(body=event("ADDED", "db") + b"\n")
            return web.json_response({"kind": "Pod", "metadata": {"name": "db"}})
        return web.Response(status=status, text="Too many requests", headers=headers)

    return answer


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    clock = Sleeps()
    async with serving() as served, speaking(served, clock) as client:
        served.answer = busy(2, status, **{"Retry-After": "7"})
        created = await client.create(PODS, {"metadata": {"name": "db"}}, "ns")
        assert created["metadata"]["name"] == "db"
        served.answer = busy(1, status, **{"Retry-After": "0"})
        watching = client.watch(PODS, resource_version="1")
        assert [one.object["metadata"]["name"] async for one in watching] == ["db"]
        assert clock.slept == [7.0, 7.0, 0.1]
        assert [method for method, *_ in served.asked] == ["POST"] * 3 + ["GET"] * 2


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"Retry-After": "9"}, 3),  # 36 s would be longer than one request may take
        ({"Retry-After": "3600"}, 0),
        ({"Retry-After": "Fri, 13 Nov 2026 00:00:00 GMT"}, 0),
        ({}, 0),
    ],
    ids=["always", "far too long", "a date", "no word of it"],
)
async def test_waiting_for_a_busy_server_has_an_end(headers: dict[str, str], waits: int) -> None:
    clock = Sleeps()
    async with serving() as served, speaking(served, clock) as client:
        served.answer = busy(99, 429, **headers)
        with pytest.raises(StatusError) as caught:
            await client.get(PODS, "db", "ns")
        assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
        assert len(clock.slept) == waits
        with pytest.raises(StatusError):
            await anext(aiter(client.watch(PODS, resource_version="1")))
        assert len(clock.slept) == 2 * waits


async def test_requests_that_wait_for_a_busy_server_hold_up_no_others() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.Response(status=429, headers={"Retry-After": "9"})
        return web.json_response({"kind": "Pod", "metadata": {"name": "db"}})

    async with serving() as served, speaking(served) as client, asyncio.TaskGroup() as tasks:
        served.answer = answer
        waiting = [
            tasks.create_task(client.post(PODS, f"p{number}", "ns", "eviction", {}))
            for number in range(REQUESTS_AT_ONCE)
        ]
        async with asyncio.timeout(5):
            while len(served.asked) < REQUESTS_AT_ONCE:
                await asyncio.sleep(0.005)
            assert (await client.get(PODS, "db", "ns"))["metadata"]["name"] == "db"
        for task in waiting:
            task.cancel()


def event(kind: str, name: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, **more}}).encode()


async def collect(client: HttpClient) -> list[WatchEvent]:
    return [event async for event in client.watch(PODS, resource_version="7")]


async def test_every_call_is_the_request_kubernetes_expects() -> None:
    async with serving() as served, speaking(served, token="secret") as client:
        pod = {"metadata": {"name": "db", "namespace": "ns"}}
        await client.get(PODS, "db", "ns")
        await client.list(PODS, Selection("ns", "app=db", "spec.nodeName=n1"))
        await client.create(PODS, pod, "ns")
        await client.update(PODS, pod, subresource="status")
        await client.patch(
            *(PODS, "db", {"spec": {}}),
            namespace="ns",
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )
        dry = WriteOptions(dry_run=True)
        await client.patch(LEASES, "n1", {}, namespace="kube-node-lease", options=dry)
        await client.delete(PODS, "db", "ns", grace_period_seconds=0, uid="u1")
        await client.post(PODS, "db", "ns", "binding", {"target": {"name": "n1"}})
        pods = "/api/v1/namespaces/ns/pods"
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        assert served.asked == [
            ("GET", f"{pods}/db", {}, None),
            ("GET", pods, {"labelSelector": "app=db", "fieldSelector": "spec.nodeName=n1"}, None),
            ("POST", pods, {}, pod),
            ("PUT", f"{pods}/db/status", {}, pod),
            ("PATCH", f"{pods}/db/resize", {}, {"spec": {}}),
            (
                *("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
                *({"dryRun": "All"}, {}),
            ),
            (
                *("DELETE", f"{pods}/db", {}),
                {**options, "gracePeriodSeconds": 0, "preconditions": {"uid": "u1"}},
            ),
            ("POST", f"{pods}/db/binding", {}, {"target": {"name": "n1"}}),
        ]
        assert {headers["Authorization"] for headers in served.headers} == {"Bearer secret"}
        assert served.headers[4]["Content-Type"] == PatchType.STRATEGIC.value
        assert "Content-Type" not in served.headers[0]


async def test_one_connection_serves_many_requests() -> None:
    async with serving() as served, speaking(served) as client:
        for _ in range(10):
            await client.get(PODS, "db", "ns")
        assert len(served.connections) == 1


async def test_items_of_a_list_get_the_kind_that_kubernetes_leaves_out() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        items = [{"metadata": {"name": "db"}}]
        return web.json_response({"metadata": {"resourceVersion": "12"}, "items": items})

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        listing = await client.list(PODS)
        assert listing.resource_version == "12"
        assert listing.items == ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "db"}},)


async def test_a_refusal_comes_back_with_code_reason_and_causes() -> None:
    refusal = conflict(PODS, "db")

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(refusal.to_status(), status=409)

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        with pytest.raises(StatusError) as caught:
            await client.get(PODS, "db", "ns")
        assert caught.value.to_status() == refusal.to_status()


async def test_a_refusal_that_is_no_status_still_says_what_came() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="<h1>gateway</h1>")

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        with pytest.raises(StatusError, match=r"503.*gateway") as caught:
            await client.get(PODS, "db", "ns")
        assert caught.value.reason == "ServiceUnavailable"


async def test_a_watch_puts_lines_together_however_they_are_cut() -> None:
    big = "x" * 300_000  # longer than any line limit of the library
    lines = event("ADDED", "a") + b"\n" + event("MODIFIED", "b", big=big) + b"\n"
    lines += event("BOOKMARK", "c") + b"\n" + b"\n" + event("DELETED", "d") + b"\n"
    for size in (7, 20_000, 65_536):
        pieces = [lines[start : start + size] for start in range(0, len(lines), size)]
        if size == 7:
            pieces = [*pieces[:20], b"".join(pieces[20:])]
        async with serving() as served, speaking(served) as client:
            served.answer = stream(*pieces)
            events = await collect(client)
            assert [(str(e.type), e.object["metadata"]["name"]) for e in events] == [
                *(("ADDED", "a"), ("MODIFIED", "b"), ("BOOKMARK", "c"), ("DELETED", "d")),
            ]
            assert served.asked[0][2] == {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": "7",
            }


async def test_a_watch_that_is_too_old_raises_410_from_the_answer_or_from_the_stream() -> None:
    status = expired("too old resource version: 7 (9)").to_status()

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response(status, status=410)

    in_stream = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    for answer in (refuse, stream(event("ADDED", "a") + b"\n", in_stream)):
        async with serving() as served, speaking(served) as client:
            served.answer = answer
            with pytest.raises(StatusError) as caught:
                await collect(client)
            assert caught.value.code == 410


async def test_a_watch_that_is_sent_elsewhere_is_refused() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/login"}, text="<a>elsewhere</a>")

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        with pytest.raises(StatusError, match=r"302.*elsewhere"):
            await collect(client)
        assert len(served.asked) == 1


async def test_a_connection_lost_in_a_watch_is_a_connection_error_after_the_events() -> None:
    async with serving() as served, speaking(served) as client:
        served.answer = stream(event("ADDED", "a") + b"\n", event("ADDED", "b")[:9], cut=True)
        changes: Any = client.watch(PODS, resource_version="7")
        assert (await anext(changes)).type is WatchEventType.ADDED
        with pytest.raises(ConnectionError):
            await anext(changes)


async def test_a_watch_left_early_closes_its_connection() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", "a") + b"\n")
        await asyncio.sleep(60)
        raise AssertionError

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        changes: Any = client.watch(PODS, resource_version="7")
        await anext(changes)
        await changes.aclose()
        # The connection is not given back to the pool: the next request takes a new one.
        served.answer = served._echo
        await client.get(PODS, "db", "ns")
        assert len(served.connections) == 2


async def test_nobody_listening_says_which_server_was_tried() -> None:
    async with serving() as served:
        pass
    async with speaking(served) as client:
        with pytest.raises(ServerUnreachableError, match="refused") as caught:
            await client.get(PODS, "db", "ns")
        assert served.server in str(caught.value)
        with pytest.raises(ConnectionError):
            await collect(client)


async def test_no_answer_in_time_is_a_connection_error() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    async with serving() as served, speaking(served, request_seconds=0.05) as client:
        served.answer = answer
        with pytest.raises(ServerUnreachableError, match="in time"):
            await client.get(PODS, "db", "ns")


async def test_an_answer_that_is_not_json_is_a_connection_error() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="hello")

    async with serving() as served, speaking(served) as client:
        served.answer = answer
        with pytest.raises(ServerUnreachableError, match="not JSON"):
            await client.get(PODS, "db", "ns")
        assert await client.ask("/readyz") == "hello"


async def test_a_closed_client_is_a_connection_error() -> None:
    async with serving() as served:
        async with speaking(served) as client:
            await client.get(PODS, "db", "ns")
        with pytest.raises(ConnectionError):
            await client.get(PODS, "db", "ns")


async def test_a_unix_socket_works_like_the_rest(tmp_path: Path) -> None:
    path = str(tmp_path / "server.sock")
    async with serving(lambda runner: web.UnixSite(runner, path)) as served:
        served.server = f"unix://{path}"
        async with speaking(served) as client:
            assert (await client.get(PODS, "db", "ns"))["metadata"]["name"] == "db"


class Authority:
    """A certificate authority for one test, made in milliseconds."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        usage = x509.BasicConstraints(ca=True, path_length=None)
        others = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **others)
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(usage, critical=True)
            .add_extension(signs, critical=True)
        ).sign(self._key, hashes.SHA256())
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """Certificate and key, as PEM, good for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([address])
        certificate = (self._builder(subject, key).add_extension(names, critical=False)).sign(
            self._key, hashes.SHA256()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        """With what Python 3.13 asks of a certificate: whose key it has, and who signed it."""
        now = dt.datetime.now(dt.UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(own, critical=False)
            .add_extension(signer, critical=False)
        )

    def context(self, folder: Path) -> ssl.SSLContext:
        file = folder / "server.pem"
        file.write_bytes(b"".join(self.issue("server")))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.pem.decode())
        context.load_cert_chain(file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


async def test_tls_trusts_only_the_authority_given_and_shows_our_certificate(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(), Authority()
    certificate, key = authority.issue("node n1")

    async def answer(request: web.Request) -> web.StreamResponse:
        peer = request.get_extra_info("peercert") or {}
        return web.json_response({"subject": str(peer.get("subject", ""))})

    def site(runner: web.AppRunner) -> web.BaseSite:
        return web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.context(tmp_path))

    async with serving(site) as served:
        served.answer = answer
        identity = {"client_certificate_pem": certificate, "client_key_pem": key}
        async with speaking(served, ca_pem=authority.pem, **identity) as client:
            assert "node n1" in (await client.get(PODS, "db", "ns"))["subject"]
        async with speaking(served, ca_pem=stranger.pem) as client:
            with pytest.raises(ServerUnreachableError, match="not trusted"):
                await client.get(PODS, "db", "ns")
        async with speaking(served, skip_verification=True) as client:
            assert (await client.get(PODS, "db", "ns"))["subject"] == ""


async def test_many_requests_at_once_share_a_few_connections() -> None:
    """And all of them are answered."""
    async with serving() as served, speaking(served) as client, asyncio.TaskGroup() as tasks:
        for number in range(REQUESTS_AT_ONCE * 4):
            tasks.create_task(client.get(PODS, f"db-{number}", "ns"))
    assert len(served.asked) == REQUESTS_AT_ONCE * 4
    assert len(served.connections) <= REQUESTS_AT_ONCE


async def test_a_request_that_was_given_up_gives_its_turn_back() -> None:
    async with serving() as served, speaking(served) as client:
        served.answer = never
        asked = [asyncio.create_task(client.get(PODS, "db", "ns")) for _ in range(REQUESTS_AT_ONCE)]
        while len(served.asked) < REQUESTS_AT_ONCE:
            await asyncio.sleep(0.001)
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
        served.answer = served._echo
        assert (await client.get(PODS, "db", "ns"))["kind"] == "Pod"


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError
