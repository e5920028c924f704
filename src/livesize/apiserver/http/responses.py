"""Answers as plain values, and how they go out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.apiserver.http.requests import ClientGoneError, Send
from livesize.apiserver.records import ObjectRecord

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
PIECE_BYTES = 256 * 1024
UNREAD_SECONDS = 60.0
"""Who has read nothing of a long answer for so long does not get the rest."""
MAX_WARNINGS = 16
MAX_WARNING_LENGTH = 256


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def json_answer(tree: Any, status: int = 200) -> Response:
    return Response(status, orjson.dumps(tree))


def text_answer(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


def refusal_answer(error: StatusError) -> Response:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if error.code == 401:
        headers = ((b"www-authenticate", b"Bearer"),)
    retry_after = error.details.get("retryAfterSeconds")
    if retry_after is not None:
        headers = (*headers, (b"retry-after", str(retry_after).encode()))
    return Response(error.code, orjson.dumps(error.to_status()), JSON, headers)


def with_warnings(answer: Response, sentences: Sequence[str]) -> Response:
    """Each sentence once, as a header that clients show to people; the names in it are theirs."""
    headers = tuple(_warning(text) for text in list(dict.fromkeys(sentences))[:MAX_WARNINGS])
    return msgspec.structs.replace(answer, headers=(*answer.headers, *headers))


def _warning(text: str) -> tuple[bytes, bytes]:
    shown = "".join(one if " " <= one <= "~" else "?" for one in text[:MAX_WARNING_LENGTH])
    quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
    return b"warning", f'299 - "{quoted}"'.encode()


def list_answer(
    resource: Resource, records: Sequence[ObjectRecord], revision: int, *, rest: Object
) -> Response:
    """The list, put together from the bytes every object already has."""
    tree = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(revision), **rest},
        "items": [orjson.Fragment(record.encoded) for record in records],
    }
    return json_answer(tree)


async def send_answer(send: Send, answer: Response) -> None:
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-cache, private"),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    last = answer.body
    if len(last) > PIECE_BYTES:
        last = await _send_pieces(send, last)
    await send({"type": "http.response.body", "body": last})


async def _send_pieces(send: Send, body: bytes) -> bytes:
    """A long list goes out in pieces, each when the client has read most of the one before: else it
    would be encrypted at once while everybody waits, and held in memory three times. Returns the
    last piece."""
    for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
        piece = memoryview(body)[start : start + PIECE_BYTES]
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise ClientGoneError from None
    return body[(len(body) - 1) // PIECE_BYTES * PIECE_BYTES :]
