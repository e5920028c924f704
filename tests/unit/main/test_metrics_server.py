"""GET /metrics of a process without an API server."""

from __future__ import annotations

import asyncio
import socket

from livesize.controllers.kit.metrics import KitMetrics
from livesize.main.wiring.metrics_server import metrics_server


async def ask(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request}\r\nHost: a\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_what_was_counted_is_served() -> None:
    metrics = KitMetrics()
    metrics.of("quota").results["done"] += 2
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with metrics_server(listener, metrics.families):
        answer = await ask(port, "GET /metrics HTTP/1.1")
        assert answer.startswith("HTTP/1.1 200 OK\r\n")
        assert 'controller_reconcile_total{controller="quota",result="done"} 2.0' in answer
        for wrong in ("GET / HTTP/1.1", "POST /metrics HTTP/1.1", "nonsense"):
            assert (await ask(port, wrong)).startswith("HTTP/1.1 404 ")
        assert await ask(port, "GET /" + "a" * 10_000) == "", "too long to be read"


async def test_without_an_address_nothing_is_served() -> None:
    async with metrics_server(None, KitMetrics().families):
        pass
