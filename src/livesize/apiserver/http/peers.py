"""Brings the client's certificate from TLS to the application, in the scope of each request.

scope["extensions"]["tls"]["client_cert"] is the certificate (DER) that TLS has verified against
the cluster's authority. A connection without one costs nothing more than before. One that asks to
switch to another language (Upgrade) is a request like all others, which the application answers
with a refusal, or by taking the connection over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from livesize.apiserver.http.heads import BoundedHeads
from livesize.apiserver.http.requests import Scope

IDENTITY = "livesize.identity"
"""Where the application leaves who asked, for the audit log."""
IMPERSONATED = "livesize.impersonated"
"""Where it leaves whom an admin acted as."""
SWITCHED = "livesize.switched"
"""Where the audit log leaves what to call when a connection switches to another language."""
TAKE_OVER = "livesize.take_over"
"""The extension with which the application takes over a connection that wants to switch."""
KNOWN = "livesize.known"
"""What the application calls when it knows who asks on a connection, until it has done so once."""


class PeerProtocol(BoundedHeads):
    """uvicorn's protocol, which by itself does not say who is at the other end."""

    _extensions: dict[str, Any] | None = None
    _leave: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            self._extensions = {"tls": {"client_cert": certificate}}

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._extensions is not None:
            self.scope["extensions"] = self._extensions
        if self._leave is not None:
            self.scope[KNOWN] = self._known  # type: ignore[literal-required]

    def arrived(self, leave: Callable[[], None]) -> None:
        """``leave``: the connection is pending no more; called when it is known who asks."""
        self._leave = leave

    def connection_lost(self, exc: Exception | None) -> None:
        self._known()
        super().connection_lost(exc)

    def _known(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            extensions: dict[str, Any] = {**(self._extensions or {}), TAKE_OVER: self._take_over}
            self.scope["extensions"] = extensions
        super().on_headers_complete()

    def _take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, which is the caller's from now on. Clients send nothing before they have
        been answered, so nothing of theirs has been read yet."""
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.cycle.disconnected = True  # so uvicorn expects no answer
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def _unsupported_upgrade_warning(self) -> None:
        """What cannot be switched to is refused by the application."""


def peer_certificate(scope: Scope) -> bytes | None:
    extensions = scope.get("extensions")
    if not extensions:
        return None
    certificate = extensions.get("tls", {}).get("client_cert")
    return certificate if isinstance(certificate, bytes) else None
