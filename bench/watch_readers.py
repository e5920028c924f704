"""Many watches of one server, in a process of their own, so that reading does not slow the asking.

    python -m bench.watch_readers --port PORT --ca FILE --readers 200 < REQUEST

It sends the first line of its input, an HTTP request in base64, on every connection, and says
``ready`` when all streams stand. Each further line is a number of events: once every reader has
seen so many more, it says for each event when half of the readers had it, as a JSON list of
seconds of the monotonic clock, which is the same in all processes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import ssl
import sys
import time
from pathlib import Path
from typing import cast

import orjson
import uvloop

PATIENCE_SECONDS = 60.0
_HEAD_END = b"\r\n\r\n"
_EVENT_END = b"}\n"


class Reader(asyncio.Protocol):
    """Notes when each event came; an event is a line, and JSON has no line breaks inside."""

    def __init__(self, request: bytes) -> None:
        self.stands = asyncio.Event()
        self.seen: list[float] = []
        self._request = request
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self.stands.is_set():
            self._last += data
            if _HEAD_END not in self._last:
                return
            assert self._last.startswith(b"HTTP/1.1 200"), self._last
            _, _, data = self._last.partition(_HEAD_END)
            self._last = b""
            self.stands.set()
        events = (self._last + data).count(_EVENT_END)
        self._last = data[-1:] if data[-1:] == b"}" else b""
        self.seen += [now] * events


async def watch(port: int, ca_cert: Path, readers: int) -> None:
    loop = asyncio.get_running_loop()
    request = base64.b64decode(await asyncio.to_thread(sys.stdin.readline))
    context = ssl.create_default_context(cafile=ca_cert)
    opened = []
    for _ in range(readers):
        _, reader = await loop.create_connection(
            lambda: Reader(request), "127.0.0.1", port, ssl=context
        )
        await reader.stands.wait()
        opened.append(reader)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        wanted = int(line)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while min(len(reader.seen) for reader in opened) < wanted:
                await asyncio.sleep(0.01)
        moments = [sorted(reader.seen[event] for reader in opened) for event in range(wanted)]
        print(orjson.dumps([one[readers // 2] for one in moments]).decode(), flush=True)
        for reader in opened:
            del reader.seen[:wanted]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.watch_readers")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--readers", type=int, required=True)
    arguments = parser.parse_args()
    uvloop.run(watch(arguments.port, arguments.ca, arguments.readers))


if __name__ == "__main__":
    main()
