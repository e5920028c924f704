"""Carries what a node streams to who asked for it, at the speed of the slower side.

An answer is passed on as it comes. A connection that has switched to another language is passed
through in both directions byte by byte: nothing of it is understood here. When either side has
gone, so is the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from livesize.apiserver.http.requests import Receive, Send
from livesize.apiserver.http.watch_stream import CREDENTIAL_SECONDS
from livesize.machinery.clock import Clock
from livesize.machinery.hangup import cut_off, wait_hangup

PIECE_BYTES = 64 * 1024
LINGER_SECONDS = 10.0
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NodeStream(msgspec.Struct, frozen=True):
    """An answer that a node goes on writing. ``take_over``: the client's connection, where it
    switches to another language, beginning with ``head``."""

    node: Streams
    stack: contextlib.AsyncExitStack
    clock: Clock
    head: bytes = b""
    take_over: Callable[[], Streams] | None = None
    on_switched: Callable[[], None] | None = None
    still_known: Callable[[], bool] | None = None
    """Whether who asked would still be let in."""

    async def run(self, receive: Receive, send: Send) -> None:
        async with self.stack:
            with contextlib.suppress(ConnectionError):
                if self.take_over is not None:
                    await self._pass_through(self.take_over())
                else:
                    await self._pass_on(receive, send)

    async def _pass_on(self, receive: Receive, send: Send) -> None:
        reader, _ = self.node
        headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_write_pieces(reader, send)),
                group.create_task(_await_disconnect(receive)),
                group.create_task(self._until_unknown()),
            ]
            _end_together(tasks)

    async def _pass_through(self, client: Streams) -> None:
        if self.on_switched is not None:
            self.on_switched()
        (from_client, to_client), (from_node, to_node) = client, self.node
        to_client.write(self.head)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_copy(from_client, to_node)),
                    group.create_task(_copy(from_node, to_client)),
                    group.create_task(_until_hangup(to_client, self.clock)),
                    group.create_task(self._until_unknown()),
                ]
                _end_together(tasks)
        except* ConnectionError:
            pass  # one of them has gone, and that is what ends it
        finally:
            await _let_go(to_client)

    async def _until_unknown(self) -> None:
        """Who was let in once is not let in for ever."""
        while self.still_known is None or self.still_known():
            await self.clock.sleep(CREDENTIAL_SECONDS)


def _end_together(tasks: list[asyncio.Task[None]]) -> None:
    """The first that is done ends the others."""

    def end_all(_: object) -> None:
        for task in tasks:
            task.cancel()

    for task in tasks:
        task.add_done_callback(end_all)


async def _let_go(writer: asyncio.StreamWriter) -> None:
    """What is written has a while to be read; the place among those who are served is kept so
    long."""
    try:
        writer.close()
        async with asyncio.timeout(LINGER_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass  # it went by itself, or has had its time
    finally:
        cut_off(writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _until_hangup(writer: asyncio.StreamWriter, clock: Clock) -> None:
    """While the node takes nothing, nothing is read from the client, and its end is not seen."""
    connection = writer.get_extra_info("socket")
    if connection is None:
        await asyncio.get_running_loop().create_future()
    await wait_hangup(connection, clock)


async def _write_pieces(reader: asyncio.StreamReader, send: Send) -> None:
    while piece := await reader.read(PIECE_BYTES):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
