"""An API server with its store, the same in `livesize up` and `livesize apiserver`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.listeners import is_loopback
from livesize.main.wiring.stores import StoreChoice, open_store

if TYPE_CHECKING:
    from livesize.apiserver.server import ApiServer
    from livesize.apiserver.streaming.endpoints import LocalNode
    from livesize.machinery.context import Context
    from livesize.store.etcd.settings import EtcdSettings


class ApiServerSettings(msgspec.Struct, frozen=True):
    http: str = "uvicorn"
    audit_log: str = ""
    audit_level: str = "metadata"
    tls_names: tuple[str, ...] = ()
    stop_delay_seconds: float = 0.0
    store: StoreChoice = StoreChoice()
    trust_editors: bool = False
    local_node: str = ""  # whose agent answers at the data directory's socket

    @property
    def shares_store(self) -> bool:
        """Other API servers may use the same store, with schedulers and controllers of theirs."""
        return self.store.store == "etcd"


def folders_of(directory: DataDirectory, settings: ApiServerSettings) -> list[Path]:
    """What the API server must reach when root's rights are given up."""
    audit = [Path(settings.audit_log).parent] if settings.audit_log else []
    return [directory.control, *audit]


def trusts_editors(settings: ApiServerSettings, host: str) -> bool:
    """With containers that are processes of a machine: where only this machine is answered, or the
    admin says so (design 5.6)."""
    return settings.trust_editors or is_loopback(host)


@contextlib.asynccontextmanager
async def open_api_server(
    directory: DataDirectory,
    settings: ApiServerSettings,
    listener: socket.socket,
    etcd: EtcdSettings | None,
    context: Context,
) -> AsyncIterator[ApiServer]:
    """Serve from when this is entered until it is left."""
    from livesize.apiserver.http.audit import AuditLevel, AuditSettings
    from livesize.apiserver.server import ApiServer, ApiServerConfig
    from livesize.apiserver.web import HttpServer
    from livesize.machinery.steps import CrashPoints

    points = CrashPoints.from_environment()
    store = await open_store(directory.store, etcd, clock=context.clock, points=points)
    config = ApiServerConfig(
        directory.tls,
        directory.tokens,
        host=listener.getsockname()[0],
        names=settings.tls_names,
        trusts_editors=trusts_editors(settings, str(listener.getsockname()[0])),
        http=HttpServer(settings.http),
        audit=AuditSettings(
            Path(settings.audit_log) if settings.audit_log else None,
            AuditLevel(settings.audit_level),
        ),
        local_node=_local_node(directory, settings),
        stop_delay_seconds=settings.stop_delay_seconds,
    )
    server = ApiServer(config, store, context=context, points=points, listener=listener)
    try:
        async with server.running():
            yield server
    finally:
        await store.close()


def _local_node(directory: DataDirectory, settings: ApiServerSettings) -> LocalNode | None:
    from livesize.apiserver.streaming.endpoints import LocalNode

    name = settings.local_node
    return LocalNode(name, directory.endpoint) if name else None
