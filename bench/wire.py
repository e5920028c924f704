"""The cheapest HTTPS client there is: bytes out, bytes in, one request at a time on a connection.

A full client would take most of the second core and hide what the server costs. Requests are made
beforehand with ``request_bytes``; the very same go to the product and to the yardstick.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import msgspec
import orjson

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Address(msgspec.Struct, frozen=True):
    port: int
    ca_cert: Path


class RefusedError(Exception):
    """The server answered something else than 2xx."""


class Wire(asyncio.Protocol):
    """``await Wire.open(address)``, then ``ask`` as often as you like."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._begun = bytearray()  # a long answer comes in many pieces
        self._wanted = 0
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, address: Address) -> Wire:
        context = ssl.create_default_context(cafile=address.ca_cert)
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(cls, "127.0.0.1", address.port, ssl=context)
        return wire

    @property
    def is_closed(self) -> bool:
        """The server ends connections on which nothing was asked for long."""
        return self._transport is None or self._transport.is_closing()

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer; raises RefusedError."""
        assert self._transport is not None, "open comes first"
        if self._transport.is_closing():
            raise ConnectionResetError("the server hung up before it was asked")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._begun += data
        if not self._wanted:
            self._wanted = whole_length(self._begun)
        if self._wanted and len(self._begun) >= self._wanted:
            answer, self._begun, self._wanted = bytes(self._begun), bytearray(), 0
            self._settle(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def _settle(self, answer: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        head, _, body = answer.partition(_HEAD_END)
        if head.startswith(b"HTTP/1.1 20"):
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RefusedError(answer.decode(errors="replace")))


def whole_length(begun: bytes | bytearray) -> int:
    """How long the answer that begins so will be; 0: its head is not complete yet."""
    end = begun.find(_HEAD_END)
    if end < 0:
        return 0
    head = begun[:end].lower()
    at = head.find(_LENGTH)
    if at < 0:
        return end + len(_HEAD_END)
    number = head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]
    return end + len(_HEAD_END) + int(number)


def request_bytes(
    method: str, path: str, token: str, body: object = None, content_type: str = "application/json"
) -> bytes:
    payload = b"" if body is None else orjson.dumps(body)
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Accept: application/json",
        f"Authorization: Bearer {token}",
    ]
    if body is not None:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(payload)}"]
    return "\r\n".join([*lines, "", ""]).encode() + payload
