"""A bare TLS server on the same parts as ours, as the yardstick for the API server.

    python -m bench.raw_asgi --port 0 --bytes FILE --db FILE --cert CERT --key KEY

Answers GET with the bytes of FILE. On PATCH it makes those bytes durable, one row in SQLite by a
writer thread with group commit, and answers them. A GET with a query stays open: whoever sent it
gets the bytes as one line for each PATCH, before that is answered. It prints its port on one
line, then serves until SIGTERM. No routing, no checks, no objects: what is left is what the parts
cost.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import uvicorn
import uvloop

from bench.raw_sqlite import RawTable

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Waiting: TypeAlias = tuple[bytes, asyncio.Future[None]]


class GroupCommit:
    """One thread; whatever was queued while it wrote is its next transaction."""

    def __init__(self, path: Path) -> None:
        self._table = RawTable(path)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def commit(self, value: bytes) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((value, future))
        await future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._table.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                batch.append(more)
            self._table.insert([("raw", value) for value, _ in batch])
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in batch])


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def make_app(answer: bytes, store: GroupCommit) -> Callable[[Scope, Receive, Send], Any]:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    body = {"type": "http.response.body", "body": answer}
    watching: dict[Send, None] = {}
    line = {"type": "http.response.body", "body": answer + b"\n", "more_body": True}

    async def watch(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers[:1]})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        watching[send] = None
        while (await receive())["type"] != "http.disconnect":
            pass
        del watching[send]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            await watch(receive, send)
            return
        if scope["method"] == "PATCH":
            while (await receive()).get("more_body"):
                pass
            await store.commit(answer)
            for watcher in list(watching):
                await watcher(line)
        await send(start)
        await send(body)

    return app


async def serve(arguments: argparse.Namespace) -> None:
    store = GroupCommit(arguments.db)
    config = uvicorn.Config(
        make_app(arguments.bytes.read_bytes(), store),
        http="httptools",
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        ssl_certfile=arguments.cert,
        ssl_keyfile=arguments.key,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    listener = socket.create_server(("127.0.0.1", arguments.port), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.raw_asgi")
    parser.add_argument("--port", type=int, default=0)
    for name in ("--bytes", "--db", "--cert", "--key"):
        parser.add_argument(name, type=Path, required=True)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
