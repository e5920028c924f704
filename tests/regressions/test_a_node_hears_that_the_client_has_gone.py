"""A command whose input nobody reads is ended too when the client has gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livesize.apiserver.streaming.endpoints import Endpoints, LocalNode
from livesize.machinery.clock import SystemClock
from livesize.machinery.hangup import cut_off, wait_hangup

MUCH = bytes(4 << 20)


class Node:
    """Takes a connection and reads nothing from it; ``left``: the other side has gone."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wait_hangup(writer.get_extra_info("socket"), SystemClock())
        self.left.set()
        writer.transport.abort()


async def test_a_node_that_does_not_read(tmp_path: Path) -> None:
    """What waited for it to read held up the news."""
    node = Node()
    server = await asyncio.start_unix_server(node.serve, tmp_path / "s")
    endpoints = Endpoints(tmp_path, SystemClock(), LocalNode("n1", tmp_path / "s"))
    async with endpoints.connected({"metadata": {"name": "n1"}}) as (_, writer):
        writer.write(MUCH)
        await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await node.left.wait()
    server.close()


async def test_over_a_network_it_hears_it_too() -> None:
    node, host = Node(), "127.0.0.1"
    server = await asyncio.start_server(node.serve, host, 0)
    _, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
    writer.write(MUCH)
    await asyncio.sleep(0.05)
    cut_off(writer)
    async with asyncio.timeout(5):
        await node.left.wait()
    server.close()
