"""The connections of one identity: opened when needed, kept while idle, shared by all requests.

``Connections.to(server)`` are those to one server. A request takes the connection that became idle
last, or opens one. Where the server has just closed an idle one, a GET that got not a byte of an
answer is asked once more; nothing else is, because it may have happened. NotConnectedError: the
server took no connection, so nothing was sent. BusyError: it answered 429 or 503 with Retry-After.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from livesize.client.wire import ClosedError, HttpConnection, LostError

KEEP_ALIVE_SECONDS = 60.0
UNIX = "unix://"
_DEAD_PEER_IDLE_SECONDS = 15
_DEAD_PEER_PROBE_SECONDS = 5
_DEAD_PEER_PROBES = 3
_BUSY = frozenset((429, 503))
_SHORTEST_BUSY_SECONDS = 0.1
_TARGET = re.compile(r"/[\x21-\x7e]*")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class NotConnectedError(ConnectionError):
    """There is no connection, because of ``failure``; nothing was sent."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(str(failure))
        self.failure = failure


class BusyError(Exception):
    """The server did not do it; the client may ask again after ``seconds``."""

    def __init__(self, status: int, body: bytes, seconds: float) -> None:
        super().__init__(f"status {status}, again after {seconds:g} s")
        self.status = status
        self.body = body
        self.seconds = seconds


class ConnectionIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The client's own, the same at every server. ``tls`` is for servers with https."""

    headers: Mapping[str, str]
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    connect_seconds: float


class Connections:
    """To all servers, until ``close``."""

    def __init__(self, identity: ConnectionIdentity) -> None:
        self._identity = identity
        self._servers: dict[str, ServerConnections] = {}
        self._closed_because = ""

    def to(self, server: str) -> ServerConnections:
        found = self._servers.get(server)
        if found is not None:
            return found
        if self._closed_because:
            raise ClosedError(self._closed_because)
        try:
            made = ServerConnections(parse_server(server), self._identity)
        except ValueError as failure:
            raise NotConnectedError(failure) from failure
        self._servers[server] = made
        return made

    def close(self, why: str) -> None:
        """Cut everything; callers that wait get ClosedError with ``why``."""
        self._closed_because = why
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close(why)


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of https://host:port/prefix, http:// or unix:///path. ``socket_path`` is a Unix
    socket's; ``host_header`` is how requests name the host."""

    host: str = ""
    port: int = 0
    is_tls: bool = False
    prefix: str = ""
    host_header: str = "localhost"
    socket_path: str = ""


def parse_server(server: str) -> ServerAddress:
    """Raises ValueError."""
    if server.startswith(UNIX):
        return ServerAddress(socket_path=server.removeprefix(UNIX))
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it is neither https://host:port, http://host:port nor unix:///path")
    is_tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/")
    return ServerAddress(
        host=parts.hostname,
        port=parts.port or (443 if is_tls else 80),
        is_tls=is_tls,
        prefix=quote(prefix, safe="/%") if prefix else "",
        host_header=parts.netloc.rpartition("@")[2],
    )


