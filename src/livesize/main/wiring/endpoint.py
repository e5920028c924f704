"""Where a node's agent answers API servers: a Unix socket on one machine, TLS between machines."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from livesize.agent.endpoint.server import Endpoint
from livesize.client.http import ConnectionConfig
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import Clock
from livesize.machinery.credentials import load_identity
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.accounts import Account
from livesize.main.wiring.listeners import listen_on

BACKLOG = 128
LOOK_SECONDS = 60.0


@contextlib.contextmanager
def local_endpoint(directory: DataDirectory, account: Account | None) -> Iterator[Endpoint]:
    """For the control plane's user alone. The one of an agent before us makes room."""
    path = directory.endpoint
    path.unlink(missing_ok=True)
    user = os.geteuid() if account is None else account.uid
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _bind(listener, path)
        try:
            listener.listen(BACKLOG)
            yield Endpoint(listener, users=frozenset({user, os.geteuid()}))
        finally:
            path.unlink(missing_ok=True)


def _bind(listener: socket.socket, path: Path) -> None:
    """Through its folder: the path of a socket has at most 107 characters. Who may enter that may
    connect; who is answered is another question."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o111)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.umask(before)
        os.close(folder)


def open_tls_endpoint(host: str, port: int, connection: ConnectionConfig) -> Endpoint | None:
    """With the certificate that this node has joined with; None where it came in by a token."""
    if not connection.client_certificate_pem:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_verify_locations(cadata=connection.ca_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    load_identity(context, _pem(connection))
    return Endpoint(listen_on(host, port, "--endpoint-listen"), context)


def port_of(endpoint: Endpoint | None) -> int:
    return 0 if endpoint is None else int(endpoint.listener.getsockname()[1])


async def keep_identity(endpoint: Endpoint, kubeconfig: Path, clock: Clock) -> None:
    """Until cancelled: what has been renewed is shown to who connects from then on."""
    shown = kubeconfig.stat().st_mtime_ns
    while True:
        await clock.sleep(LOOK_SECONDS)
        written = kubeconfig.stat().st_mtime_ns
        if written != shown and endpoint.tls is not None:
            fresh = connection_from(kubeconfig)
            load_identity(endpoint.tls, _pem(fresh))
            shown = written


def _pem(connection: ConnectionConfig) -> bytes:
    return connection.client_certificate_pem + b"\n" + connection.client_key_pem
