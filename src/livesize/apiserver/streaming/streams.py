"""Answers requests for logs, exec, attach and ports: authorizes, finds the node, asks it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from livesize.api.errors import StatusError, bad_request, forbidden, not_found
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup, name_of
from livesize.api.roles import Role
from livesize.apiserver.admission.trust import Distrust
from livesize.apiserver.auth.authorize import Access, authorize
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.http.peers import SWITCHED, TAKE_OVER
from livesize.apiserver.http.requests import Request, Scope
from livesize.apiserver.http.responses import Response
from livesize.apiserver.http.router import Route
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.streaming.endpoints import Endpoints, NodeUnreachableError
from livesize.apiserver.streaming.plan import (
    ATTACH,
    EXEC,
    LOG,
    NodeRequest,
    StreamQuery,
    plan_stream,
)
from livesize.apiserver.streaming.relay import NodeStream
from livesize.machinery.clock import Clock

HEAD_SECONDS = 60.0
CONTAINERD = "containerd://"
_MOST_WORDS_BYTES = 4096
_PASSED_ON = ("sec-websocket-key", "sec-websocket-protocol", "sec-websocket-version")
_REASONS = {400: "BadRequest", 404: "NotFound", 429: "TooManyRequests"}


class NodeStreams:
    def __init__(
        self,
        cache: ObjectsCache,
        endpoints: Endpoints,
        clock: Clock,
        *,
        trusts_editors: bool = True,
    ) -> None:
        self._cache = cache
        self._trusts_editors = trusts_editors
        self._endpoints = endpoints
        self._clock = clock

    async def answer(
        self, identity: Identity, verb: str, route: Route, scope: Scope, request: Request
    ) -> Response | NodeStream:
        authorize(identity, Access(verb, PODS, route.subresource, route.namespace, route.name))
        await self._cache.fresh()
        pod = self._cache.get(PODS, key_of(PODS, route.namespace, route.name))
        if pod is None:
            raise not_found(PODS, route.name)
        if route.subresource in (EXEC, ATTACH):
            self._refuse_distrusted(identity, pod.stored)
        query = StreamQuery(
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        )
        any_port = identity.role is Role.ADMIN or self._has_own_network(pod.stored)
        node_request = plan_stream(
            pod.stored, route.subresource, query, self._clock.now(), any_port=any_port
        )
        if node_request is None:
            return Response(200, b"", b"text/plain")
        take_over = _switching(route, scope, request)
        return await self._ask(node_request, scope, request, take_over)

    def _has_own_network(self, pod: Object) -> bool:
        """As containerd gives it to pods, by CNI; all others have the machine's."""
        name = str(lookup(pod, "spec", "nodeName", default=""))
        node = self._cache.get(NODES, key_of(NODES, "", name))
        if node is None or lookup(pod, "spec", "hostNetwork"):
            return False
        runtime = lookup(node.stored, "status", "nodeInfo", "containerRuntimeVersion", default="")
        return str(runtime).startswith(CONTAINERD)

    def _refuse_distrusted(self, identity: Identity, pod: Object) -> None:
        """A command in a container is a program as well as its image is."""
        if self._trusts_editors:
            return
        distrust = Distrust.of(record.stored for record in self._cache.records(NODES))
        why = distrust.forbids_program(identity, pod)
        if why:
            raise forbidden(PODS, name_of(pod), why)

    async def _ask(
        self,
        node_request: NodeRequest,
        scope: Scope,
        request: Request,
        take_over: Callable[[], Any] | None,
    ) -> NodeStream:
        """The node's answer has begun, and it is not a refusal."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                reader, writer = await stack.enter_async_context(
                    self._endpoints.connected(self._node(node_request.node))
                )
                writer.write(_head(node_request, request))
                async with asyncio.timeout(HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    status = int(head.split(b" ", 2)[1])
                    if status != (101 if node_request.switches else 200):
                        raise await _refusal(status, reader)
            except TimeoutError:
                raise _unreachable(f"node {node_request.node} does not answer") from None
            except (NodeUnreachableError, OSError, EOFError, asyncio.LimitOverrunError) as failure:
                raise _unreachable(str(failure) or f"node {node_request.node} hung up") from failure
            return NodeStream(
                (reader, writer),
                stack.pop_all(),
                self._clock,
                head,
                take_over,
                scope.get(SWITCHED),
                request.still_known,
            )

    def _node(self, name: str) -> Object:
        record = self._cache.get(NODES, key_of(NODES, "", name))
        if record is None:
            raise NodeUnreachableError(f"node {name} does not exist")
        return record.stored


def _switching(route: Route, scope: Scope, request: Request) -> Callable[[], Any] | None:
    """How the client's connection is taken over; None for a log, which is a plain answer."""
    if route.subresource == LOG:
        return None
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise bad_request(
            f"{route.subresource} is spoken over WebSocket (Upgrade: websocket); kubectl does so"
            " from 1.31 on"
        )
    take_over: Callable[[], Any] | None = (scope.get("extensions") or {}).get(TAKE_OVER)
    if take_over is None:
        raise StatusError(
            501,
            "NotImplemented",
            f"{route.subresource} needs the web server uvicorn: start the API server without"
            " --http granian",
        )
    return take_over


def _head(node_request: NodeRequest, request: Request) -> bytes:
    """What the node is sent: nothing of who asks, and no header but those it needs."""
    if not node_request.switches:
        return f"GET {node_request.path} HTTP/1.0\r\nHost: node\r\n\r\n".encode("latin-1")
    lines = [f"GET {node_request.path} HTTP/1.1", "Host: node", "Connection: Upgrade"]
    lines.append("Upgrade: websocket")
    lines += [f"{name}: {request.headers[name]}" for name in _PASSED_ON if name in request.headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _refusal(status: int, reader: asyncio.StreamReader) -> StatusError:
    words = (await reader.read(_MOST_WORDS_BYTES)).decode(errors="replace").strip()
    code = status if status in _REASONS else 500
    message = words or f"the node answered {status}"
    return StatusError(code, _REASONS.get(code, "InternalError"), message)


def _unreachable(why: str) -> StatusError:
    message = f"Internal error occurred: error dialing backend: {why}"
    return StatusError(500, "InternalError", message)
