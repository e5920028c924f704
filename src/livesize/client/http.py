"""Speaks to an API server over HTTPS, plain HTTP or a Unix socket: ours or any Kubernetes.

``client = await HttpClient.open(ConnectionConfig(server=...), clock)``. Connections are our own,
kept alive and shared (livesize.client.connections); only what becomes a WebSocket goes over a
library. A watch splits its lines itself, so that no line limit applies to an object. Refusals are
StatusError; ServerUnreachableError (a ConnectionError) means that no whole answer came. Where there
are several servers, one that cannot be reached is left for the next (livesize.client.addresses). A
server that is busy and says for how long (429 or 503 with Retry-After) is asked again then, for as
long as one request may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
import orjson

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.patch import PatchType
from livesize.api.write_options import PLAIN_WRITE, FieldValidation, WriteOptions
from livesize.client.addresses import Addresses
from livesize.client.connections import (
    BusyError,
    ConnectionIdentity,
    Connections,
    NotConnectedError,
    ServerConnections,
)
from livesize.client.interface import delete_options
from livesize.client.wire import ClosedError, HttpConnection, LostError
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

log = get_logger("client.http")

CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 30.0
REQUESTS_AT_ONCE = 32
"""More wait for their turn: each would open a connection of its own, and a handshake costs more
than a request. Watches do not count."""
MAX_WATCH_LINE_BYTES = 32 * 1024 * 1024

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
    ``others``, of the same scheme, stand in when it does not answer."""

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


