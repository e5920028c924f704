"""metrics.k8s.io: what nodes and pods use, from what each node says with its heartbeat.

Selectors and pages are those of the nodes and pods themselves; what was not measured within the
last minute is left out of a list, and 404 by name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from livesize.api.errors import not_found
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.metrics import NODE_METRICS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup
from livesize.api.usage import (
    LONGEST_AGE_SECONDS,
    NodeUsage,
    node_metrics,
    parse_usage,
    pod_metrics,
)
from livesize.apiserver.auth.authorize import Access, authorize
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.node_reads import NODE_LEASES
from livesize.apiserver.http.options import list_options
from livesize.apiserver.http.requests import Form, Request
from livesize.apiserver.http.responses import Response, json_answer, list_answer
from livesize.apiserver.http.router import Route
from livesize.apiserver.http.tables import included_of, table
from livesize.apiserver.keys import key_of
from livesize.apiserver.records import ObjectRecord, make_record
from livesize.apiserver.request_types import Target
from livesize.apiserver.service import ApiService


class ResourceMetrics:
    """Answers one request; what a node says is read once."""

    def __init__(self, service: ApiService, now: float) -> None:
        self._service = service
        self._now = now
        self._by_node: dict[str, NodeUsage | None] = {}

    async def answer(
        self, identity: Identity, verb: str, route: Route, request: Request
    ) -> Response:
        about = NODES if route.resource == NODE_METRICS else PODS
        authorize(identity, Access(verb, route.resource, "", route.namespace, route.name))
        if verb == "get":
            target = Target(about, route.namespace, route.name)
            records = self._measured(route, [await self._service.get(identity, target)])
            if not records:
                raise not_found(route.resource, route.name)
            if request.form is Form.PLAIN:
                return Response(200, records[0].encoded)
            return self._table(route, records, {}, request)
        options = list_options(request, route.namespace)
        page = await self._service.list(identity, about, options)
        records = self._measured(route, page.records)
        rest = {"continue": page.continue_token} if page.continue_token else {}
        if request.form is Form.PLAIN:
            return list_answer(route.resource, records, page.revision, rest=rest)
        return self._table(route, records, rest, request)

    def _measured(self, route: Route, records: Sequence[ObjectRecord]) -> list[ObjectRecord]:
        measured = (self._metrics(route, record.stored) for record in records)
        return [make_record(route.resource, one, 0) for one in measured if one is not None]

    def _metrics(self, route: Route, about: Object) -> Object | None:
        if route.resource == NODE_METRICS:
            usage = self._usage_of(about["metadata"]["name"])
            return None if usage is None else node_metrics(about, usage)
        usage = self._usage_of(lookup(about, "spec", "nodeName", default=""))
        return None if usage is None else pod_metrics(about, usage)

    def _usage_of(self, node: str) -> NodeUsage | None:
        if node not in self._by_node:
            self._by_node[node] = self._read(node)
        return self._by_node[node]

    def _read(self, node: str) -> NodeUsage | None:
        """A node writes no lease but its own, so no node speaks for another."""
        lease = self._service.cache.get(LEASES, key_of(LEASES, NODE_LEASES, node)) if node else None
        usage = None if lease is None else parse_usage(lease.stored)
        if usage is None or self._now - _seconds(usage.time) > LONGEST_AGE_SECONDS:
            return None
        return usage

    def _table(
        self, route: Route, records: Sequence[ObjectRecord], rest: Object, request: Request
    ) -> Response:
        tree = table(
            route.resource,
            records,
            rest,
            form=request.form,
            included=included_of(request),
            now=self._now,
        )
        return json_answer(tree)


def _seconds(time: str) -> float:
    try:
        return dt.datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0
