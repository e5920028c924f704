"""Accepts connections, and limits how many stay open whose clients have not authenticated.

A connection is pending from when it is accepted, through TLS, until the application knows who asks
on it. Where an address has too many, its oldest goes; where all together have too many, the oldest
that is not from this machine. So a flood of connections closes its own: a client that
authenticates at once comes in, and clients on this machine are not shut out by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable

import msgspec

from livesize.apiserver.http.peers import PeerProtocol
from livesize.machinery.tasks import OwnedTasks
from livesize.machinery.telemetry import get_logger

_log = get_logger("apiserver.pending_connections")

HANDSHAKE_SECONDS = 20.0
SHUTDOWN_SECONDS = 3.0  # in which the other side may say goodbye too
ACCEPTED_AT_ONCE = 64
PAUSE_SECONDS = 0.5  # where the process has no descriptor left for one more


class PendingLimits(msgspec.Struct, frozen=True):
    """Of connections whose clients have not authenticated."""

    per_address: int = 128
    in_all: int = 1024


class PendingConnection:
    """One connection that may still be closed in favour of another."""

    __slots__ = ("_pending", "address", "close")

    def __init__(
        self, pending: PendingConnections, address: str, close: Callable[[], None]
    ) -> None:
        self._pending = pending
        self.address = address
        self.close = close

    def leave(self) -> None:
        self._pending.remove(self)


class PendingConnections:
    """All of them, by address, the oldest first."""

    def __init__(self, limits: PendingLimits) -> None:
        self._limits = limits
        self._by_address: dict[str, dict[PendingConnection, None]] = {}
        self._all: dict[PendingConnection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, address: str, close: Callable[[], None]) -> PendingConnection:
        pending = PendingConnection(self, address, close)
        self._by_address.setdefault(address, {})[pending] = None
        self._all[pending] = None
        if len(self._by_address[address]) > self._limits.per_address:
            self._drop(next(iter(self._by_address[address])))
        elif len(self._all) > self._limits.in_all:
            self._drop(self._oldest_remote())
        return pending

    def remove(self, pending: PendingConnection) -> None:
        """Harmless for one that has left."""
        if self._all.pop(pending, pending) is pending:
            return
        here = self._by_address[pending.address]
        del here[pending]
        if not here:
            del self._by_address[pending.address]

    def _oldest_remote(self) -> PendingConnection:
        """Of another machine, if there is one."""
        for pending in self._all:
            if pending.address != LOCAL:
                return pending
        return next(iter(self._all))

    def _drop(self, pending: PendingConnection) -> None:
        self.remove(pending)
        _log.debug("connection closed for another", address=pending.address)
        pending.close()


LOCAL = "this machine"


def address_of(host: str) -> str:
    """Whom it counts for: an address, of IPv6 all that one machine can give itself."""
    found = ipaddress.ip_address(host.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return LOCAL
    return (
        str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
    )


class Acceptor:
    """Takes connections from a listening socket until it is closed."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        protocol: Callable[[], PeerProtocol],
        limits: PendingLimits,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tls = tls
        self._protocol = protocol
        self._arriving = OwnedTasks()
        self.pending = PendingConnections(limits)
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """No further ones; those that are in TLS's handshake end."""
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._arriving.cancel()

    async def wait_closed(self) -> None:
        await self._arriving.wait()

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failure:  # no descriptor, or no memory, for one more
                _log.error("connections are not accepted for a while", why=str(failure))
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            arriving = self._arrive(connection, address_of(str(peer[0])))
            self._arriving.start(arriving, name="arriving connection")

    async def _arrive(self, connection: socket.socket, address: str) -> None:
        """Through TLS, to a protocol that ends its being pending, once it is known who asks."""
        connection.setblocking(False)
        pending = self.pending.add(address, lambda: _hang_up(connection))
        try:
            protocol = self._protocol()
            protocol.arrived(pending.leave)
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS if self._tls else None,
            )
        except OSError as failure:  # TLS's errors and timeouts are such too
            pending.leave()
            _log.debug("connection failed before a request", address=address, why=str(failure))
        except BaseException:
            pending.leave()
            raise


def _hang_up(connection: socket.socket) -> None:
    """Both ways; whoever reads from it sees its end, and closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
