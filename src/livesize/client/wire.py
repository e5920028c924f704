"""One HTTP/1.1 connection: a request out, its answer in, one after the other.

    free ──ask, begin──► waiting ──head──► reading ──end of the answer──► free
      │                     │                 │
      └─────────────────────┴─────────────────┴──lost, cancelled, broken──► ended for good

``ask`` returns a whole answer. ``begin`` returns with the head of one that may go on for ever, and
``read`` gives what has come since: a caller that does not read makes the server wait, not the
memory grow. A caller that is cancelled in the middle of an answer ends the connection, because the
rest of that answer would be taken for the next. LostError: it ended before the answer did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD_BYTES = 64 * 1024
MAX_UNREAD_BYTES = 256 * 1024
"""Of an answer that is read as it comes."""
_BODY_HAS_AN_END = frozenset((b"content-length", b"transfer-encoding"))
_RETRY_AFTER = b"retry-after"
_WITHOUT_BODY = frozenset((204, 304))


class LostError(ConnectionError):
    """The connection ended before the answer did; the request may or may not have happened."""


class ClosedError(ConnectionError):
    """It was closed on this side, on purpose."""


class HttpConnection(asyncio.Protocol):
    """Made by the event loop; ``on_lost`` is called when it has ended."""

    def __init__(self, on_lost: Callable[[HttpConnection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ConnectionError | None = None
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._head_bytes = 0
        self._is_stream = False
        self._is_paused = False
        self._is_whole = True
        self._has_an_end = False
        self._stays_open = True
        self.status = 0
        """Of the answer; 0 until its head is here."""
        self.retry_after = b""
        """What the answer's header of that name says."""
        self.was_heard = False
        """Something has come since the last request."""
        self.idle_since = 0.0
        """Set by the pool that holds it while it is free."""

    @property
    def is_free(self) -> bool:
        """Ready for a request: the last answer is here to its end, and the server stays."""
        return self._is_whole and self._stays_open and self._failure is None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body."""
        self._send(request, is_stream=False)
        while not self._is_whole:
            await self._news()
        return self.status, self._take_pieces()

    async def begin(self, request: bytes) -> None:
        """Until the head of the answer is here: ``status``, then ``read``."""
        self._send(request, is_stream=True)
        while not self.status:
            await self._news()

    async def read(self) -> bytes:
        """What has come of the body since the last time, waiting for something; b"" at its end."""
        while not self._pieces:
            if self._is_whole:
                return b""
            await self._news()
        piece = self._take_pieces()
        if self._is_paused and self._failure is None:
            self._is_paused = False
            self._open_transport().resume_reading()
        return piece

    async def rest(self) -> bytes:
        """The body that was begun, to its end."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def abort(self, failure: ConnectionError | None = None) -> None:
        """End it now. A polite end of TLS would wait for a server that is still talking."""
        self._end(failure or LostError("the connection was given up"))
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: bytes, *, is_stream: bool) -> None:
        assert self._is_whole, "one request at a time"
        self._is_stream = is_stream
        self._is_whole = self._has_an_end = self.was_heard = False
        self.status = self._head_bytes = 0
        self.retry_after = b""
        self._write(request)

    def _write(self, data: bytes) -> None:
        if self._failure is None:
            self._open_transport().write(data)

    async def _news(self) -> None:
        """Wait until something has changed; raise if nothing will any more."""
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None

    def _pause(self) -> None:
        transport = self._open_transport()
        if not transport.is_closing():
            self._is_paused = True
            transport.pause_reading()

    def _take_pieces(self) -> bytes:
        pieces = self._pieces
        self._pieces = []
        self._unread_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None, "the event loop connects first"
        return self._transport

    def _end(self, failure: ConnectionError) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if self._is_whole:
            self.abort(LostError("it spoke without being asked"))
            return
        self.was_heard = True
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as failure:
            self.abort(LostError(f"its answer is not HTTP ({failure})"))
        except HttpParserUpgrade:
            self.abort(LostError("it switched protocols without being asked"))
        if not self.status and self._head_bytes > MAX_HEAD_BYTES:
            self.abort(LostError("the head of its answer is too long"))

    def eof_received(self) -> None:
        """The transport closes by itself; the pool sends no request here meanwhile."""
        self._stays_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._failure is None and self.status and not self._has_an_end:
            self._is_whole = True  # the end of the connection is the end of the answer
        why = f" ({exc})" if exc is not None else ""
        where = "in the middle of an answer" if self.was_heard else "before it answered"
        self._end(LostError(f"the connection was lost {where}{why}"))
        self._on_lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise LostError("it said more than it was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower in _BODY_HAS_AN_END:
            self._has_an_end = True
        elif lower == _RETRY_AFTER:
            self.retry_after = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # 100 and 103: the answer itself is still to come
        self._stays_open = self._parser.should_keep_alive()
        self._has_an_end = self._has_an_end or status in _WITHOUT_BODY
        self.status = status
        if self._is_stream:
            self._wake()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        if not self._is_stream:
            return
        self._unread_bytes += len(piece)
        if self._unread_bytes > MAX_UNREAD_BYTES and not self._is_paused:
            self._pause()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._is_whole = True
            self._wake()
