"""The control plane of `livesize up`: API server, store, scheduler and controllers in one process.

Started by up.py with the listening socket; gives up root's rights before anything else, and ends
when told to, or when the process that started it is gone.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import msgspec

from livesize.machinery.children import wait_lifeline
from livesize.machinery.privileges import drop_privileges
from livesize.main.layout import DataDirectory
from livesize.main.stores import StoreChoice, open_store, read_etcd_settings
from livesize.store.etcd.settings import EtcdSettings


class ControlPlaneSettings(msgspec.Struct, frozen=True):
    """``user`` and ``group`` None: stay who we are. ``listener`` is an inherited descriptor."""

    directory: str
    listener: int
    user: int | None
    group: int | None
    log_level: str
    http: str = "uvicorn"
    audit_log: str = ""
    audit_level: str = "metadata"
    store: StoreChoice = StoreChoice()


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=ControlPlaneSettings)
    directory = DataDirectory(Path(settings.directory))
    # Before the rights are gone: the key for etcd may be root's.
    etcd = read_etcd_settings(settings.store) if settings.store.store == "etcd" else None
    if settings.user is not None:
        assert settings.group is not None
        keep = [directory.control]
        if settings.audit_log:
            keep.append(Path(settings.audit_log).parent)
        drop_privileges(settings.user, settings.group, keep=keep)

    import uvloop

    from livesize.machinery.telemetry import set_up_logging

    set_up_logging(settings.log_level)
    # The store's writer needs the interpreter's lock a few times for each commit; at the default
    # of 5 ms a busy loop makes it wait for seconds (p99 of a commit 1.4 s, with this 9 ms).
    sys.setswitchinterval(0.0001)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(directory, settings, etcd))


async def _serve(
    directory: DataDirectory, settings: ControlPlaneSettings, etcd: EtcdSettings | None
) -> None:
    from livesize.apiserver.auth.identities import Identity, Role
    from livesize.apiserver.http.audit import AuditLevel, AuditSettings
    from livesize.apiserver.server import ApiServer, ApiServerConfig
    from livesize.apiserver.web import HttpServer
    from livesize.client.direct import DirectClient
    from livesize.controllers.garbage.reconciler import GarbageCollector
    from livesize.controllers.quota.reconciler import QuotaCounter
    from livesize.machinery.children import tell_ready
    from livesize.machinery.clock import SystemClock
    from livesize.machinery.heap import settle_heap
    from livesize.machinery.steps import CrashPoints
    from livesize.scheduler.loop import Scheduler

    clock, points = SystemClock(), CrashPoints.from_environment()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = await open_store(directory.store, etcd, clock=clock, points=points)
    listener = socket.socket(fileno=settings.listener)
    config = ApiServerConfig(
        directory.tls,
        directory.tokens,
        host=listener.getsockname()[0],
        http=HttpServer(settings.http),
        audit=AuditSettings(
            Path(settings.audit_log) if settings.audit_log else None,
            AuditLevel(settings.audit_level),
        ),
    )
    server = ApiServer(config, store, clock=clock, points=points, listener=listener)
    scheduler = Identity("system:kube-scheduler", Role.SCHEDULER)
    controllers = Identity("system:kube-controller-manager", Role.CONTROLLER)
    try:
        async with server.running(), asyncio.TaskGroup() as group:
            client = DirectClient(server.door(scheduler))
            hands = DirectClient(server.door(controllers))
            background = [
                group.create_task(Scheduler(client, clock=clock).run()),
                group.create_task(GarbageCollector(hands, clock=clock).run()),
                group.create_task(QuotaCounter(hands, clock=clock).run()),
                group.create_task(_stop_without_parent(stop)),
            ]
            settle_heap()
            tell_ready()
            await stop.wait()
            for task in background:
                task.cancel()
    finally:
        await store.close()


async def _stop_without_parent(stop: asyncio.Event) -> None:
    await wait_lifeline()
    stop.set()


if __name__ == "__main__":
    main()
