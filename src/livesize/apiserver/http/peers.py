"""Brings the client's certificate from TLS to the application, in the scope of each request.

scope["extensions"]["tls"]["client_cert"] is the certificate (DER) that TLS has verified against
the cluster's authority. A connection without one costs nothing more than before.
"""

from __future__ import annotations

import asyncio
from typing import Any

from livesize.apiserver.http.requests import Scope
from livesize.apiserver.http.whole_answers import WholeAnswers

IDENTITY = "livesize.identity"
"""Where the application leaves who asked, for the audit log."""


class PeerProtocol(WholeAnswers):
    """uvicorn's protocol, which by itself does not say who is at the other end."""

    _extensions: dict[str, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvicorn waits for ever for the first request, and so long only for a further one.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            self._extensions = {"tls": {"client_cert": certificate}}

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._extensions is not None:
            self.scope["extensions"] = self._extensions


def peer_certificate(scope: Scope) -> bytes | None:
    extensions = scope.get("extensions")
    if not extensions:
        return None
    certificate = extensions.get("tls", {}).get("client_cert")
    return certificate if isinstance(certificate, bytes) else None
