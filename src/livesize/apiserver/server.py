"""Runs the API server: the watch cache, the namespaces and the HTTPS server, until told to stop.

server = ApiServer(config, store, context=context)
async with server.running():        # ready when it begins
    server.url, server.ca_path
    server.client(identity)
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import livesize
from livesize.api.kinds.registry import REGISTRY
from livesize.apiserver.auth.certificates import Authority
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.tokens import Tokens
from livesize.apiserver.bootstrap_objects import BootstrapObjects
from livesize.apiserver.commit import Committer
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.expiry.expirer import EventExpirer
from livesize.apiserver.expiry.plan import EventTerms
from livesize.apiserver.http.app import App
from livesize.apiserver.http.audit import AuditSettings, audited
from livesize.apiserver.http.limits import Budget
from livesize.apiserver.http.node_join import NODE_CERTIFICATE_SECONDS, NodeJoin
from livesize.apiserver.namespaces import ensure_lasting_namespaces, run_namespaces
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.pending_connections import PendingLimits
from livesize.apiserver.service import ApiService
from livesize.apiserver.streaming.endpoints import Endpoints, LocalNode
from livesize.apiserver.streaming.streams import NodeStreams
from livesize.apiserver.tls import ensure_tls
from livesize.apiserver.web import BACKLOG, HttpServer, make_web_server
from livesize.machinery.context import Context
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.machinery.telemetry import get_logger
from livesize.store.interface import Store, StoreUnavailableError

if TYPE_CHECKING:
    from livesize.machinery.exposition import Family

_log = get_logger("apiserver")

COMPACT_SECONDS = 300.0


class ApiServerConfig(msgspec.Struct, frozen=True):
    """``port`` 0 takes a free one; ``names`` are further host names for the certificate."""

    tls_dir: Path
    tokens: Path
    host: str = "127.0.0.1"
    port: int = 7443
    names: tuple[str, ...] = ()
    event_terms: EventTerms = EventTerms()
    budget: Budget = Budget()
    pending_limits: PendingLimits = PendingLimits()
    trusts_editors: bool = True  # to run programs as processes of a machine (design 5.6)
    http: HttpServer = HttpServer.UVICORN
    audit: AuditSettings = AuditSettings()
    node_certificate_seconds: float = NODE_CERTIFICATE_SECONDS
    local_node: LocalNode | None = None
    stop_delay_seconds: float = 0.0  # so long it serves on after it has said that it is not ready


class ApiServer:
    """One API server in this process."""

    def __init__(
        self,
        config: ApiServerConfig,
        store: Store,
        *,
        context: Context,
        points: CrashPoints = NO_CRASH_POINTS,
        listener: socket.socket | None = None,
    ) -> None:
        """``listener``: a socket that listens already, instead of the host and port."""
        self._config = config
        self._store = store
        self._listener = listener
        self._clock = context.clock
        self._port = 0
        self._ready = False
        self._other_metrics: list[Callable[[], Iterable[Family]]] = []
        REGISTRY.seal()  # routes, caches and documents are made from the list of kinds
        self._cache = ObjectsCache(store)
        self.service = ApiService(
            store,
            self._cache,
            context,
            points,
            trusts_editors=config.trusts_editors,
        )
        committer = Committer(store, self._cache, points)
        self._events = EventExpirer(self._cache, committer, self._clock, config.event_terms)

    @property
    def port(self) -> int:
        """The port it listens on; known once it runs."""
        assert self._port, "not running"
        return self._port

    @property
    def url(self) -> str:
        host = self._config.host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"

    @property
    def ca_path(self) -> Path:
        return self._config.tls_dir / "ca.crt"

    def client(self, identity: Identity) -> DirectClient:
        """For parts in the same process."""
        return DirectClient(self.service, identity)

    def add_metrics(self, families: Callable[[], Iterable[Family]]) -> None:
        """/metrics also serves what another part of this process counts."""
        self._other_metrics.append(families)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ApiServer]:
        """Serves from when this is entered until it is left."""
        tls = ensure_tls(
            self._config.tls_dir, (self._config.host, *self._config.names), self._clock.now()
        )
        listener = self._listener or _listen(self._config.host, self._config.port)
        # Accepted connections inherit it. asyncio by itself sets it only where a socket says that
        # it is TCP, which those accepted from a plain listener do not.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = listener.getsockname()[1]
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            background = [group.create_task(self._cache.run(), name="watch cache")]
            await self._cache.loaded.wait()
            bootstrap = BootstrapObjects(self.ca_path.read_text(), self._config.host, self._port)
            await ensure_lasting_namespaces(self.service, bootstrap)
            namespaces = run_namespaces(self.service, bootstrap, clock=self._clock)
            background.append(group.create_task(namespaces, name="namespaces"))
            background.append(group.create_task(self._compact(), name="compaction"))
            background.append(group.create_task(self._events.run(), name="events"))
            app = self._app()
            background.append(group.create_task(app.run_loop_lag(), name="loop lag"))
            audited_app = stack.enter_context(audited(app, self._config.audit, self._clock))
            server = make_web_server(
                self._config.http, audited_app, tls, self._config.pending_limits
            )
            web = group.create_task(server.run(listener), name="web server")
            await server.listening.wait()
            self._ready = True
            _log.info("serving", url=self.url, revision=self._cache.revision)
            try:
                yield self
            finally:
                self._ready = False
                if self._config.stop_delay_seconds > 0:
                    await self._clock.sleep(self._config.stop_delay_seconds)
                self._cache.close_watchers()
                server.stop()
                await asyncio.shield(web)
                for task in background:
                    task.cancel()

    def _app(self) -> App:
        tokens = Tokens(self._config.tokens)
        return App(
            self.service,
            tokens,
            self._clock,
            version=livesize.VERSION,
            is_ready=lambda: self._ready,
            other_metrics=self._other_metrics,
            budget=self._config.budget,
            streams=NodeStreams(
                self._cache,
                self._endpoints(),
                self._clock,
                trusts_editors=self._config.trusts_editors,
            ),
            joining=NodeJoin(
                Authority(self._config.tls_dir),
                tokens,
                self._cache,
                self._clock,
                self._config.node_certificate_seconds,
                sees_certificates=self._config.http is not HttpServer.GRANIAN,
            ),
        )

    def _endpoints(self) -> Endpoints:
        return Endpoints(self._config.tls_dir, self._clock, self._config.local_node)

    async def _compact(self) -> None:
        """Forget what was replaced more than one to two periods ago."""
        before = self._cache.revision
        while True:
            await self._clock.sleep(COMPACT_SECONDS)
            if before:
                with contextlib.suppress(StoreUnavailableError):  # the next time, then
                    await self._store.compact(before)
            before = self._cache.revision


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
