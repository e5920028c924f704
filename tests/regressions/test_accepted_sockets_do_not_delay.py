"""With asyncio's own loop, accepted connections waited for the peer's acknowledgement (Nagle)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from livesize.apiserver.auth.tokens import write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.machinery.context import system_context
from livesize.store.memory import MemoryStore


async def test_tcp_nodelay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted: list[socket.socket] = []
    accept = socket.socket.accept

    def remembering(listener: socket.socket) -> Any:
        connection, address = accept(listener)
        accepted.append(connection)
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", remembering)
    write_tokens(tmp_path / "tokens.json", [])
    server = ApiServer(
        ApiServerConfig(tmp_path, tmp_path / "tokens.json", port=0),
        MemoryStore(),
        context=system_context(),
    )
    trust = ssl._create_unverified_context()
    async with server.running(), asyncio.timeout(5):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        assert [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in accepted] == [1]
        writer.close()
        await writer.wait_closed()
