"""Serves what only this node can tell: logs, exec, attach and ports of its pods.

    GET /logs/POD-UID/CONTAINER?follow&previous&since&tailLines&limitBytes&timestamps
    GET /exec/POD-UID/CONTAINER?command=…&stdin&tty      WebSocket (channels.py)
    GET /attach/POD-UID/CONTAINER?stdin&tty              WebSocket (channels.py)
    GET /portforward/POD-UID?port=…                      WebSocket (forwarding.py); without
                                                         port any may be forwarded

Only an API server is served: on a Unix socket its user is known to the kernel, over TCP it
shows a certificate of the cluster's authority that API servers make for themselves alone, for a
few hours; no other is good here, whatever its role, so that there is none that could be revoked.
Which user of the cluster may do what has been decided there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from livesize.agent.endpoint.forwarding import PROTOCOL, Tunnel
from livesize.agent.endpoint.logs import send_log
from livesize.agent.endpoint.sessions import carry, make_socket, refuse
from livesize.machinery.clock import Clock
from livesize.machinery.credentials import ENDPOINT_GROUP
from livesize.machinery.hangup import keep_alive
from livesize.machinery.tasks import run_in_own_task
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import GoneError, Runtime, RuntimeCallError
from livesize.runtime.streams import AttachRequest, ExecRequest, LogQuery, NotRunningError, Session

MAX_SERVED = 500
STOP_SECONDS = 2.0
LISTENING_SECONDS = 0.03
"""So long nothing is said on a new session: kubectl begins to read before it knows its streams, and
throws away what comes in between."""
_NAMES = {"logs": 2, "exec": 2, "attach": 2, "portforward": 1}
_MOST_LINE_BYTES = 512 * 1024  # a command stands in it, each byte of which may take three
# The socket's file belongs to who made it; from Python 3.13 on a server would remove it, and look
# for it by a path that is of use only while it is made.
_KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of who connected (unix(7))

_log = get_logger("agent.endpoint")


class Endpoint(msgspec.Struct, frozen=True):
    """Where it is served. ``tls`` None: a Unix socket, for these users alone."""

    listener: socket.socket
    tls: ssl.SSLContext | None = None
    users: frozenset[int] = frozenset()


class EndpointServer:
    def __init__(self, endpoint: Endpoint, runtime: Runtime, clock: Clock) -> None:
        self._endpoint = endpoint
        self._runtime = runtime
        self._clock = clock
        self._served = 0
        self._routes: Mapping[str, Callable[..., Awaitable[web.StreamResponse]]] = {
            "logs": self._logs,
            "exec": self._exec,
            "attach": self._attach,
            "portforward": self._forward,
        }

    async def run(self) -> None:
        """Until cancelled; what is under way is then ended."""
        async with self._serving():
            await asyncio.get_running_loop().create_future()

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        web_server = web.Server(
            self._answer, handler_cancellation=True, max_line_size=_MOST_LINE_BYTES
        )
        where = self._endpoint
        if where.tls is None:
            server = await loop.create_unix_server(web_server, sock=where.listener, **_KEEP_SOCKET)
        else:
            server = await loop.create_server(web_server, sock=where.listener, ssl=where.tls)
        try:
            yield
        finally:
            server.close()
            await web_server.shutdown(STOP_SECONDS)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        kind, *names = request.path.strip("/").split("/")
        route = self._routes.get(kind)
        if not self._is_apiserver(request):
            return _refusal(403, "only an API server of this cluster is answered here")
        if route is None or request.method != "GET" or len(names) != _NAMES[kind]:
            return _refusal(404, "there is nothing at this path")
        if self._served >= MAX_SERVED:
            return _refusal(429, f"this node serves {MAX_SERVED} streams already")
        self._served += 1
        try:
            return await route(request, *names)
        except RuntimeCallError as failure:
            return _refusal(_status_of(failure), str(failure))
        finally:
            self._served -= 1

    def _is_apiserver(self, request: web.BaseRequest) -> bool:
        transport = request.transport
        if transport is None:
            return False
        connection = transport.get_extra_info("socket")
        if self._endpoint.tls is None:
            credentials = connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
            return _CREDENTIALS.unpack(credentials)[1] in self._endpoint.users
        keep_alive(connection)
        return ENDPOINT_GROUP in _organizations(transport.get_extra_info("peercert") or {})

    async def _logs(
        self, request: web.BaseRequest, pod_uid: str, container: str
    ) -> web.StreamResponse:
        query = request.query
        log_query = LogQuery(
            pod_uid=pod_uid,
            container=container,
            previous="previous" in query,
            follow="follow" in query,
            since=float(query["since"]) if "since" in query else None,
            tail_lines=int(query["tailLines"]) if "tailLines" in query else None,
        )
        limit = int(query["limitBytes"]) if "limitBytes" in query else None
        lines = self._runtime.read_log(log_query)
        timestamps = "timestamps" in query
        return await send_log(request, lines, timestamps=timestamps, limit_bytes=limit)

    async def _exec(
        self, request: web.BaseRequest, pod_uid: str, container: str
    ) -> web.StreamResponse:
        command = ExecRequest(
            pod_uid=pod_uid,
            container=container,
            command=tuple(request.query.getall("command", [])),
            stdin="stdin" in request.query,
            tty="tty" in request.query,
        )
        _log.info("exec", pod=pod_uid, container=container, program=command.command[0])
        return await self._session(request, self._runtime.exec(command))

    async def _attach(
        self, request: web.BaseRequest, pod_uid: str, container: str
    ) -> web.StreamResponse:
        stdin, tty = ("stdin" in request.query), ("tty" in request.query)
        attachment = AttachRequest(pod_uid, container, stdin, tty)
        return await self._session(request, self._runtime.attach(attachment))

    async def _session(
        self, request: web.BaseRequest, opening: Awaitable[Session]
    ) -> web.StreamResponse:
        """What does not run is refused at once; a command that cannot be run is told within."""
        why, session = "", None
        try:
            session = await opening
        except (NotRunningError, GoneError):
            raise
        except RuntimeCallError as failure:
            why = str(failure)
        stream = make_socket()
        try:
            await stream.prepare(request)
            await self._clock.sleep(LISTENING_SECONDS)
        except BaseException:
            if session is not None:
                await run_in_own_task(session.close())
            raise
        if session is None:
            await refuse(stream, f"error executing command in container: {why}")
        else:
            await carry(request, stream, session, self._clock)
        return stream

    async def _forward(self, request: web.BaseRequest, pod_uid: str) -> web.StreamResponse:
        if self._runtime.pod(pod_uid) is None:
            raise GoneError(f"pod {pod_uid} does not run here")
        assert request.transport is not None, "who is not connected was not let in"
        connection = request.transport.get_extra_info("socket")
        stream = make_socket((PROTOCOL,))
        await stream.prepare(request)
        ports = frozenset(map(int, request.query.getall("port", [])))
        tunnel = Tunnel(stream, lambda port: self._runtime.connect(pod_uid, port), ports)
        await tunnel.run(connection, self._clock)
        return stream


def _status_of(failure: RuntimeCallError) -> int:
    match failure:
        case NotRunningError():
            return 400
        case GoneError():
            return 404
        case _:
            return 500


def _refusal(status: int, sentence: str) -> web.Response:
    return web.Response(status=status, text=sentence)


def _organizations(certificate: Mapping[str, Any]) -> set[str]:
    """The groups of a certificate that TLS has verified."""
    return {
        str(value)
        for part in certificate.get("subject", ())
        for name, value in part
        if name == "organizationName"
    }
