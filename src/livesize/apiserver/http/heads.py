"""Limits on the head of a request (its first line and headers), and on how long one may take.

A head is read before anybody knows who sends it, so it costs little whoever does: a URL that is too
long is 414, headers that are too long or too many are 431, and the connection is closed. The parser
is never given more than the limit and one piece that was read from the socket. A connection has
HEAD_SECONDS for its first head and, after each answer, as long as a kept one may be idle; bytes
that trickle in prolong neither.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from livesize.api.errors import StatusError
from livesize.apiserver.http.whole_responses import WholeResponses

MAX_URL_BYTES = 256 * 1024
"""The command of an exec stands in the URL, and may be as long as the kernel takes."""
MAX_PATH_BYTES = 8 * 1024
MAX_QUERY_FIELDS = 8192
MAX_HEADERS_BYTES = 64 * 1024
MAX_HEADERS = 128
MAX_WAITING_REQUESTS = 16
"""Requests that were sent before the answer to an earlier one; common clients send none."""
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Of a body with all that goes with it: marks of chunks, and headers that come after it."""
HEAD_SECONDS = 20.0
LINGER_SECONDS = 0.5
"""So long is read on, and thrown away, after a refusal: a client that is cut off while it sends
does not look at what it was answered."""

URL_TOO_LONG = StatusError(
    HTTPStatus.REQUEST_URI_TOO_LONG,
    "RequestURITooLong",
    f"the URL of the request is longer than {MAX_URL_BYTES} bytes, its path than"
    f" {MAX_PATH_BYTES}, or it has more than {MAX_QUERY_FIELDS} parameters; send less in it",
)
HEADERS_TOO_LARGE = StatusError(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "RequestHeaderFieldsTooLarge",
    f"the request has more than {MAX_HEADERS} headers, or more than {MAX_HEADERS_BYTES} bytes"
    " of them; send fewer",
)
TOO_MANY_WAITING = StatusError(
    HTTPStatus.TOO_MANY_REQUESTS,
    "TooManyRequests",
    f"more than {MAX_WAITING_REQUESTS} requests were sent on this connection before the first was"
    " answered; wait for answers",
)


class BoundedHeads(WholeResponses):
    _in_head = True
    _unfinished_bytes = 0  # of a head that has not come whole, in the pieces before the last
    _headers_bytes = 0
    _message_bytes = 0
    _refusal: StatusError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_after(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """As uvicorn's, but the timer runs on until a head is whole."""
        if self._refusal is not None:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        except httptools.HttpParserError:
            self._answer_refused()
            return
        if self._in_head:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_URL_BYTES + MAX_HEADERS_BYTES:
                self._refusal = HEADERS_TOO_LARGE
                self._answer_refused()
        elif self.cycle.more_body:
            self._message_bytes += len(data)
            if self._message_bytes > MAX_MESSAGE_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._unfinished_bytes = self._headers_bytes = self._message_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            self._refuse(URL_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_bytes += len(name) + len(value)
        super().on_header(name, value)
        if self._headers_bytes > MAX_HEADERS_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse(HEADERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._in_head = False
        path, _, query = self.url.partition(b"?")
        if len(path) > MAX_PATH_BYTES or query.count(b"&") >= MAX_QUERY_FIELDS:
            self._refuse(URL_TOO_LONG)
        if len(self.pipeline) >= MAX_WAITING_REQUESTS:
            self._refuse(TOO_MANY_WAITING)
        self._unset_keepalive_if_required()
        self.url = path  # the parser of URLs takes 64 KiB; the query needs none
        super().on_headers_complete()
        self.scope["query_string"] = query

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:
            self._close_after(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.more_body and not self.pipeline:
            self._abort_after_lingering()  # unless the rest of the refused body comes soon

    def _refuse(self, refusal: StatusError) -> None:
        self._refusal = refusal
        raise refusal  # which ends the parser

    def _answer_refused(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self.transport.close()  # an earlier request is being answered: no word fits in between
        elif self._refusal is None:
            self.send_400_response("Invalid HTTP request received.")
        else:
            self._send_refusal(self._refusal)

    def _send_refusal(self, refusal: StatusError) -> None:
        body = orjson.dumps(refusal.to_status())
        phrase = HTTPStatus(refusal.code).phrase
        head = (
            f"HTTP/1.1 {refusal.code} {phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._abort_after_lingering()

    def _close_after(self, seconds: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _abort_after_lingering(self) -> None:
        """Closing would go on reading until the other side closes too."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
