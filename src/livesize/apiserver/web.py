"""The web servers that the API server can run on: uvicorn, or granian where HTTP/2 is wanted.

Both take the same ASGI application and a socket that listens already, serve in this event loop, and
leave signals to the composition root. granian is an extra and imported only when asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Protocol

import uvicorn

from livesize.apiserver.http.peers import PeerProtocol
from livesize.apiserver.pending_connections import Acceptor, PendingLimits
from livesize.apiserver.tls import TlsFiles

STOP_SECONDS = 2
BACKLOG = 2048
IDLE_SECONDS = 75
"""A kept connection without a further request is closed after so long."""


class HttpServer(enum.StrEnum):
    UVICORN = "uvicorn"
    GRANIAN = "granian"


class WebServer(Protocol):
    listening: asyncio.Event

    async def run(self, listener: socket.socket) -> None:
        """Serve until told to stop."""
        ...

    def stop(self) -> None: ...


def make_web_server(kind: HttpServer, app: Any, tls: TlsFiles, limits: PendingLimits) -> WebServer:
    match kind:
        case HttpServer.UVICORN:
            return UvicornServer(app, tls, limits)
        case HttpServer.GRANIAN:
            return GranianServer(app, tls)


class UvicornServer:
    def __init__(self, app: Any, tls: TlsFiles, limits: PendingLimits) -> None:
        self.listening = asyncio.Event()
        config = uvicorn.Config(
            app,
            http=PeerProtocol,
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            ssl_certfile=tls.cert,
            ssl_keyfile=tls.key,
            # Who shows a certificate is verified; who shows none may have a token.
            ssl_ca_certs=str(tls.ca_cert),
            ssl_cert_reqs=ssl.CERT_OPTIONAL,
            timeout_graceful_shutdown=STOP_SECONDS,
            timeout_keep_alive=IDLE_SECONDS,
            backlog=BACKLOG,
        )
        self._server = _Uvicorn(config, self.listening, limits)

    async def run(self, listener: socket.socket) -> None:
        await self._server.serve([listener])

    def stop(self) -> None:
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Leaves signals alone, says when it has begun, and limits connections of unknown clients."""

    def __init__(
        self, config: uvicorn.Config, listening: asyncio.Event, limits: PendingLimits
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with an acceptor of our own."""
        self.servers = [self._acceptor(one) for one in sockets or ()]  # type: ignore[misc]
        self.started = True
        self._listening.set()

    def _acceptor(self, listener: socket.socket) -> Acceptor:
        state, config = self.server_state, self.config

        def protocol() -> PeerProtocol:
            return PeerProtocol(config, state, self.lifespan.state)

        return Acceptor(listener, config.ssl, protocol, self._limits)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class GranianServer:
    """granian's embedded server: HTTP/2 and HTTP/1.1 on one port, chosen by ALPN."""

    def __init__(self, app: Any, tls: TlsFiles) -> None:
        self.listening = asyncio.Event()
        self._app = app
        self._tls = tls
        self._stop = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        with listener:  # as uvicorn closes it
            await self._run(self._made(listener))

    async def _run(self, server: Any) -> None:
        server.on_startup(self.listening.set)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.serve(), name="granian")
            await self._stop.wait()
            server.stop()
            # What is still open after this time belongs to clients that do not hang up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await asyncio.shield(running)
            running.cancel()

    def stop(self) -> None:
        self._stop.set()

    def _made(self, listener: socket.socket) -> Any:
        from granian import net
        from granian.constants import HTTPModes, Interfaces, SSLProtocols
        from granian.server.embed import Server

        # granian's stubs know neither the holder of a descriptor nor that one may be given.
        holder: Any = vars(net)["SocketHolder"](os.dup(listener.fileno()), False, BACKLOG)

        class Inherited(Server):
            """Serves from the socket we have instead of one it binds itself."""

            def _init_shared_socket(self) -> None:
                self._ssp = None
                self._shd = holder

        host, port = listener.getsockname()[:2]
        return Inherited(
            self._app,
            address=host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=False,
            backlog=BACKLOG,
            log_enabled=False,
            ssl_cert=self._tls.cert,
            ssl_key=self._tls.key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
