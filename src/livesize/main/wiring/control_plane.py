"""The control plane of `livesize up`: API server, store, scheduler and controllers in one process.

Started by up.py with the listening socket; gives up root's rights before anything else, and ends
when told to, or when the process that started it is gone.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from livesize.machinery.children import wait_lifeline
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.privileges import drop_privileges
from livesize.main.wiring.apiserver import ApiServerSettings, folders_of, open_api_server
from livesize.main.wiring.stores import open_store, read_etcd_settings
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreOpenError

if TYPE_CHECKING:
    from livesize.apiserver.server import ApiServer
    from livesize.machinery.context import Context
    from livesize.main.wiring.leader import OpenStore


class ControlPlaneSettings(msgspec.Struct, frozen=True):
    """``user`` and ``group`` None: stay who we are. ``listener`` is an inherited descriptor.
    ``holder`` is our name where others on the same store may lead instead of us."""

    directory: str
    listener: int
    user: int | None
    group: int | None
    log_level: str
    log_format: str = "text"
    holder: str = "up"
    resize_judge: str = "node"
    controllers: str = "all"
    apiserver: ApiServerSettings = ApiServerSettings()


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=ControlPlaneSettings)
    directory = DataDirectory(Path(settings.directory))
    # Before the rights are gone: the key for etcd may be root's.
    etcd = read_etcd_settings(settings.apiserver.store) if settings.apiserver.shares_store else None
    if settings.user is not None:
        assert settings.group is not None
        keep = folders_of(directory, settings.apiserver)
        drop_privileges(settings.user, settings.group, keep=keep)

    import uvloop

    from livesize.machinery.telemetry import set_up_logging

    set_up_logging(settings.log_level, form=settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(directory, settings, etcd))
    except StoreOpenError as failure:
        sys.exit(f"the control plane cannot start: {failure}")


async def _serve(
    directory: DataDirectory, settings: ControlPlaneSettings, etcd: EtcdSettings | None
) -> None:
    from livesize.machinery.children import tell_ready
    from livesize.machinery.context import system_context
    from livesize.machinery.interpreter import collect_in_pauses, settle_interpreter

    context, stop = system_context(), asyncio.Event()
    open_own_store = functools.partial(open_store, directory.store, etcd, clock=context.clock)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listener = socket.socket(fileno=settings.listener)
    async with (
        open_api_server(directory, settings.apiserver, listener, etcd, context) as server,
        asyncio.TaskGroup() as group,
    ):
        background = [
            group.create_task(_work(server, settings, open_own_store, context)),
            group.create_task(_stop_without_parent(stop)),
            group.create_task(collect_in_pauses(context.clock)),
        ]
        settle_interpreter()
        tell_ready()
        await stop.wait()
        for task in background:
            task.cancel()


async def _work(
    server: ApiServer, settings: ControlPlaneSettings, open_own_store: OpenStore, context: Context
) -> None:
    """The scheduler and the controllers; where the store is shared, only while they lead."""
    from livesize.api.roles import Role
    from livesize.apiserver.auth.identities import Identity
    from livesize.controllers.kit.metrics import KitMetrics
    from livesize.main.settings.table import Part
    from livesize.main.wiring.controllers import control
    from livesize.main.wiring.leader import lead_in_server
    from livesize.main.wiring.scheduler import schedule

    metrics = KitMetrics()
    server.add_metrics(metrics.families)
    scheduling = functools.partial(schedule, metrics=metrics, resize_judge=settings.resize_judge)
    parts = (
        (Part.SCHEDULER, scheduling, Identity("system:kube-scheduler", Role.SCHEDULER)),
        (
            Part.CONTROLLERS,
            functools.partial(control, metrics=metrics, controllers=settings.controllers),
            Identity("system:kube-controller-manager", Role.CONTROLLER),
        ),
    )
    async with asyncio.TaskGroup() as group:
        for part, work, identity in parts:
            client = server.client(identity)
            if settings.apiserver.shares_store:
                group.create_task(
                    lead_in_server(part, settings.holder, work, client, open_own_store, context)
                )
            else:
                group.create_task(work(client, context))


async def _stop_without_parent(stop: asyncio.Event) -> None:
    await wait_lifeline()
    stop.set()


if __name__ == "__main__":
    main()
