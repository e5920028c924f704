"""A real API server in a thread of the test, over TLS, with a token for each role."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.records import TokenEntry
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.machinery.context import system_context
from livesize.store.memory import MemoryStore

IDENTITIES = {
    "admin": Identity("root", Role.ADMIN),
    "editor": Identity("ed", Role.EDITOR),
    "viewer": Identity("vi", Role.VIEWER),
    "team": Identity("tim", Role.EDITOR, "", ("team",)),
    "scheduler": Identity("sched", Role.SCHEDULER),
    "controller": Identity("ctl", Role.CONTROLLER),
    "n1": node_identity("n1"),
    "n2": node_identity("n2"),
}


class ServerThread:
    """``settings`` are those of ApiServerConfig: ``with ServerThread(folder).running() as one``."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.tokens: dict[str, str] = {}
        self._kept: dict[tuple[str, int], http.client.HTTPConnection] = {}
        entries: list[TokenEntry] = []
        for word, one in IDENTITIES.items():
            token, entry = issue_token(one.name, one.role, node=one.node, namespaces=one.namespaces)
            self.tokens[word] = token
            entries.append(entry)
        write_tokens(folder / "tokens.json", entries)
        config = ApiServerConfig(folder / "tls", folder / "tokens.json", port=0, **settings)
        self.server = ApiServer(config, MemoryStore(), context=system_context())

    @contextlib.contextmanager
    def running(self) -> Iterator[ServerThread]:
        ready, stop = threading.Event(), asyncio.Event()
        self.loop = uvloop.new_event_loop()

        async def serve() -> None:
            async with self.server.running():
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=lambda: self.loop.run_until_complete(serve()))
        thread.start()
        assert ready.wait(20), "the API server did not start"
        try:
            self.ask("admin", "POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
            yield self
        finally:
            for connection in self._kept.values():
                connection.close()
            self.loop.call_soon_threadsafe(stop.set)
            thread.join(20)
            self.loop.close()

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=20)

    def tls(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.server.ca_path))
        return context.wrap_socket(self.tcp(), server_hostname="localhost")

    def ask(
        self,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> tuple[int, Any]:
        """``who`` is a word of IDENTITIES, or empty for nobody; code and decoded answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["Content-Type"] = content_type
        if who:
            sent["Authorization"] = f"Bearer {self.tokens[who]}"
        encoded = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        status, text = self._asked(who, method, path, encoded, sent)
        return status, json.loads(text) if text[:1] in b"{[" else text.decode()

    def _asked(
        self, who: str, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """On a connection that is kept, if there is one: TLS takes longer than the rest."""
        place = (who, threading.get_ident())
        connection = self._kept.pop(place, None) or self._connected()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close or answer.status in (401, 413):
            connection.close()
        else:
            self._kept[place] = connection
        return answer.status, text

    def _connected(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.tls()
        return connection
