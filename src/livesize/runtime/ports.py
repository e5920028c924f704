"""Connects to a port of a pod: on this machine's network, or inside a network of the pod's own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
from concurrent.futures import ThreadPoolExecutor

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.streams import PortStreams

CONNECT_SECONDS = 10.0
_CLONE_NEWNET = 1 << 30
_HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_libc = ctypes.CDLL(None, use_errno=True)


async def connect_port(port: int, network_of: int | None) -> PortStreams:
    """``network_of``: a process inside the pod's network; None: this machine's."""
    loop, problem = asyncio.get_running_loop(), ""
    for family, host in _HOSTS:
        try:
            made = await loop.run_in_executor(None, _make_socket, family, network_of)
            return await _connect(made, host, port)
        except TimeoutError:
            problem = f"nothing answers within {CONNECT_SECONDS:.0f} s"
        except OSError as failure:
            problem = problem or os.strerror(failure.errno or 0)
    raise RuntimeCallError(f"cannot connect to port {port}: {problem}")


async def _connect(made: socket.socket, host: str, port: int) -> PortStreams:
    try:
        made.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(made, (host, port))
        return await asyncio.open_connection(sock=made)
    except BaseException:
        made.close()
        raise


def _make_socket(family: int, network_of: int | None) -> socket.socket:
    """A socket belongs to the network of the thread that made it, so one is made for that."""
    if network_of is None:
        return socket.socket(family, socket.SOCK_STREAM)
    with ThreadPoolExecutor(1) as visitor:
        return visitor.submit(_make_there, family, network_of).result()


def _make_there(family: int, network_of: int) -> socket.socket:
    namespace = os.open(f"/proc/{network_of}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(namespace, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return socket.socket(family, socket.SOCK_STREAM)
    finally:
        os.close(namespace)
