"""Of two sides that a stream connects either may stop reading, and nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
import uvloop

from livesize.apiserver.streaming import relay
from livesize.apiserver.streaming.endpoints import Endpoints, LocalNode
from livesize.machinery import hangup
from livesize.machinery.clock import SystemClock
from livesize.machinery.hangup import cut_off, wait_hangup

MUCH = bytes(4 << 20)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangup, "LOOK_SECONDS", 0.02)


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
    cut_off(writer)  # what is closed may be cut off once more
    server.close()


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_what_was_closed_before_may_be_cut_off_too(loop_factory: Any) -> None:
    async def close_and_cut() -> bool:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        for _ in range(2):
            cut_off(writer)
            await asyncio.sleep(0)
        server.close()
        return True

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(close_and_cut())


async def test_a_client_that_reads_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was to read stood in its connection, which nobody counted any more."""
    monkeypatch.setattr(relay, "LINGER_SECONDS", 0.2)
    accepted: asyncio.Queue[relay.Streams] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait((reader, writer))

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        writer.close()

    endpoint = await asyncio.start_unix_server(accept, tmp_path / "endpoint")
    node = await asyncio.start_unix_server(speak, tmp_path / "node")
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "endpoint"))
    streams = await accepted.get()
    while not streams[1].transport.get_write_buffer_size():  # type: ignore[attr-defined]
        streams[1].write(bytes(16 * 1024))
        await asyncio.sleep(0)
    stream = relay.NodeStream(
        await asyncio.open_unix_connection(tmp_path / "node"),
        contextlib.AsyncExitStack(),
        SystemClock(),
        take_over=lambda: streams,
    )
    unused: Any = None
    async with asyncio.timeout(5):
        await stream.run(unused, unused)
    await asyncio.sleep(0)
    assert streams[1].get_extra_info("socket").fileno() < 0
    stream.node[1].close()
    client.close()
    endpoint.close()
    node.close()