class ServerUnreachableError(ConnectionError):
    """No whole answer came from the server; the call may or may not have happened."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"cannot reach {server}: {why}")
        self.server = server
        self.why = why


class HttpClient:
    """Client over HTTP/1.1 with a pool of kept-alive connections."""

    def __init__(self, config: ConnectionConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.user_agent = config.user_agent  # under which the server tracks who owns a field
        self._connections = Connections(_identity(config))
        self._addresses = Addresses((config.server, *config.others))
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE)

    @classmethod
    async def open(cls, config: ConnectionConfig, clock: Clock) -> HttpClient:
        """Make ready; the first request connects."""
        return cls(config, clock)

    async def become(self, config: ConnectionConfig, clock: Clock) -> None:
        """Go on with the credentials of ``config``. Requests under way end as they began; watches
        are cut after that, and their informers take them up again."""
        self._config = msgspec.structs.replace(
            self._config,
            token=config.token,
            client_certificate_pem=config.client_certificate_pem,
            client_key_pem=config.client_key_pem,
        )
        before, self._connections = self._connections, Connections(_identity(self._config))
        try:
            await clock.sleep(self._config.request_seconds)
        finally:
            before.close("this client goes on with other credentials")

    @property
    def server(self) -> str:
        """The one that the next request goes to."""
        return self._addresses.current

    @property
    def servers(self) -> tuple[str, ...]:
        return self._config.server, *self._config.others

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        return await self._request("GET", resource.path(namespace, name, subresource))

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        query = _selection_query(selection)
        if limit:
            query["limit"] = str(limit)
        if continue_token:
            query["continue"] = continue_token
        answer = await self._request("GET", resource.path(selection.namespace), query=query)
        metadata = answer.get("metadata") or {}
        items = tuple(_with_kind(item, resource) for item in answer.get("items") or ())
        return ObjectList(
            items, str(metadata.get("resourceVersion", "")), str(metadata.get("continue") or "")
        )

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        query = {
            **_selection_query(selection),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
        }
        if initial_events:
            # Servers that do not know the first refuse the second, instead of ignoring both.
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        target, server = _target(resource.path(selection.namespace), query), self.server
        lines = _WatchLines()
        with self._reaching(server):
            connections = self._connections.to(server)
            connection = await self._begin(connections, target, self._config.request_seconds)
            try:
                if connection.status >= 300:
                    raise _refusal(connection.status, await connection.rest())
                with self._addresses.watched(server, connection.abort):
                    while piece := await connection.read():
                        for line in lines.take(piece):
                            yield _watch_event(orjson.loads(line))
                    lines.end()
            finally:
                connections.give_back(connection)

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        path = resource.path(namespace or namespace_of(obj))
        return await self._request("POST", path, obj, query=_write_query(options))

    async def update(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        path = resource.path(namespace_of(obj), name_of(obj), subresource)
        return await self._request("PUT", path, obj, query=_write_query(options))

    async def patch(  # noqa: PLR0913 - the parts of a PATCH request
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        query = _write_query(options)
        if patch_type is PatchType.APPLY:
            query.setdefault("fieldManager", self.user_agent)
        path = resource.path(namespace, name, subresource)
        return await self._request("PATCH", path, patch, query=query, body_type=patch_type.value)

    async def delete(  # noqa: PLR0913 - the parts of a DELETE request
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> Object:
        options = delete_options(grace_period_seconds, uid, propagation, dry_run=dry_run)
        return await self._request("DELETE", resource.path(namespace, name), options)

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        return await self._request("POST", resource.path(namespace, name, subresource), body)

    async def ask(self, path: str) -> Any:
        """GET a path that is no object: /version, /readyz. JSON where it is JSON, else text."""
        status, body = await self._send("GET", _target(path, None), None, "")
        if status >= 400:
            raise _refusal(status, body)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return body.decode(errors="replace")

    async def submit(self, path: str, body: Object) -> Object:
        """POST to a path that is no object's."""
        return await self._request("POST", path, body)

    async def stream(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """GET what is no object and may go on for ever, as it comes."""
        server = self.server
        with self._reaching(server):
            connections = self._connections.to(server)
            connection = await self._begin(connections, _target(path, query), None)
            try:
                if connection.status >= 300:
                    raise _refusal(connection.status, await connection.rest())
                while piece := await connection.read():
                    yield piece
            finally:
                connections.give_back(connection)

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[ClientWebSocketResponse]:
        """A WebSocket, for as long as this is entered."""
        from livesize.client.websocket import UpgradeRefusedError, open_websocket

        server = self.server
        with self._reaching(server):
            self._connections.to(server)  # a closed client opens nothing
            opening = open_websocket(_identity(self._config), server, path, query, protocols)
            # A refusal has a body, which a WebSocket's handshake does not show: a GET does.
            try:
                async with opening as opened:
                    yield opened
            except UpgradeRefusedError as failure:
                status, body = await self._send("GET", _target(path, dict(query)), None, "")
                raise _refusal(status if status >= 400 else failure.status, body) from failure

    async def close(self) -> None:
        self._connections.close("this client was closed")

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
        status, answer = await self._send(method, _target(path, query), payload, body_type)
        if status >= 400:
            raise _refusal(status, answer)
        try:
            return orjson.loads(answer)  # type: ignore[no-any-return]
        except orjson.JSONDecodeError as failure:
            raise ServerUnreachableError(
                self.server, f"the answer is not JSON ({failure})"
            ) from failure

    async def _send(
        self, method: str, target: str, payload: bytes | None, body_type: str
    ) -> tuple[int, bytes]:
        """Ask; again where the server was busy. Who waits for that holds up nobody."""
        waited_seconds = 0.0
        while True:
            try:
                async with self._turns:
                    return await self._send_once(method, target, payload, body_type)
            except BusyError as busy:
                waited_seconds = await self._wait(busy, waited_seconds)

    async def _begin(
        self, connections: ServerConnections, target: str, head_seconds: float | None
    ) -> HttpConnection:
        """The same for an answer that may go on for ever, once its head is here."""
        waited_seconds = 0.0
        while True:
            try:
                async with asyncio.timeout(head_seconds):
                    return await connections.begin(target)
            except BusyError as busy:
                waited_seconds = await self._wait(busy, waited_seconds)

    async def _wait(self, busy: BusyError, waited_seconds: float) -> float:
        """How long this request has waited then; raises the refusal when that would be too long."""
        waited_seconds += busy.seconds
        if waited_seconds > self._config.request_seconds:
            raise _refusal(busy.status, busy.body) from busy
        log.info("server is busy", server=self.server, seconds=busy.seconds)
        await self._clock.sleep(busy.seconds)
        return waited_seconds

    async def _send_once(
        self, method: str, target: str, payload: bytes | None, body_type: str
    ) -> tuple[int, bytes]:
        """Ask the server, or the next one where it takes no connection: nothing was sent to the
        first then. The client does not send twice what was sent once: it may have happened."""
        loop = asyncio.get_running_loop()
        for others in reversed(range(len(self.servers))):
            server = self.server
            began = loop.time()
            try:
                async with asyncio.timeout(self._config.request_seconds):
                    connections = self._connections.to(server)
                    return await connections.ask(method, target, payload, body_type)
            except asyncio.CancelledError:
                self._addresses.given_up(server, loop.time() - began)
                raise
            except OSError as failure:
                unreachable = self._leave(server, failure)
                if not others or not isinstance(failure, NotConnectedError):
                    raise unreachable from failure
        raise AssertionError("there is at least one server")

    @contextlib.contextmanager
    def _reaching(self, server: str) -> Iterator[None]:
        """Turn every way a connection can fail into one error with a sentence."""
        try:
            yield
        except ServerUnreachableError:
            raise
        except OSError as failure:
            raise self._leave(server, failure) from failure

    def _leave(self, server: str, failure: OSError) -> ServerUnreachableError:
        """The next request goes to the next server, unless it was us who ended this one."""
        if not isinstance(failure, ClosedError):
            self._addresses.leave(server)
        return ServerUnreachableError(server, _why(failure))


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _identity(config: ConnectionConfig) -> ConnectionIdentity:
    # Nothing is said of encodings: answers stay uncompressed, the wire is short and the
    # milliseconds count.
    headers = {"Accept": "application/json", "User-Agent": config.user_agent}
    if config.token:
        headers["Authorization"] = f"Bearer {config.token}"
    return ConnectionIdentity(
        headers=headers,
        tls=_tls(config) if config.server.startswith("https://") else None,
        server_name=config.server_name,
        connect_seconds=config.connect_seconds,
    )


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
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_identity(context: ssl.SSLContext, config: ConnectionConfig) -> None:
    import tempfile

    # The ssl module reads certificates of our own from files only; this one lives microseconds.
    with tempfile.TemporaryDirectory(prefix="livesize-") as folder:
        both = Path(folder) / "identity.pem"
        both.touch(mode=0o600)
        both.write_bytes(config.client_certificate_pem + b"\n" + config.client_key_pem)
        context.load_cert_chain(both)


def _selection_query(selection: Selection) -> dict[str, str]:
    query = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {key: value for key, value in query.items() if value}


def _write_query(options: WriteOptions) -> dict[str, str]:
    if options is PLAIN_WRITE:
        return {}
    query = {
        "dryRun": "All" if options.dry_run else "",
        "fieldValidation": options.field_validation.value,
        "fieldManager": options.manager,
        "force": "true" if options.force else "",
    }
    if options.field_validation is FieldValidation.IGNORE:
        del query["fieldValidation"]
    return {key: value for key, value in query.items() if value}


def _with_kind(item: Object, resource: Resource) -> Object:
    """Kubernetes leaves kind and apiVersion out of the items of a list."""
    if "kind" in item:
        return item
    return {"kind": resource.kind, "apiVersion": resource.api_version, **item}


class _WatchLines:
    """Whole lines, however the server cut them into pieces."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        if b"\n" not in piece:
            self._begun.append(piece)
            self._begun_bytes += len(piece)
            if self._begun_bytes > MAX_WATCH_LINE_BYTES:
                raise LostError("a line of the watch is too long")
            return []
        *lines, rest = b"".join([*self._begun, piece]).split(b"\n")
        self._begun = [rest] if rest else []
        self._begun_bytes = len(rest)
        return [line for line in lines if line.strip()]

    def end(self) -> None:
        if self._begun:
            raise LostError("the watch ended in the middle of a line")


def _watch_event(event: Object) -> WatchEvent:
    if event["type"] == "ERROR":
        raise StatusError.from_status(event["object"], 500)
    return WatchEvent(WatchEventType(event["type"]), event["object"])


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
    if isinstance(failure, NotConnectedError):
        failure = failure.failure
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({failure})"
    if isinstance(failure, TimeoutError):
        return "it did not answer in time"
    if isinstance(failure, OSError) and not isinstance(failure, ssl.SSLError):
        number = failure.errno or 0
        # asyncio hides the ordinary words behind a "Connect call failed"
        return os.strerror(number).lower() if number > 0 else str(failure)
    return str(failure) or type(failure).__name__
