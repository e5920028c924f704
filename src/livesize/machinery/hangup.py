"""Whether the other side of a connection has gone, also while nothing is read from it.

A connection that is not read, because what it carries has nowhere to go, tells nobody of its end.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from typing import Protocol

from livesize.machinery.clock import Clock

LOOK_SECONDS = 1.0
_AT_ONCE = struct.pack("ii", 1, 0)
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def has_hung_up(connection: HasDescriptor) -> bool:
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)
    return any(event & _GONE for _, event in poll.poll(0))


async def wait_hangup(connection: HasDescriptor, clock: Clock) -> None:
    """Return soon after the other side has gone."""
    while not has_hung_up(connection):
        await clock.sleep(LOOK_SECONDS)


def cut_off(writer: asyncio.StreamWriter) -> None:
    """Close it now, and let the other side know, though it has not read all that was written: what
    waits to be read would hold up the news otherwise."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


def keep_alive(connection: socket.socket) -> None:
    """The kernel finds out within a minute where the other side vanished without a word."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
