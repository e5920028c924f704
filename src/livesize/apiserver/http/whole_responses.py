"""Sends the head of an answer together with its body: one TLS record and one packet, not two.

uvicorn writes the head when the application starts to answer and the body when it comes, which is
right after. On a connection that sends at once (TCP_NODELAY) each is encrypted, sent and woken up
for by itself, and for a small answer that is a fifth of all the work.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LARGE_BYTES = 64 * 1024  # of a body that is not worth copying to save a packet


class WholeResponses(HttpToolsProtocol):
    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        # The answer has not begun: the application runs in a task that was only just made.
        # To HEAD nothing follows the head, so it must not wait for anything.
        if self.cycle is not before and self.scope["method"] != "HEAD":
            self.cycle.transport = _HoldsHead(self.cycle)


class _HoldsHead(asyncio.Transport):
    """The transport of one answer; all that uvicorn does with it."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        super().__init__()
        self._cycle: RequestResponseCycle | None = cycle  # until the answer begins
        self._transport = cycle.transport
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._cycle is not None and self._cycle.response_started:
            self._cycle = None  # it holds this: without the circle both go when the answer is out
            self._head = bytes(data)
        elif self._head and len(data) < LARGE_BYTES:
            whole, self._head = self._head + data, b""
            self._transport.write(whole)
        else:
            self._flush()
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
