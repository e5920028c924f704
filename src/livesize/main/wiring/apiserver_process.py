"""`livesize apiserver`: the API server and its store, without scheduler, controllers and agent.

Started by root it opens what only root may open (the port, etcd's key), and gives root's rights up
before it serves. The first start makes the cluster's authority, or takes one that lies in
control/tls already, and writes the admin's kubeconfig.
"""

from __future__ import annotations

import functools
import socket

import click
import msgspec

from livesize.apiserver.tls import ensure_tls
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.privileges import drop_privileges
from livesize.machinery.telemetry import set_up_logging
from livesize.main.wiring.accounts import control_plane_account
from livesize.main.wiring.apiserver import ApiServerSettings, folders_of, open_api_server
from livesize.main.wiring.apiserver_setup import (
    ApiServerOptions,
    check_api_server,
    etcd_settings,
    prepare_audit_log,
    write_credentials,
)
from livesize.main.wiring.folders import exclusive, prepare_control
from livesize.main.wiring.listeners import listen_on, parse_listen, server_url
from livesize.main.wiring.process_lifecycle import ProcessLifecycle, run_in_loop
from livesize.main.wiring.startup_errors import reported_startup_errors
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreClosedError


def run_apiserver(command: ApiServerOptions) -> None:
    """Run until SIGTERM or SIGINT. Wrong settings end in one sentence, before anything starts."""
    host, port = parse_listen(command.listen)
    settings = command.apiserver_settings()
    directory = DataDirectory(command.data_dir.absolute())
    check_api_server(settings, directory.tokens, SystemClock().now())
    set_up_logging(command.log_level, form=command.log_format)
    try:
        with reported_startup_errors():
            _serve_alone(directory, settings, host, port)
    except BaseExceptionGroup as failures:
        gone = _store_gone(failures)
        if gone is None:
            raise
        raise click.ClickException(f"the store cannot be used any more: {gone}") from failures


def _serve_alone(
    directory: DataDirectory, settings: ApiServerSettings, host: str, port: int
) -> None:
    account = control_plane_account()
    prepare_control(directory, account)
    audit_log = prepare_audit_log(settings.audit_log, account)
    settings = msgspec.structs.replace(settings, audit_log=audit_log)
    with exclusive(directory, directory.lock), listen_on(host, port) as listener:
        names = (str(listener.getsockname()[0]), *settings.tls_names)
        tls = ensure_tls(directory.tls, names, now=SystemClock().now())
        write_credentials(directory, account, server_url(listener), tls)
        etcd = etcd_settings(settings)
        if account is not None:
            drop_privileges(account.uid, account.gid, keep=folders_of(directory, settings))
        run_in_loop(functools.partial(_run, directory, settings, listener, etcd))


async def _run(
    directory: DataDirectory,
    settings: ApiServerSettings,
    listener: socket.socket,
    etcd: EtcdSettings | None,
) -> None:
    context = system_context()
    lifecycle = ProcessLifecycle(context.clock)
    async with open_api_server(directory, settings, listener, etcd, context) as server:
        await lifecycle.run(
            f"livesize apiserver is ready at {server.url}.\n"
            f"  export KUBECONFIG={directory.kubeconfig}"
        )


def _store_gone(failures: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Why, if that is all that happened: no bug of ours, and who supervises us starts us again."""
    gone, others = failures.split(StoreClosedError)
    if gone is None or others is not None:
        return None
    leaf: BaseException = gone
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf
