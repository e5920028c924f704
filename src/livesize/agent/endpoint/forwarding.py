"""Forwards ports: SPDY streams in the messages of a WebSocket, each pair a connection.

For each connection the client opens two streams with the same requestID, ``error`` and ``data``;
what goes wrong is a sentence on the first. Data waits in a bounded queue for a connection that does
not take it, and then the whole tunnel waits: clients have nothing finer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import WSMsgType, web

from livesize.api.spdy import (
    DataFrame,
    Frame,
    FrameParser,
    Framer,
    GoAwayFrame,
    OpenFrame,
    PingFrame,
    ReplyFrame,
    ResetFrame,
    SpdyError,
)
from livesize.machinery.clock import Clock
from livesize.machinery.hangup import HasDescriptor, wait_hangup
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.streams import PortStreams

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
MAX_CONNECTIONS = 200
_PIECE_BYTES = 32 * 1024
_WAITING_PIECES = 64

_log = get_logger("agent.endpoint")


class _Forwarded:
    """One connection: what came for it and was not written yet; empty is the end."""

    def __init__(self, port: int, error_stream: int) -> None:
        self.port = port
        self.error_stream = error_stream
        self.data_stream = 0
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_PIECES)
        self.task: asyncio.Task[None] | None = None


class Tunnel:
    """``connect`` opens a connection to a port of the pod; ``ports`` are those that may be
    forwarded, or empty for any."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        connect: Callable[[int], Awaitable[PortStreams]],
        ports: frozenset[int] = frozenset(),
    ) -> None:
        self._socket = socket
        self._ports = ports
        self._connect = connect
        self._framer = Framer()
        self._by_request: dict[str, _Forwarded] = {}
        self._by_stream: dict[int, _Forwarded] = {}

    async def run(self, connection: HasDescriptor, clock: Clock) -> None:
        """Until the client, at the other end of ``connection``, is gone or speaks another language.
        While its data waits nothing is read from it, and nobody else notices that it has gone."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            reading = group.create_task(self._read())
            watching = group.create_task(wait_hangup(connection, clock))
            reading.add_done_callback(lambda _: watching.cancel())
            watching.add_done_callback(lambda _: reading.cancel())

    async def _read(self) -> None:
        parser = FrameParser()
        try:
            async for message in self._socket:
                if message.type is WSMsgType.BINARY:
                    for frame in parser.feed(message.data):
                        await self._take(frame)
        except SpdyError as failure:
            _log.warning("port forward ended", reason=str(failure))
            await self._socket.close()
        finally:
            for forwarded in self._by_request.values():
                if forwarded.task is not None:
                    forwarded.task.cancel()

    async def _take(self, frame: Frame) -> None:
        match frame:
            case OpenFrame():
                await self._opened(frame)
            case DataFrame(stream=stream, data=data, last=last):
                await self._put(stream, data, last=last)
            case ResetFrame(stream=stream):
                forwarded = self._by_stream.get(stream)
                if forwarded is not None and forwarded.task is not None:
                    forwarded.task.cancel()
            case PingFrame(number=number):
                await self._send(self._framer.ping(number))
            case ReplyFrame() | GoAwayFrame():
                pass

    async def _opened(self, opened: OpenFrame) -> None:
        headers, stream = opened.headers, opened.stream
        identifier = headers.get("requestid", "")
        await self._send(self._framer.accept(stream))
        match headers.get("streamtype"):
            case "error" if self._may_begin(identifier):
                self._by_request[identifier] = _Forwarded(_port(headers), stream)
            case "data" if self._may_go_on(identifier):
                forwarded = self._by_request[identifier]
                forwarded.data_stream = stream
                self._by_stream[stream] = forwarded
                work = self._forward(identifier, forwarded)
                forwarded.task = self._group.create_task(work)
            case _:
                await self._send(self._framer.reset(stream))

    def _may_begin(self, identifier: str) -> bool:
        return identifier not in self._by_request and len(self._by_request) < MAX_CONNECTIONS

    def _may_go_on(self, identifier: str) -> bool:
        """It has its other stream, and not this one."""
        forwarded = self._by_request.get(identifier)
        return forwarded is not None and forwarded.task is None

    async def _put(self, stream: int, data: bytes, *, last: bool) -> None:
        forwarded = self._by_stream.get(stream)
        if forwarded is None:
            return
        if data:
            await forwarded.waiting.put(data)
        if last:
            await forwarded.waiting.put(b"")

    async def _forward(self, identifier: str, forwarded: _Forwarded) -> None:
        why = ""
        try:
            self._refuse_undeclared(forwarded.port)
            reader, writer = await self._connect(forwarded.port)
        except RuntimeCallError as failure:
            why = f"error forwarding port {forwarded.port}: {failure}"
        else:
            try:
                await self._exchange(forwarded, reader, writer)
            except* OSError as failures:
                why = f"error forwarding port {forwarded.port}: {failures.exceptions[0]}"
            finally:
                # What is not written by now is for somebody who does not read it.
                writer.transport.abort()
        finally:
            # Also while the tunnel ends: then nothing is put any more.
            self._by_request.pop(identifier, None)
            self._by_stream.pop(forwarded.data_stream, None)
            while not forwarded.waiting.empty():
                forwarded.waiting.get_nowait()
        await self._send(self._framer.data(forwarded.error_stream, why.encode(), last=True))
        await self._send(self._framer.data(forwarded.data_stream, b"", last=True))

    def _refuse_undeclared(self, port: int) -> None:
        if self._ports and port not in self._ports:
            declared = ", ".join(map(str, sorted(self._ports)))
            raise RuntimeCallError(
                f"the pod declares {declared}, and only an admin forwards other ports: write it"
                " into spec.containers[].ports of the pod"
            )

    async def _exchange(
        self, forwarded: _Forwarded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_write(forwarded.waiting, writer))
            while piece := await reader.read(_PIECE_BYTES):
                await self._send(self._framer.data(forwarded.data_stream, piece))
            writing.cancel()

    async def _send(self, frame: bytes) -> None:
        if not self._socket.closed:
            try:
                await self._socket.send_bytes(frame)
            except ConnectionError:
                return  # the client is gone, which ends the tunnel


async def _write(waiting: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    while piece := await waiting.get():
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _port(headers: Mapping[str, str]) -> int:
    text = headers.get("port", "")
    if not (text.isdigit() and 0 < int(text) < 65536):
        raise SpdyError(f"{text!r} is no port")
    return int(text)
