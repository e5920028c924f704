"""The ASGI application: who asks, what for, and an answer to everything.

Open to anybody: /healthz, /livez, /readyz, /version, and what a node needs to join. All else needs
a token or a client certificate; who it was is left in the scope. An exception never becomes more
than a Status to the client; its traceback goes to the log.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from livesize.api.architecture import architecture_of
from livesize.api.errors import (
    StatusError,
    method_not_allowed,
    path_not_found,
    unauthorized,
    unavailable,
)
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.subresource import Transfer
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.impersonation import PREFIX, become, read_impersonation
from livesize.apiserver.http.discovery import Discovery
from livesize.apiserver.http.handlers import Handlers, verb_of
from livesize.apiserver.http.health import Health
from livesize.apiserver.http.limits import JOIN, STREAM, Budget, RequestLimits
from livesize.apiserver.http.loop_lag import run_loop_lag
from livesize.apiserver.http.metrics import Metrics
from livesize.apiserver.http.node_join import CA_PATH, JOIN_PATH, RENEW_PATH, NodeJoin
from livesize.apiserver.http.openapi import OpenApi
from livesize.apiserver.http.peers import IDENTITY, IMPERSONATED, KNOWN, peer_certificate
from livesize.apiserver.http.requests import (
    ClientGoneError,
    Receive,
    Request,
    Scope,
    Send,
    read_body,
    read_head,
)
from livesize.apiserver.http.responses import (
    PIECE_BYTES,
    Response,
    json_answer,
    refusal_answer,
    send_answer,
)
from livesize.apiserver.http.reviews import review_at
from livesize.apiserver.http.router import Route, find_route
from livesize.apiserver.http.watch_stream import WatchStream
from livesize.apiserver.service import ApiService
from livesize.apiserver.streaming.relay import NodeStream
from livesize.apiserver.streaming.streams import NodeStreams
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.store.interface import StoreClosedError

if TYPE_CHECKING:
    from livesize.machinery.exposition import Family

_log = get_logger("apiserver.http")

KUBERNETES_MINOR = "35"
# Names of series in the metrics: a client may send any word, and must not fill the memory so.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Authenticator(Protocol):
    def identify(self, token: str, now: float) -> Identity | None: ...

    def identify_certificate(self, der: bytes, now: float) -> Identity | None: ...

    def identity_named(self, name: str, now: float) -> Identity | None: ...


class PendingRequest(msgspec.Struct, frozen=True):
    """What is to be answered once its body is read: in whose name (limits), what the metrics call
    it (verb, resource, subresource), and who knows the answer."""

    by: str
    labels: tuple[str, str, str]
    head: Request
    answer: Callable[[Request], Awaitable[Response | WatchStream | NodeStream]]


class AnsweredRequest(msgspec.Struct, frozen=True):
    """An answer, what the metrics call it, and how to give its place back (limits)."""

    answer: Response | WatchStream | NodeStream
    labels: tuple[str, str, str]
    leave: Callable[[], None] | None = None


class App:
    def __init__(  # noqa: PLR0913 - the parts of the API server
        self,
        service: ApiService,
        authenticator: Authenticator,
        clock: Clock,
        *,
        version: str,
        is_ready: Callable[[], bool],
        budget: Budget | None = None,
        joining: NodeJoin | None = None,
        streams: NodeStreams | None = None,
        other_metrics: Sequence[Callable[[], Iterable[Family]]] = (),
    ) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._health = Health(serving=is_ready, store=lambda: not service.cache.stopped)
        self._limits = RequestLimits(budget)
        self._joining = joining
        self._streams = streams
        self._handlers = Handlers(service, clock)
        self._metrics = Metrics(service.cache, self._limits.in_flight, other_metrics)
        self._discovery = _discovery()
        self._openapi = _openapi(version)
        self._version = _version_document(version)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "only HTTP is served"
        began = self._clock.monotonic()
        head = read_head(scope)
        try:
            served = await self._serve(scope, head, receive)
        except ClientGoneError:
            return
        try:
            await self._send(served, began, receive, send)
        except ClientGoneError:
            _log.warning("answer not read", method=head.method, path=head.path)
        finally:
            if served.leave is not None:
                served.leave()

    async def run_loop_lag(self) -> None:
        """Measures for /metrics how late the event loop is; runs beside the server."""
        await run_loop_lag(self._clock, self._metrics.record_lag)

    async def _send(
        self, served: AnsweredRequest, began: float, receive: Receive, send: Send
    ) -> None:
        if isinstance(served.answer, WatchStream | NodeStream):
            self._metrics.record(served.labels, 200, None)
            await served.answer.run(receive, send)
            return
        await send_answer(send, served.answer)
        seconds = self._clock.monotonic() - began
        self._metrics.record(served.labels, served.answer.status, seconds)

    async def _serve(self, scope: Scope, head: Request, receive: Receive) -> AnsweredRequest:
        labels = (head.method if head.method in _METHODS else "other", "", "")
        try:
            ask = self._ask_of(scope, head)
            if isinstance(ask, Response):
                return AnsweredRequest(ask, labels)
            labels = ask.labels
            leave = self._limits.enter(ask.by, verb=labels[0])
            try:
                answer = await ask.answer(await read_body(receive, ask.head))
                if isinstance(answer, Response) and len(answer.body) > PIECE_BYTES:
                    leave = self._limits.hold(ask.by, len(answer.body), leave)
            except BaseException:
                leave()
                raise
            return AnsweredRequest(answer, labels, leave)
        except StatusError as error:
            return AnsweredRequest(refusal_answer(error), labels)
        except StoreClosedError as error:
            return AnsweredRequest(
                refusal_answer(unavailable(f"the store is closed: {error}")), labels
            )
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - a bug in one request must not end the server
            _log.exception("request failed", method=head.method, path=head.path)
            message = "Internal error occurred: the server's log says more"
            return AnsweredRequest(
                refusal_answer(StatusError(500, "InternalError", message)), labels
            )

    def _open_to_all(self, head: Request) -> Response | None:
        if self._joining is not None and head.path == CA_PATH:
            return self._joining.authority()
        return self._version if head.path == "/version" else self._health.find(head)

    def _ask_of(self, scope: Scope, head: Request) -> Response | PendingRequest:
        """Where nothing has to be read or looked up, the answer itself. Objects come first:
        nearly every request is for one."""
        route = find_route(head.path)
        if route is not None:
            return self._routed(self._identify(scope, head), route, scope, head)
        fixed = self._open_to_all(head)
        if fixed is not None:
            return fixed
        if self._joining is not None and head.path == JOIN_PATH:
            return self._join(self._joining, scope, head)
        identity = self._identify(scope, head)
        own = IMPERSONATED not in scope
        ask = self._fixed(head) or self._posted(identity, head, own=own)
        if ask is None:
            raise path_not_found(head.path)
        return ask

    def _join(self, joining: NodeJoin, scope: Scope, head: Request) -> PendingRequest:
        """A machine that joins has no identity yet, only its token and where it is."""
        joining.admit(head)

        async def join(request: Request) -> Response:
            scope[IDENTITY], answer = await joining.join(request)
            return answer

        host, *_ = scope.get("client") or ("an unknown address",)
        return PendingRequest(str(host), (JOIN, "", ""), head, join)

    def _posted(self, identity: Identity, head: Request, *, own: bool) -> PendingRequest | None:
        """What is asked and answered, and not stored. ``own``: not by another who acts as them."""
        if self._joining is not None and head.path == RENEW_PATH and own:
            renew = functools.partial(self._joining.renew, identity)
            return PendingRequest(identity.name, ("renew", "", ""), head, renew)
        review = review_at(head)
        if review is None:
            return None
        answer = functools.partial(self._handlers.review, identity, review)
        return PendingRequest(identity.name, ("create", review.plural, ""), head, answer)

    def _routed(
        self, identity: Identity, route: Route, scope: Scope, head: Request
    ) -> PendingRequest:
        """What is asked of objects."""
        verb = verb_of(head, route)
        if self._streams is not None and _is_streamed(route):
            lasts = verb == "create" or head.flag("follow")
            labels = (STREAM if lasts else verb, route.resource.plural, route.subresource)
            ask = functools.partial(self._streams.answer, identity, verb, route, scope)
            return PendingRequest(identity.name, labels, self._lasting(scope, head), ask)
        head = self._lasting(scope, head) if verb == "watch" else head
        labels = (verb, route.resource.plural, route.subresource)
        answer = functools.partial(self._handlers.answer, identity, verb, route)
        return PendingRequest(identity.name, labels, head, answer)

    def _fixed(self, head: Request) -> Response | None:
        """Documents that do not depend on who asks."""
        if head.path == "/metrics":
            return Response(200, self._metrics.text(), _METRICS_TYPE)
        document = self._discovery.find(head) or self._openapi.find(head)
        if document is None:
            return None
        if head.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return document.answer(head)

    def _identify(self, scope: Scope, head: Request) -> Identity:
        """By certificate where one was shown, else by token, as Kubernetes does."""
        now, token = self._clock.now(), head.bearer
        certificate = peer_certificate(scope)
        identity = None
        if certificate is not None:
            identity = self._authenticator.identify_certificate(certificate, now)
        if identity is None and token:
            identity = self._authenticator.identify(token, now)
        if identity is None:
            raise unauthorized()
        scope[IDENTITY] = identity
        if KNOWN in scope:
            scope.pop(KNOWN)()
        if any(name.startswith(PREFIX) for name in head.headers):
            return self._impersonated(identity, scope, now)
        return identity

    def _impersonated(self, identity: Identity, scope: Scope, now: float) -> Identity:
        impersonation = read_impersonation(scope["headers"])
        if impersonation is None:
            return identity
        named = functools.partial(self._authenticator.identity_named, now=now)
        other = become(identity, impersonation, named)
        scope[IMPERSONATED] = other
        return other

    def _lasting(self, scope: Scope, head: Request) -> Request:
        """A request that goes on asking whether its credential is still good."""

        def still_known() -> bool:
            try:
                self._identify(scope, head)
            except StatusError:
                return False
            return True

        return msgspec.structs.replace(head, still_known=still_known)


def _is_streamed(route: Route) -> bool:
    subresource = kind_of(route.resource).subresources.get(route.subresource)
    return subresource is not None and subresource.transfer is Transfer.STREAM


@functools.cache
def _discovery() -> Discovery:
    return Discovery()


@functools.cache
def _openapi(version: str) -> OpenApi:
    return OpenApi(version)


def _version_document(version: str) -> Response:
    return json_answer(
        {
            "major": "1",
            "minor": KUBERNETES_MINOR,
            "gitVersion": f"v1.{KUBERNETES_MINOR}.0+livesize.{version}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{platform.python_version()}",
            "compiler": platform.python_implementation(),
            "platform": f"linux/{architecture_of(platform.machine())}",
        }
    )
