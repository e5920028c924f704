"""How to reach an etcd. Imports nothing of gRPC, so that main can make it before that is loaded."""

from __future__ import annotations

import msgspec


class EtcdSettings(msgspec.Struct, frozen=True):
    """``endpoints`` are http(s)://HOST:PORT; the rest is PEM. A client certificate comes with its
    key. ``root`` begins all our keys, so that several systems can share an etcd."""

    endpoints: tuple[str, ...]
    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None
    root: str = "/livesize/"
