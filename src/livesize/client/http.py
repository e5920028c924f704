"""Speaks to an API server over HTTPS, plain HTTP or a Unix socket: ours or any Kubernetes.

``client = await HttpClient.open(ConnectionConfig(server=...))``. Connections are kept alive and
shared; a watch splits its lines itself, so that no line limit applies to an object. Refusals are
StatusError; UnreachableError (a ConnectionError) means that no whole answer came. Where there are
several servers, one that cannot be reached is left for the next (livesize.client.addresses).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import orjson
from yarl import URL

from livesize.api.errors import StatusError
from livesize.api.kinds import Resource
from livesize.api.objects import Object, name_of, namespace_of
from livesize.client.addresses import Addresses
from livesize.client.direct import delete_options
from livesize.client.interface import (
    EVERYTHING,
    EventType,
    ObjectList,
    PatchType,
    Selection,
    WatchEvent,
)
from livesize.machinery.clock import Clock

CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 60.0
REQUESTS_AT_ONCE = 32
"""More wait for their turn: each would open a connection of its own, and a handshake costs more
than a request. Watches do not count."""
MAX_WATCH_LINE_BYTES = 32 * 1024 * 1024
_DEAD_PEER_IDLE_SECONDS = 15
_DEAD_PEER_PROBE_SECONDS = 5
_DEAD_PEER_PROBES = 3
_UNIX = "unix://"
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class ConnectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is and who we are. ``server`` is https://, http:// or unix:///path;
    ``others`` are asked when it does not answer, with the same scheme and the same identity."""

    server: str
    others: tuple[str, ...] = ()
    ca_pem: bytes = b""
    token: str = ""
    client_certificate_pem: bytes = b""
    client_key_pem: bytes = b""
    skip_verification: bool = False
    server_name: str = ""
    user_agent: str = "livesize"
    connect_seconds: float = CONNECT_SECONDS
    request_seconds: float = REQUEST_SECONDS


def with_servers(config: ConnectionConfig, servers: Sequence[str]) -> ConnectionConfig:
    """The same identity, at these servers."""
    first, *others = servers
    return msgspec.structs.replace(config, server=first, others=tuple(others))


