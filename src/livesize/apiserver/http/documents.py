"""Documents made once at the start and answered with an ETag: discovery and OpenAPI."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import orjson

from livesize.apiserver.http.requests import Request
from livesize.apiserver.http.responses import JSON, Response


class Document(msgspec.Struct, frozen=True):
    body: bytes
    etag: str
    content_type: bytes = JSON

    def answer(self, request: Request) -> Response:
        quoted = f'"{self.etag}"'
        headers = ((b"etag", quoted.encode()), (b"vary", b"Accept"))
        if quoted in request.headers.get("if-none-match", ""):
            return Response(304, b"", self.content_type, headers)
        return Response(200, self.body, self.content_type, headers)


def make_document(tree: Any, content_type: bytes = JSON) -> Document:
    body = orjson.dumps(tree)
    return Document(body, hashlib.sha256(body).hexdigest().upper(), content_type)
