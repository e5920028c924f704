"""When the client of forwarded ports has gone, nothing of them is left, whatever it did before."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.spdy import FrameParser, Framer, ResetFrame
from livesize.machinery import hangup
from livesize.runtime.streams import PortStreams
from unit.agent.test_endpoint import Node, serve

PROTOCOL = "SPDY/3.1+portforward.k8s.io"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangup, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async for made in serve(tmp_path / "s", {os.geteuid()}):
        yield made


class Connections:
    """The node's to a server in the pod, which reads nothing."""

    def __init__(self, node: Node) -> None:
        self._real = node.runtime.connect
        self._over = asyncio.Event()
        self.made: list[asyncio.StreamWriter] = []
        node.runtime.connect = self._connect  # type: ignore[method-assign]

    async def serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await self._over.wait()
        writer.transport.abort()

    def end(self) -> None:
        self._over.set()

    def are_closed(self) -> bool:
        return all(one.get_extra_info("socket").fileno() < 0 for one in self.made)

    async def until_closed(self) -> None:
        async with asyncio.timeout(8):
            while not self.are_closed():
                await asyncio.sleep(0.01)

    async def _connect(self, pod_uid: str, port: int) -> PortStreams:
        reader, writer = await self._real(pod_uid, port)
        self.made.append(writer)
        return reader, writer


@pytest.fixture
async def connections(node: Node) -> AsyncIterator[Connections]:
    made = Connections(node)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    node.runtime.port = server.sockets[0].getsockname()[1]
    yield made
    made.end()
    server.close()


def opening(framer: Framer, stream: int, kind: str) -> bytes:
    return framer.open(stream, {"streamtype": kind, "port": "80", "requestid": "0"})


async def test_a_request_that_is_opened_twice_is_refused(
    node: Node, connections: Connections
) -> None:
    """The second took the place of the first, which then was nobody's to end."""
    framer, parser, refused = Framer(), FrameParser(), list[int]()
    async with node.switched("/portforward/u-1", PROTOCOL) as stream:
        for number, kind in ((1, "error"), (3, "data"), (5, "data"), (7, "error")):
            await stream.send_bytes(opening(framer, number, kind))
        async with asyncio.timeout(5):
            while len(refused) < 2 or not connections.made:
                frames = parser.feed(await stream.receive_bytes())
                refused += [one.stream for one in frames if isinstance(one, ResetFrame)]
                await asyncio.sleep(0.01)
    assert refused == [5, 7]
    await connections.until_closed()
    assert len(connections.made) == 1


async def test_a_client_that_goes_while_nobody_takes_its_data(
    node: Node, connections: Connections
) -> None:
    """Nothing was read from it any more, so its end was not seen."""
    framer = Framer()
    stream = await node.switched("/portforward/u-1", PROTOCOL)
    for number, kind in ((1, "error"), (3, "data")):
        await stream.send_bytes(opening(framer, number, kind))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                await stream.send_bytes(framer.data(3, bytes(64 * 1024)))
    assert not connections.are_closed()
    connection = stream._response.connection
    assert connection is not None
    assert connection.transport is not None
    connection.transport.abort()
    await connections.until_closed()