class UnreachableError(ConnectionError):
    """No whole answer came from the server; the call may or may not have happened."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"cannot reach {server}: {why}")
        self.server = server
        self.why = why


class HttpClient:
    """Client over HTTP/1.1 with a pool of kept-alive connections."""

    def __init__(self, config: ConnectionConfig, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._session = session
        self._addresses = Addresses((config.server, *config.others))
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._server_name = config.server_name or None
        self._watch_timeout = aiohttp.ClientTimeout(total=None, sock_connect=config.connect_seconds)

    @classmethod
    async def open(cls, config: ConnectionConfig) -> HttpClient:
        """Make ready; the first request connects."""
        return cls(config, _session(config))

    async def become(self, config: ConnectionConfig, clock: Clock) -> None:
        """Go on with the credentials of ``config``. Requests under way end as they began; watches
        are cut after that, and their informers take them up again."""
        self._config = msgspec.structs.replace(
            self._config,
            token=config.token,
            client_certificate_pem=config.client_certificate_pem,
            client_key_pem=config.client_key_pem,
        )
        before, self._session = self._session, _session(self._config)
        try:
            await clock.sleep(self._config.request_seconds)
        finally:
            await before.close()

    @property
    def server(self) -> str:
        """The one that is asked now."""
        return self._addresses.current

    @property
    def servers(self) -> tuple[str, ...]:
        return self._config.server, *self._config.others

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return await self._request("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, selection: Selection = EVERYTHING) -> ObjectList:
        path = resource.path(selection.namespace)
        answer = await self._request("GET", path, query=_selection_query(selection))
        metadata = answer.get("metadata") or {}
        items = tuple(_with_kind(item, resource) for item in answer.get("items") or ())
        return ObjectList(
            items, str(metadata.get("resourceVersion", "")), str(metadata.get("continue") or "")
        )

    async def watch(
        self, resource: Resource, selection: Selection = EVERYTHING, *, resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        query = {
            **_selection_query(selection),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
        }
        path, server = resource.path(selection.namespace), self.server
        with self._reaching(server):
            async with asyncio.timeout(self._config.request_seconds):
                response = await self._session.get(
                    _url(server, path, query),
                    timeout=self._watch_timeout,
                    server_hostname=self._server_name,
                )
            hang_up = functools.partial(_hang_up, response)
            async with response:
                if response.status >= 400:
                    raise _refusal(response.status, await response.read())
                try:
                    with self._addresses.watched(server, hang_up):
                        async for line in _lines(response.content):
                            yield _watch_event(orjson.loads(line))
                finally:
                    hang_up()

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        path = resource.path(namespace or namespace_of(obj))
        return await self._request("POST", path, obj, query=_dry_run_query(dry_run))

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        path = resource.path(namespace_of(obj), name_of(obj), subresource)
        return await self._request("PUT", path, obj)

    async def patch(  # noqa: PLR0913 - the signature of the interface
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        query = _dry_run_query(dry_run)
        if patch_type is PatchType.APPLY:
            query["fieldManager"] = self._config.user_agent
        path = resource.path(namespace, name, subresource)
        return await self._request("PATCH", path, patch, query=query, body_type=patch_type.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> Object:
        options = delete_options(grace_period_seconds, uid, propagation)
        return await self._request("DELETE", resource.path(namespace, name), options)

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        return await self._request("POST", resource.path(namespace, name, subresource), body)

    async def ask(self, path: str) -> Any:
        """GET a path that is no object: /version, /readyz. JSON where it is JSON, else text."""
        status, body = await self._send("GET", path, None, "")
        if status >= 400:
            raise _refusal(status, body)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return body.decode(errors="replace")

    async def submit(self, path: str, body: Object) -> Object:
        """POST to a path that is no object's."""
        return await self._request("POST", path, body)

    async def stream(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """GET what is no object and may go on for ever, as it comes."""
        server = self.server
        with self._reaching(server):
            async with self._session.get(
                _url(server, path, query),
                timeout=self._watch_timeout,
                server_hostname=self._server_name,
            ) as response:
                if response.status >= 400:
                    raise _refusal(response.status, await response.read())
                async for piece in response.content.iter_any():
                    yield piece

    @contextlib.asynccontextmanager
    async def switched(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket, for as long as this is entered."""
        server = self.server
        url = _url(server, path, None).with_query(query)
        with self._reaching(server):
            # A refusal has a body, which a WebSocket's handshake would not show: it is asked for.
            try:
                async with self._session.ws_connect(
                    url, protocols=protocols, max_msg_size=0, server_hostname=self._server_name
                ) as opened:
                    yield opened
            except aiohttp.WSServerHandshakeError as failure:
                status, body = await self._send("GET", path, None, "", dict(query))
                raise _refusal(status if status >= 400 else failure.status, body) from failure

    async def close(self) -> None:
        await self._session.close()

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        body_type: str = "application/json",
    ) -> Object:
        payload = None if body is None else orjson.dumps(body)
        async with self._turns:
            status, answer = await self._send(method, path, payload, body_type, query)
        if status >= 400:
            raise _refusal(status, answer)
        try:
            return orjson.loads(answer)  # type: ignore[no-any-return]
        except orjson.JSONDecodeError as failure:
            raise UnreachableError(self.server, f"the answer is not JSON ({failure})") from failure

    async def _send(
        self,
        method: str,
        path: str,
        payload: bytes | None,
        body_type: str,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Ask the server, or the next one where nobody takes the connection: nothing was sent to
        the first then. What was sent is not sent again: it may have happened."""
        headers = {"Content-Type": body_type} if payload is not None else None
        for others in reversed(range(len(self.servers))):
            server = self.server
            try:
                with self._addresses.asked(server), self._reaching(server):
                    async with self._session.request(
                        method,
                        _url(server, path, query),
                        data=payload,
                        headers=headers,
                        allow_redirects=False,
                        server_hostname=self._server_name,
                    ) as response:
                        return response.status, await response.read()
            except UnreachableError as failure:
                if not others or not isinstance(failure.__cause__, _NOT_CONNECTED):
                    raise
        raise AssertionError("there is at least one server")

    @contextlib.contextmanager
    def _reaching(self, server: str) -> Iterator[None]:
        """Turn every way a connection can fail into one error with a sentence; the next request
        goes to the next server."""
        try:
            yield
        except (aiohttp.ClientError, OSError) as failure:
            self._addresses.leave(server)
            raise UnreachableError(server, _why(failure)) from failure
        except RuntimeError as failure:
            if self._session.closed:
                raise UnreachableError(server, "this client was closed") from failure
            raise


def _url(server: str, path: str, query: Mapping[str, str] | None) -> URL:
    address = "http://localhost" if server.startswith(_UNIX) else server.rstrip("/")
    text = f"{address}{path}"
    return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)


def _session(config: ConnectionConfig) -> aiohttp.ClientSession:
    headers = {"Accept": "application/json", "User-Agent": config.user_agent}
    if config.token:
        headers["Authorization"] = f"Bearer {config.token}"
    return aiohttp.ClientSession(
        connector=_connector(config),
        headers=headers,
        # Answers stay uncompressed: the wire is short and the milliseconds count.
        skip_auto_headers=("Accept-Encoding",),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=config.request_seconds, sock_connect=config.connect_seconds
        ),
    )


