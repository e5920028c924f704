"""A session that a container runtime streams over SPDY, as CRI's Exec and Attach offer it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from livesize.api.channels import format_size, parse_end
from livesize.api.spdy import DataFrame, FrameParser, Framer, PingFrame, ResetFrame, SpdyError
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.streams import STDERR, STDOUT, Output

CONNECT_SECONDS = 10.0
_PIECE_BYTES = 64 * 1024
_WRITTEN_BYTES = 32 * 1024
_PROTOCOL = "v4.channel.k8s.io"
_OUTPUTS = {"stdout": STDOUT, "stderr": STDERR}


class SpdySession:
    """``names``: the streams it has, of error, stdin, stdout, stderr and resize."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: tuple[str, ...]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._framer = Framer()
        self._parser = FrameParser()
        self._streams = {name: 2 * index + 1 for index, name in enumerate(names)}
        self._open = {self._streams[name] for name in names if name not in ("stdin", "resize")}
        self._said = b""  # on the stream of errors
        for name, stream in self._streams.items():
            writer.write(self._framer.open(stream, {"streamtype": name}))

    async def output(self) -> AsyncIterator[Output]:
        streams = {
            self._streams[name]: _OUTPUTS[name] for name in _OUTPUTS if name in self._streams
        }
        while self._open:
            piece = await self._read()
            if not piece:
                return
            for frame in self._frames(piece):
                match frame:
                    case DataFrame(stream=stream, data=data, last=last):
                        if last:
                            self._open.discard(stream)
                        if data and stream in streams:
                            yield Output(streams[stream], data)
                        elif stream == self._streams["error"]:
                            self._said += data
                    case ResetFrame(stream=stream):
                        self._open.discard(stream)
                    case PingFrame(number=number):
                        self._writer.write(self._framer.ping(number))
                    case _:
                        pass

    async def write(self, data: bytes) -> None:
        if "stdin" not in self._streams:
            return
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(data), _WRITTEN_BYTES):
                part = data[start : start + _WRITTEN_BYTES]
                self._writer.write(self._framer.data(self._streams["stdin"], part))
                await self._writer.drain()

    async def end_input(self) -> None:
        stream = self._streams.pop("stdin", None)
        if stream is not None:
            self._writer.write(self._framer.data(stream, b"", last=True))

    def resize(self, width: int, height: int) -> None:
        if "resize" in self._streams:
            size = format_size(width, height)[1:]  # a stream of its own, and no channel
            self._writer.write(self._framer.data(self._streams["resize"], size))

    async def exit_code(self) -> int:
        """Known once all output has been read."""
        return _exit_code(self._said)

    async def close(self) -> None:
        self._writer.close()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE_BYTES)
        except ConnectionError:
            return b""

    def _frames(self, piece: bytes) -> list[Any]:
        try:
            return list(self._parser.feed(piece))
        except SpdyError as failure:
            raise RuntimeCallError(
                f"the container runtime streams what is not SPDY: {failure}"
            ) from failure


def _exit_code(said: bytes) -> int:
    """The exit code in a Status; raises what else went wrong."""
    if not said:
        raise RuntimeCallError("the container runtime hung up before it said how it ended")
    code, problem = parse_end(said)
    if problem:
        raise RuntimeCallError(problem.strip())
    return code


async def open_spdy(url: str, names: tuple[str, ...]) -> SpdySession:
    """Connect to what Exec or Attach answered."""
    place = urlsplit(url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except (OSError, TimeoutError) as failure:
        raise RuntimeCallError(f"{place.netloc} does not stream: {failure}") from failure
    try:
        writer.write(
            f"POST {place.path}?{place.query} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n"
            f"X-Stream-Protocol-Version: {_PROTOCOL}\r\n\r\n".encode()
        )
        async with asyncio.timeout(CONNECT_SECONDS):
            await _switched(reader)
    except (OSError, EOFError, TimeoutError) as failure:
        writer.close()
        raise RuntimeCallError(f"{place.netloc} does not stream: {failure}") from failure
    except BaseException:
        writer.close()
        raise
    return SpdySession(reader, writer, names)


async def _switched(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in head.partition(b"\r\n")[0]:
        words = (await reader.read(4096)).decode(errors="replace").strip()
        raise RuntimeCallError(f"the container runtime does not stream: {words}")
