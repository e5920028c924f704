"""SPDY/3.1 frames, as much of them as Kubernetes uses: streams, their data and their ends. Pure.

kubectl forwards ports in these frames, carried by a WebSocket, and containerd streams with them.
Only what is spoken there is understood: SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY and data;
SETTINGS, HEADERS and WINDOW_UPDATE are passed over, since neither side controls flow by them.
Headers of all frames of one direction share a compression state: ``Framer`` and ``FrameParser``.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

LONGEST_FRAME_BYTES = 1024 * 1024
LONGEST_HEADERS_BYTES = 64 * 1024
_FIN = 0x01
_CONTROL = 0x80
_VERSION = 3
_MASK = 0x7FFFFFFF


class SpdyError(ValueError):
    """What came is not SPDY as it is spoken here."""


class FrameType(enum.IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6
    GOAWAY = 7
    HEADERS = 8


class OpenFrame(msgspec.Struct, frozen=True, tag=True):
    stream: int
    headers: Mapping[str, str]
    last: bool = False


class ReplyFrame(msgspec.Struct, frozen=True, tag=True):
    stream: int


class DataFrame(msgspec.Struct, frozen=True, tag=True):
    stream: int
    data: bytes
    last: bool = False


class ResetFrame(msgspec.Struct, frozen=True, tag=True):
    stream: int


class PingFrame(msgspec.Struct, frozen=True, tag=True):
    number: int


class GoAwayFrame(msgspec.Struct, frozen=True, tag=True):
    """The other side opens no more streams."""


Frame: TypeAlias = OpenFrame | ReplyFrame | DataFrame | ResetFrame | PingFrame | GoAwayFrame


class Framer:
    """Writes the frames of one direction."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(zdict=_DICTIONARY)

    def open(self, stream: int, headers: Mapping[str, str], *, last: bool = False) -> bytes:
        body = struct.pack(">IIH", stream, 0, 0) + self._packed(headers)
        return _control(FrameType.SYN_STREAM, body, _FIN if last else 0)

    def accept(self, stream: int) -> bytes:
        return _control(FrameType.SYN_REPLY, struct.pack(">I", stream) + self._packed({}))

    def data(self, stream: int, data: bytes, *, last: bool = False) -> bytes:
        flags = _FIN if last else 0
        return struct.pack(">II", stream, flags << 24 | len(data)) + data

    def reset(self, stream: int, status: int = 1) -> bytes:
        return _control(FrameType.RST_STREAM, struct.pack(">II", stream, status))

    def ping(self, number: int) -> bytes:
        return _control(FrameType.PING, struct.pack(">I", number))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        return self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)


class FrameParser:
    """Reads the frames of one direction, however the bytes are cut."""

    def __init__(self) -> None:
        self._decompressor = zlib.decompressobj(zdict=_DICTIONARY)
        self._received = bytearray()

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        self._received += received
        while len(self._received) >= 8:
            size = int.from_bytes(self._received[5:8])
            if size > LONGEST_FRAME_BYTES:
                raise SpdyError(f"a frame of {size} bytes is too long")
            if len(self._received) < 8 + size:
                return
            head, body = bytes(self._received[:8]), bytes(self._received[8 : 8 + size])
            del self._received[: 8 + size]
            frame = self._read(head, body)
            if frame is not None:
                yield frame

    def _read(self, head: bytes, body: bytes) -> Frame | None:
        word, last = int.from_bytes(head[:4]), bool(head[4] & _FIN)
        if not head[0] & _CONTROL:
            return DataFrame(word & _MASK, body, last)
        if word >> 16 & 0x7FFF != _VERSION:
            raise SpdyError(f"version {word >> 16 & 0x7FFF} is not SPDY/3")
        try:
            return self._control(word & 0xFFFF, body, last=last)
        except struct.error as failure:
            raise SpdyError(f"a frame of type {word & 0xFFFF} is too short") from failure

    def _control(self, kind: int, body: bytes, *, last: bool) -> Frame | None:
        match kind:
            case FrameType.SYN_STREAM:
                (stream,) = struct.unpack_from(">I", body)
                return OpenFrame(stream & _MASK, self._headers(body[10:]), last)
            case FrameType.SYN_REPLY:
                (stream,) = struct.unpack_from(">I", body)
                self._headers(body[4:])
                return ReplyFrame(stream & _MASK)
            case FrameType.RST_STREAM:
                return ResetFrame(struct.unpack_from(">I", body)[0] & _MASK)
            case FrameType.PING:
                return PingFrame(struct.unpack_from(">I", body)[0])
            case FrameType.GOAWAY:
                return GoAwayFrame()
            case FrameType.HEADERS:
                self._headers(body[4:])  # they share the compression state
            case _:
                pass
        return None

    def _headers(self, packed: bytes) -> dict[str, str]:
        try:
            block = self._decompressor.decompress(packed, LONGEST_HEADERS_BYTES)
        except zlib.error as failure:
            raise SpdyError(f"headers cannot be read: {failure}") from failure
        if self._decompressor.unconsumed_tail:
            raise SpdyError("headers are too long")
        (count,) = struct.unpack_from(">I", block)
        texts, position = [], 4
        for _ in range(min(count, LONGEST_HEADERS_BYTES) * 2):
            (size,) = struct.unpack_from(">I", block, position)
            texts.append(block[position + 4 : position + 4 + size].decode("latin-1"))
            position += 4 + size
        return dict(zip(texts[::2], texts[1::2], strict=True))


def _control(kind: FrameType, body: bytes, flags: int = 0) -> bytes:
    word = (_CONTROL << 8 | _VERSION) << 16 | kind
    return struct.pack(">II", word, flags << 24 | len(body)) + body


# The dictionary that SPDY/3 prescribes: words with their length before them, then one text.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base"
    " content-encoding content-language content-length content-location content-md5"
    " content-range content-type date etag expect expires from host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location"
    " max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after"
    " server te trailer transfer-encoding upgrade user-agent vary via warning"
    " www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie"
    " keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue,"
    " Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY = (
    b"".join(
        struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split()
    )
    + _TEXT.encode()
)
