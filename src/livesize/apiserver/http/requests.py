"""One HTTP request as plain values, and how query parameters and Accept headers are read."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from livesize.api.bounded_cache import bounded_cache
from livesize.api.errors import StatusError, bad_request, too_large
from livesize.apiserver.http.bodies import MAX_BODY_BYTES

BODY_SECONDS = 60.0
_BODY_HEADERS = frozenset({"content-length", "transfer-encoding"})

Scope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]


class Form(enum.StrEnum):
    """In which shape the client wants objects."""

    PLAIN = "plain"
    TABLE = "v1"
    TABLE_BETA = "v1beta1"


class ClientGoneError(Exception):
    """The client hung up in the middle of its request."""


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    still_known: Callable[[], bool] | None = None
    """For a watch: whether who asked would still be let in."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """What the answer says besides."""

    def flag(self, name: str) -> bool:
        """Booleans as Kubernetes reads them: anything but nothing, 0 and false is true."""
        return self.query.get(name, "0").lower() not in ("0", "false")

    def number(self, name: str) -> int | None:
        text = self.query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise bad_request(f'{name}: "{text}" is not a whole number of zero or more')
        return int(text)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";", 1)[0].strip().lower()

    @property
    def form(self) -> Form:
        return accepted_form(self.headers.get("accept", ""))

    @property
    def accepts_json(self) -> bool:
        offered = self.headers.get("accept", "") or "*/*"
        media = {one.split(";", 1)[0].strip() for one in offered.split(",")}
        return bool(media & {"application/json", "application/*", "*/*"})

    @property
    def bearer(self) -> str:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


@bounded_cache(256, longest=512)
def accepted_form(accept: str) -> Form:
    """The first acceptable of what the client offers; JSON is acceptable always."""
    for offered in accept.split(","):
        media, *parameters = [part.strip() for part in offered.split(";")]
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if wanted.get("as") != "Table":
            return Form.PLAIN
        if wanted.get("g") == "meta.k8s.io" and wanted.get("v") in ("v1", "v1beta1"):
            return Form(wanted["v"])
    return Form.PLAIN


def read_head(scope: Scope) -> Request:
    """Everything but the body."""
    headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
    raw_query = scope.get("query_string", b"")
    query: dict[str, str] = {}
    if raw_query:
        text = raw_query.decode("latin-1")
        for key, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
            query.setdefault(key, value)
    path = scope["path"]
    return Request(scope["method"], path.rstrip("/") or "/", query, headers)


async def read_body(receive: Receive, head: Request) -> Request:
    """Read the body, but never more of it than is allowed, and not for ever: whoever sends it has
    one of his identity's places meanwhile."""
    if head.method == "GET" and _BODY_HEADERS.isdisjoint(head.headers):
        return head
    announced = head.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        raise too_large(MAX_BODY_BYTES)
    if head.method == "GET" and announced == "0" and "transfer-encoding" not in head.headers:
        return await _read_parts(receive, head)
    return await _read_in_time(receive, head)


async def _read_in_time(receive: Receive, head: Request) -> Request:
    """As ``asyncio.timeout`` would, which takes as long as all else that is done with a body."""
    reader = asyncio.current_task()
    assert reader is not None
    late: list[bool] = []

    def give_up() -> None:
        late.append(reader.cancel())

    timer = asyncio.get_running_loop().call_later(BODY_SECONDS, give_up)
    try:
        return await _read_parts(receive, head)
    except asyncio.CancelledError:
        if not late or reader.uncancel() > 0:
            raise
        message = f"the body of the request did not come within {BODY_SECONDS:.0f} s"
        raise StatusError(408, "Timeout", message) from None
    finally:
        timer.cancel()


async def _read_parts(receive: Receive, head: Request) -> Request:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise too_large(MAX_BODY_BYTES)
        parts.append(part)
        if not message.get("more_body", False):
            return msgspec.structs.replace(head, body=b"".join(parts))
