"""Where nodes answer, and how they know that it is an API server who asks.

A node on the same machine is reached by a Unix socket that this server was told at its start, never
by one that an object names. All others are reached over TLS at the address and port of their Node:
we show a certificate with the role apiserver, and they one of the cluster's authority with their
own name, so that a Node that names another's address leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from livesize.api.objects import Object, lookup, name_of
from livesize.api.roles import Role
from livesize.apiserver.auth.certificates import Authority, read_peer
from livesize.apiserver.auth.identities import Identity
from livesize.machinery.clock import Clock
from livesize.machinery.credentials import ENDPOINT_GROUP, load_identity
from livesize.machinery.hangup import cut_off, keep_alive

CONNECT_SECONDS = 5.0
_CERTIFICATE_SECONDS = 6 * 3600.0
_RENEW_SECONDS = 3600.0
_OURSELVES = Identity("system:apiserver", Role.APISERVER)


class LocalNode(msgspec.Struct, frozen=True):
    """The node whose agent is on this machine, and its socket."""

    name: str
    path: Path


class NodeUnreachableError(Exception):
    """The sentence says which node, and why."""


class Endpoints:
    """``tls_dir`` is where the cluster's authority is."""

    def __init__(self, tls_dir: Path, clock: Clock, local: LocalNode | None = None) -> None:
        self._tls_dir = tls_dir
        self._clock = clock
        self._local = local
        self._context: ssl.SSLContext | None = None
        self._made_at = 0.0

    @contextlib.asynccontextmanager
    async def connected(
        self, node: Object
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection to the node's endpoint, for as long as this is entered."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await self._connect(node)
        except TimeoutError:
            raise NodeUnreachableError(
                f"node {name_of(node)} did not answer within {CONNECT_SECONDS:.0f} s"
            ) from None
        except OSError as failure:
            raise NodeUnreachableError(f"node {name_of(node)}: {failure}") from failure
        try:
            yield reader, writer
        finally:
            cut_off(writer)

    async def _connect(self, node: Object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._local is not None and self._local.name == name_of(node):
            return await _connect_unix(self._local.path)
        address, port = _place(node)
        reader, writer = await asyncio.open_connection(address, port, ssl=self._tls())
        keep_alive(writer.get_extra_info("socket"))
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        peer = read_peer(shown) if shown else None
        if peer is None or peer.identity is None or peer.identity.node != name_of(node):
            cut_off(writer)
            raise NodeUnreachableError(
                f"who answers at {address}:{port} is not the node {name_of(node)}"
            )
        return reader, writer

    def _tls(self) -> ssl.SSLContext:
        """Ours is made by ourselves, lasts six hours and is made anew each hour. Nobody else is
        given one with this group, so that there is none to revoke."""
        now = self._clock.now()
        if self._context is None or now - self._made_at > _RENEW_SECONDS:
            context = ssl.create_default_context(cafile=str(self._tls_dir / "ca.crt"))
            context.check_hostname = False  # the node's name is in the certificate, not its address
            authority = Authority(self._tls_dir)
            certificate, key, _ = authority.issue(
                _OURSELVES, now, _CERTIFICATE_SECONDS, (ENDPOINT_GROUP,)
            )
            load_identity(context, certificate + key)
            self._context, self._made_at = context, now
        return self._context


async def _connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Through a descriptor of its folder: the path of a socket has at most 107 characters."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _place(node: Object) -> tuple[str, int]:
    port = lookup(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port", default=0)
    addresses = {
        one.get("type"): one.get("address")
        for one in lookup(node, "status", "addresses", default=[])
    }
    address = addresses.get("InternalIP") or addresses.get("Hostname")
    if not isinstance(port, int) or not port or not address:
        raise NodeUnreachableError(
            f"node {name_of(node)} has no endpoint that is reached from here: its agent came in by"
            " a token, or it is part of a `livesize up` on another machine"
        )
    return str(address), port