class ServerConnections:
    """To one server."""

    def __init__(self, address: ServerAddress, identity: ConnectionIdentity) -> None:
        self._address = address
        self._identity = identity
        self._head = _constant_head(address, identity)
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed_because = ""

    async def ask(
        self,
        method: str,
        target: str,
        payload: bytes | None = None,
        body_type: str = "",
    ) -> tuple[int, bytes]:
        """Status and body of the whole answer."""
        request = self._request(method, target, payload, body_type)
        connection = self._take_idle()
        if connection is not None:
            try:
                answer = await connection.ask(request)
            except LostError:
                if method != "GET" or connection.was_heard:
                    raise
            else:
                return self._answered(connection, answer)
        connection = await self._connect()
        return self._answered(connection, await connection.ask(request))

    def _answered(self, connection: HttpConnection, answer: tuple[int, bytes]) -> tuple[int, bytes]:
        self.give_back(connection)
        if answer[0] in _BUSY:
            _raise_busy(connection, answer[1])
        return answer

    async def begin(self, target: str) -> HttpConnection:
        """GET what may go on for ever: a connection with the head of its answer, which is given
        back in any case."""
        connection = await self._begin(self._request("GET", target, None, ""))
        if connection.status in _BUSY:
            try:
                _raise_busy(connection, await connection.rest())
            finally:
                self.give_back(connection)
        return connection

    async def _begin(self, request: bytes) -> HttpConnection:
        connection = self._take_idle()
        if connection is not None:
            try:
                await connection.begin(request)
            except LostError:
                if connection.was_heard:
                    raise
            else:
                return connection
        connection = await self._connect()
        await connection.begin(request)
        return connection

    def give_back(self, connection: HttpConnection) -> None:
        """The next request may take it, unless it ended, or is in the middle of something."""
        if not connection.is_free:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweep_after(KEEP_ALIVE_SECONDS)

    def close(self, why: str) -> None:
        self._closed_because = why
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in tuple(self._open):
            connection.abort(ClosedError(why))

    def _request(self, method: str, target: str, payload: bytes | None, body_type: str) -> bytes:
        if _TARGET.fullmatch(target) is None:
            # A blank or a line break in a name would end the line, and begin another request.
            target = quote(target, safe="/%?&=:,;@!$'()*+~-._")
        line = f"{method} {self._address.prefix}{target} HTTP/1.1\r\n".encode("ascii")
        if payload is None:
            return b"%b%b\r\n" % (line, self._head)
        return b"%b%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            *(line, self._head, body_type.encode("ascii"), len(payload)),
            payload,
        )

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_free:
                return connection
        return None

    async def _connect(self) -> HttpConnection:
        try:
            async with asyncio.timeout(self._identity.connect_seconds):
                connection = await self._connected()
        except (OSError, ValueError) as failure:
            raise NotConnectedError(failure) from failure
        if self._closed_because:
            connection.abort(ClosedError(self._closed_because))
        elif connection.is_free:
            self._open.add(connection)
        return connection

    async def _connected(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        address = self._address
        if address.socket_path:
            _, made = await loop.create_unix_connection(self._connection, address.socket_path)
            return made
        connected = await _connected_socket(address, self._identity.connect_seconds)
        tls = self._identity.tls if address.is_tls else None
        name = (self._identity.server_name or address.host) if tls is not None else None
        _, made = await loop.create_connection(
            self._connection, sock=connected, ssl=tls, server_hostname=name
        )
        return made

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._forget)

    def _forget(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _sweep_after(self, seconds: float) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """End what was idle for too long; the oldest come first."""
        self._sweeping = None
        oldest_allowed = asyncio.get_running_loop().time() - KEEP_ALIVE_SECONDS
        while self._idle and self._idle[0].idle_since <= oldest_allowed:
            self._idle.pop(0).abort()
        if self._idle:
            self._sweep_after(self._idle[0].idle_since - oldest_allowed)


def _constant_head(address: ServerAddress, identity: ConnectionIdentity) -> bytes:
    """Raises ValueError; the sentence does not show the value, which may be a secret."""
    lines = []
    for name, value in {"Host": address.host_header, **identity.headers}.items():
        if _HEADER_VALUE.fullmatch(value) is None:
            raise ValueError(f"what we would send as {name} holds a character no header may have")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("ascii")


async def _connected_socket(address: ServerAddress, seconds: float) -> socket.socket:
    """To the first address of the host that takes it. Each has its share of the time, so that one
    that is silent does not use up that of the others."""
    found = await _resolved(address.host, address.port)
    for others, info in zip(reversed(range(len(found))), found, strict=True):
        made = open_socket(info)
        try:
            async with asyncio.timeout(seconds / len(found) if others else None):
                await asyncio.get_running_loop().sock_connect(made, info[4])
        except OSError:
            made.close()
            if not others:
                raise
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise OSError(f"{address.host} has no address")


async def _resolved(host: str, port: int) -> list[Any]:
    try:  # an address needs no resolver, and no thread that waits for it
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def open_socket(info: Any) -> socket.socket:
    """A socket that notices a peer that vanished, even in a watch that is silent for hours."""
    family, kind, protocol = info[0], info[1], info[2]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_PEER_IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _DEAD_PEER_PROBE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _DEAD_PEER_PROBES)
    return made


def _raise_busy(connection: HttpConnection, body: bytes) -> None:
    """Where the answer says when to ask again, in seconds; API servers send no dates."""
    word = connection.retry_after
    if word.isdigit():
        raise BusyError(connection.status, body, max(float(word), _SHORTEST_BUSY_SECONDS))
