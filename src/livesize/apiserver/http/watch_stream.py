"""A watch on the wire: one line of JSON per event, until the client or the time is gone.

Several events that are ready at once go out in one piece, but never much more than PIECE_BYTES:
what a slow client has been sent and has not read is held in memory. The stream ends when the client
hangs up (uvicorn says so only to who listens), when its time is up, when the server stops, when the
watcher was dropped because its client does not read, or when its credential has been revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec
import orjson

from livesize.api.errors import unauthorized
from livesize.apiserver.events import event_line
from livesize.apiserver.http.requests import Receive, Send
from livesize.apiserver.http.responses import JSON, PIECE_BYTES
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.watchers import WatchDelivery, Watcher
from livesize.machinery.clock import Clock

BOOKMARK_SECONDS = 60.0
CREDENTIAL_SECONDS = 5.0


class WatchStream(msgspec.Struct, frozen=True):
    """``line`` gives an event the shape the client asked for."""

    cache: ObjectsCache
    clock: Clock
    watcher: Watcher
    line: Callable[[WatchDelivery], bytes]
    timeout_seconds: float
    bookmarks: bool
    still_known: Callable[[], bool] | None = None

    async def run(self, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(send))
                others = [
                    group.create_task(self._await_disconnect(receive, writer)),
                    group.create_task(self._await_drop(writer)),
                    group.create_task(self._keep_time()),
                ]
                if self.still_known is not None:
                    others.append(group.create_task(self._keep_out(self.still_known)))

                def end_others(_: object) -> None:
                    for task in others:
                        task.cancel()

                writer.add_done_callback(end_others)
        finally:
            self.cache.end(self.watcher)

    async def _write(self, send: Send) -> None:
        headers = [(b"content-type", JSON), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The head goes out at once: clients take it as the sign that the watch stands.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        while deliveries := await self.watcher.take():
            for body in _pieces(map(self.line, deliveries)):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        last = b""
        if self.watcher.error is not None:
            last = event_line("ERROR", orjson.dumps(self.watcher.error.to_status()))
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _await_disconnect(self, receive: Receive, writer: asyncio.Task[None]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        writer.cancel()

    async def _await_drop(self, writer: asyncio.Task[None]) -> None:
        """A client that does not read blocks the writer for ever; a moment is left for one that
        was only slow to hear why."""
        await self.watcher.dropped.wait()
        await self.clock.sleep(1.0)
        writer.cancel()

    async def _keep_time(self) -> None:
        left = self.timeout_seconds
        while left > 0:
            pause = min(left, BOOKMARK_SECONDS)
            await self.clock.sleep(pause)
            left -= pause
            if self.bookmarks and not self.watcher.ended:
                self.watcher.bookmark(self.cache.revision)
        self.watcher.close()

    async def _keep_out(self, still_known: Callable[[], bool]) -> None:
        """Who was let in once is not let see everything for ever."""
        while still_known():
            await self.clock.sleep(CREDENTIAL_SECONDS)
        self.watcher.close(unauthorized())


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)