def _connector(config: ConnectionConfig) -> aiohttp.BaseConnector:
    if config.server.startswith(_UNIX):
        path = config.server.removeprefix(_UNIX)
        return aiohttp.UnixConnector(path, limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
    return aiohttp.TCPConnector(
        limit=0,
        ssl=_tls(config) if config.server.startswith("https://") else False,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        socket_factory=_socket,
    )


def _socket(address: Any) -> socket.socket:
    """A socket that notices a peer that vanished, even in a watch that is silent for hours."""
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_PEER_IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _DEAD_PEER_PROBE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _DEAD_PEER_PROBES)
    return made


def _tls(config: ConnectionConfig) -> ssl.SSLContext:
    if config.ca_pem:
        context = ssl.create_default_context(cadata=config.ca_pem.decode("ascii"))
    else:
        context = ssl.create_default_context()
    if config.skip_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.client_certificate_pem:
        _load_identity(context, config)
    return context


def _load_identity(context: ssl.SSLContext, config: ConnectionConfig) -> None:
    # The ssl module reads certificates of our own from files only; this one lives microseconds.
    with tempfile.TemporaryDirectory(prefix="livesize-") as folder:
        both = Path(folder) / "identity.pem"
        both.touch(mode=0o600)
        both.write_bytes(config.client_certificate_pem + b"\n" + config.client_key_pem)
        context.load_cert_chain(both)


def _selection_query(selection: Selection) -> dict[str, str]:
    query = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {key: value for key, value in query.items() if value}


def _dry_run_query(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _with_kind(item: Object, resource: Resource) -> Object:
    """Kubernetes leaves kind and apiVersion out of the items of a list."""
    if "kind" in item:
        return item
    return {"kind": resource.kind, "apiVersion": resource.api_version, **item}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines, however the server cut them into chunks."""
    begun: list[bytes] = []
    begun_bytes = 0
    async for chunk in content.iter_any():
        if b"\n" not in chunk:
            begun.append(chunk)
            begun_bytes += len(chunk)
            if begun_bytes > MAX_WATCH_LINE_BYTES:
                raise aiohttp.ClientPayloadError("a line of the watch is too long")
            continue
        *lines, rest = (b"".join([*begun, chunk]) if begun else chunk).split(b"\n")
        begun = [rest] if rest else []
        begun_bytes = len(rest)
        for line in lines:
            if line.strip():
                yield line
    if begun:
        raise aiohttp.ClientPayloadError("the watch ended in the middle of a line")


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Leave a watch at once: a polite end of TLS would wait for a server that is still talking."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _watch_event(event: Object) -> WatchEvent:
    if event["type"] == "ERROR":
        raise StatusError.from_status(event["object"], 500)
    return WatchEvent(EventType(event["type"]), event["object"])


def _refusal(code: int, body: bytes) -> StatusError:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return StatusError.from_status(status, code)
    text = body[:300].decode(errors="replace").strip()
    message = f"the server answered {code}" + (f": {text}" if text else "")
    return StatusError(code, _REASONS.get(code, "Unknown"), message)


def _why(failure: Exception) -> str:
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({failure.certificate_error})"
    if isinstance(failure, aiohttp.ClientConnectorError):
        number = failure.os_error.errno or 0
        # asyncio hides the ordinary words behind a "Connect call failed"
        return os.strerror(number).lower() if number > 0 else str(failure.os_error)
    if isinstance(failure, TimeoutError):
        return "it did not answer in time"
    return str(failure) or type(failure).__name__
