"""Reaching etcd: its endpoints, TLS, and what happens when one of them goes away.

A call goes to the endpoint that answered last. One that cannot be reached is left for the next in
the list. The link repeats a call that only reads. It repeats a write only where it is certain
that no member has seen it; else the caller finds out, from UncertainError.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from livesize.machinery.clock import Clock
from livesize.store.etcd.messages import (
    CompactionRequest,
    CompactionResponse,
    ProtobufMessage,
    TxnRequest,
    TxnResponse,
    WatchRequest,
    WatchResponse,
)
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import StoreOpenError, StoreUnavailableError

CALL_SECONDS = 5.0
PATIENCE_SECONDS = 10.0
PAUSE_SECONDS = 0.1

_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A member that vanished without a word is noticed; a watch may be silent for hours.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A member that comes back is found soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Each store has its own connections, and a proxy for web pages is not for us.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

_UNREACHED = ("failed to connect", "connection refused", "no leader", "dns resolution")
"""Words of a failure that say that no member has seen the request."""


class CallKind(enum.Enum):
    READ = enum.auto()
    WRITE = enum.auto()


class UncertainError(Exception):
    """The connection was lost after the request was sent: it may have been done."""


class EtcdRefusedError(Exception):
    """etcd answered, and the answer is no."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _Endpoint:
    def __init__(self, url: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.url = url
        scheme, _, address = url.partition("://")
        if scheme == "https":
            assert credentials is not None
            channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.channel = channel
        self.txn = channel.unary_unary(
            "/etcdserverpb.KV/Txn", TxnRequest.SerializeToString, TxnResponse.FromString
        )
        self.compact = channel.unary_unary(
            "/etcdserverpb.KV/Compact",
            CompactionRequest.SerializeToString,
            CompactionResponse.FromString,
        )
        self.watch = channel.stream_stream(
            "/etcdserverpb.Watch/Watch", WatchRequest.SerializeToString, WatchResponse.FromString
        )


class EtcdLink:
    """Calls to whichever endpoint answers. Raises StoreUnavailableError when none does."""

    def __init__(self, settings: EtcdSettings, clock: Clock) -> None:
        """Raises StoreOpenError where the settings cannot be used."""
        self._clock = clock
        credentials = _credentials(settings)
        self._endpoints = [_Endpoint(url, credentials) for url in _urls(settings.endpoints)]
        self._current = 0

    async def txn(self, request: ProtobufMessage, kind: CallKind) -> ProtobufMessage:
        return await self._call("txn", request, kind)

    async def compact(self, request: ProtobufMessage) -> ProtobufMessage:
        return await self._call("compact", request, CallKind.READ)  # again does no harm

    def open_watch(
        self, requests: AsyncIterator[ProtobufMessage]
    ) -> grpc.aio.StreamStreamCall[ProtobufMessage, ProtobufMessage]:
        """A member that is cut off from the others ends it, instead of staying silent."""
        return self._endpoints[self._current].watch(requests, metadata=(("hasleader", "true"),))

    def leave(self) -> None:
        """The current endpoint does not answer: go on with the next."""
        self._current = (self._current + 1) % len(self._endpoints)

    async def pause(self) -> None:
        """Before asking again."""
        await self._clock.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.channel.close()

    async def _call(self, method: str, request: ProtobufMessage, kind: CallKind) -> ProtobufMessage:
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while True:
            index = self._current
            endpoint = self._endpoints[index]
            try:
                return await getattr(endpoint, method)(request, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                self._judge(error, kind)
                failure = error
            if self._current == index:  # else another call has left it already
                self.leave()
            if self._clock.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"etcd cannot be reached at {endpoint.url}: {failure.details()}"
                )
            await self.pause()

    def _judge(self, error: grpc.aio.AioRpcError, kind: CallKind) -> None:
        """Return where the call may be repeated."""
        if not is_connection_trouble(error):
            raise EtcdRefusedError(error.code(), error.details() or "") from error
        words = (error.details() or "").lower()
        if kind is CallKind.WRITE and not any(word in words for word in _UNREACHED):
            raise UncertainError(error.details() or "") from error


def is_connection_trouble(error: grpc.aio.AioRpcError) -> bool:
    """The member is gone, going, or without a leader; another one may answer."""
    return error.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
    )


def _urls(endpoints: tuple[str, ...]) -> list[str]:
    urls = [url if "://" in url else f"http://{url}" for url in endpoints]
    for url in urls:
        scheme, _, address = url.partition("://")
        host, _, port = address.strip("/").rpartition(":")
        if scheme not in ("http", "https") or not host or not port.isdecimal():
            raise StoreOpenError(
                f"{url!r} is not an endpoint of etcd, for instance https://127.0.0.1:2379"
            )
    if not urls:
        raise StoreOpenError("etcd needs at least one endpoint, for instance 127.0.0.1:2379")
    return [url.rstrip("/") for url in urls]


def _credentials(settings: EtcdSettings) -> grpc.ChannelCredentials | None:
    if not any(url.startswith("https://") for url in settings.endpoints):
        return None
    if (settings.cert is None) != (settings.key is None):
        raise StoreOpenError("a client certificate for etcd needs its key, and the key it")
    return grpc.ssl_channel_credentials(settings.ca, settings.key, settings.cert)
