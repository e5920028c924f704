"""Requests for resources: the verb of each, its body, and the answer from the service."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from livesize.api.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    unsupported_media_type,
)
from livesize.api.kinds.metrics import METRICS
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import Transfer
from livesize.api.objects import Object, uid_of
from livesize.api.patch import PatchType
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.deletion import Deleted
from livesize.apiserver.deletion_plan import DeletionOptions, parse_delete_options
from livesize.apiserver.events import event_line
from livesize.apiserver.http.bodies import (
    decode_json,
    decode_json_or_yaml,
    decode_on_thread,
    decode_yaml,
)
from livesize.apiserver.http.kubectl_edit import editable, is_edited
from livesize.apiserver.http.options import (
    apply_options,
    list_options,
    patch_options,
    watch_options,
    watch_seconds,
    write_options,
)
from livesize.apiserver.http.protobuf import PROTOBUF, decode_protobuf
from livesize.apiserver.http.requests import Form, Request
from livesize.apiserver.http.resource_metrics import ResourceMetrics
from livesize.apiserver.http.responses import (
    Response,
    json_answer,
    list_answer,
    with_warnings,
)
from livesize.apiserver.http.reviews import answer_review
from livesize.apiserver.http.router import Route
from livesize.apiserver.http.tables import included_of, table
from livesize.apiserver.http.watch_stream import WatchStream
from livesize.apiserver.listing import Page
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_types import Target
from livesize.apiserver.service import ApiService
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.pod_eviction import EVICTED
from livesize.apiserver.watchers import WatchDelivery
from livesize.machinery.clock import Clock

_JSON = ("application/json", "", "*/*")
_YAML = "application/yaml"
_BODIES = ("application/json", _YAML, PROTOBUF)
_PATCHES = tuple(kind.value for kind in PatchType)
_PATCH_TYPES = {kind.value: kind for kind in PatchType} | {
    "application/apply-patch+json": PatchType.APPLY
}


def verb_of(request: Request, route: Route) -> str:
    """The Kubernetes verb; raises 405 for a method the path does not have."""
    if route.subresource:
        verbs = _subresource_verbs(route)
    else:
        verbs = _OBJECT_VERBS if route.name else _COLLECTION_VERBS
    verb = verbs.get(request.method)
    if verb is None or (verb == "create" and not _can_create(route)):
        raise method_not_allowed()
    verb = "watch" if verb == "list" and request.flag("watch") else verb
    if not route.subresource and verb not in route.resource.verbs:
        raise method_not_allowed()
    return verb


_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCE_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch"}
# Who comes in by a WebSocket asks with GET for what changes the world.
_SWITCHED_VERBS = {"GET": "create", "POST": "create"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


def _subresource_verbs(route: Route) -> Mapping[str, str]:
    subresource = kind_of(route.resource).subresources[route.subresource]
    match subresource.transfer:
        case Transfer.STREAM:
            return _SWITCHED_VERBS if "create" in subresource.verbs else {"GET": "get"}
        case Transfer.POST:
            return {"POST": "create"}
        case Transfer.CHANGE:
            return _SUBRESOURCE_VERBS


def _can_create(route: Route) -> bool:
    return bool(route.name or route.namespace) or not route.resource.namespaced


_Handler: TypeAlias = Callable[[Identity, Route, Request], Awaitable[Response | WatchStream]]


class Handlers:
    def __init__(self, service: ApiService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._by_verb: Mapping[str, _Handler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def answer(
        self, identity: Identity, verb: str, route: Route, request: Request
    ) -> Response | WatchStream:
        if route.resource in METRICS:
            metered = ResourceMetrics(self._service, self._clock.now())
            return await metered.answer(identity, verb, route, request)
        answered = await self._by_verb[verb](identity, route, request)
        if request.warnings and isinstance(answered, Response):
            return with_warnings(answered, request.warnings)
        return answered

    async def review(self, identity: Identity, resource: Resource, request: Request) -> Response:
        return await answer_review(self._service, identity, resource, await _body(request))

    async def _get(self, identity: Identity, route: Route, request: Request) -> Response:
        any_age = request.query.get("resourceVersion") == "0"
        record = await self._service.get(identity, _target(route), any_age=any_age)
        shown = editable(record) if is_edited(request) else record
        return self._record_answer(shown, request)

    async def _list(self, identity: Identity, route: Route, request: Request) -> Response:
        options = list_options(request, route.namespace)
        page = await self._service.list(identity, route.resource, options)
        rest = _rest(page)
        if request.form is Form.PLAIN:
            records = page.records
            if is_edited(request):
                records = [editable(record) for record in records]
            return list_answer(route.resource, records, page.revision, rest=rest)
        metadata = {"resourceVersion": str(page.revision), **rest}
        return json_answer(self._table(route, page.records, metadata, request))

    async def _watch(
        self, identity: Identity, route: Route, request: Request
    ) -> Response | WatchStream:
        options = watch_options(request, route.namespace)
        seconds = watch_seconds(request)
        line: Callable[[WatchDelivery], bytes] = WatchDelivery.line
        if request.form is not Form.PLAIN:
            included_of(request)  # refused before the stream begins
            line = functools.partial(self._table_line, route, request)
        try:
            watcher = await self._service.watch(identity, route.resource, options)
        except StatusError as error:
            if error.code != 410:
                raise
            # As Kubernetes does: clients look for it in the stream, some nowhere else.
            return Response(200, event_line("ERROR", orjson.dumps(error.to_status())))
        cache = self._service.cache
        known = request.still_known
        return WatchStream(cache, self._clock, watcher, line, seconds, options.bookmarks, known)

    async def _create(self, identity: Identity, route: Route, request: Request) -> Response:
        options, body = write_options(request), await _body(request)
        if route.subresource == "eviction":
            await self._service.evict(identity, _target(route), body, options)
            return json_answer(EVICTED, 201)
        if route.subresource:
            record = await self._service.post(identity, _target(route), body, options)
        else:
            record = await self._service.create(
                identity, route.resource, route.namespace, body, options
            )
        return self._record_answer(record, request, 201)

    async def _update(self, identity: Identity, route: Route, request: Request) -> Response:
        options, body = write_options(request), await _body(request)
        record = await self._service.update(identity, _target(route), body, options)
        return self._record_answer(record, request)

    async def _patch(self, identity: Identity, route: Route, request: Request) -> Response:
        patch_type = _patch_type(request)
        if patch_type is PatchType.APPLY:
            return await self._apply(identity, route, request)
        options, patch = patch_options(request), decode_json(request.body)
        record = await self._service.patch(identity, _target(route), patch, patch_type, options)
        return self._record_answer(record, request)

    async def _apply(self, identity: Identity, route: Route, request: Request) -> Response:
        options = apply_options(request)
        if request.content_type == PatchType.APPLY:
            part = await decode_on_thread(decode_json_or_yaml, request.body)
        else:
            part = decode_json(request.body)
        applied = await self._service.apply(identity, _target(route), part, options)
        return self._record_answer(applied.record, request, 201 if applied.created else 200)

    async def _delete(self, identity: Identity, route: Route, request: Request) -> Response:
        options = await _delete_options(request)
        deleted = await self._service.delete(identity, _target(route), options)
        return _deleted_answer(deleted)

    async def _delete_collection(
        self, identity: Identity, route: Route, request: Request
    ) -> Response:
        if route.resource.namespaced and not route.namespace:
            raise method_not_allowed()
        deleted = await self._service.delete_collection(
            identity,
            route.resource,
            list_options(request, route.namespace),
            await _delete_options(request),
        )
        records = [one.record for one in deleted]
        return list_answer(route.resource, records, self._service.cache.revision, rest={})

    def _record_answer(self, record: ObjectRecord, request: Request, status: int = 200) -> Response:
        if request.form is Form.PLAIN:
            return Response(status, record.encoded)
        route = Route(record.resource)
        metadata = {"resourceVersion": str(record.revision)}
        return json_answer(self._table(route, [record], metadata, request), status)

    def _table(
        self, route: Route, records: Sequence[ObjectRecord], metadata: Object, request: Request
    ) -> Object:
        return table(
            route.resource,
            records,
            metadata,
            form=request.form,
            included=included_of(request),
            now=self._clock.now(),
        )

    def _table_line(self, route: Route, request: Request, delivery: WatchDelivery) -> bytes:
        shown = delivery.shown()
        records = [shown] if shown is not None else []
        metadata: Object = {"resourceVersion": str(delivery.revision)}
        if delivery.bookmark is not None:
            metadata = delivery.bookmark["metadata"]
        tree = self._table(route, records, metadata, request)
        return event_line(delivery.type, orjson.dumps(tree))


def _target(route: Route) -> Target:
    return Target(route.resource, route.namespace, route.name, route.subresource)


def _rest(page: Page) -> Object:
    rest: Object = {}
    if page.continue_token:
        rest["continue"] = page.continue_token
    if page.remaining is not None:
        rest["remainingItemCount"] = page.remaining
    return rest


async def _body(request: Request) -> Any:
    if request.content_type in _JSON:
        return decode_json(request.body)
    if request.content_type == _YAML:
        return await decode_on_thread(decode_yaml, request.body)
    if request.content_type == PROTOBUF:
        return await decode_on_thread(decode_protobuf, request.body)
    raise unsupported_media_type(request.content_type, _BODIES)


def _patch_type(request: Request) -> PatchType:
    content_type = request.content_type
    patch_type = _PATCH_TYPES.get(content_type)
    if patch_type is None:
        raise unsupported_media_type(content_type, _PATCHES)
    return patch_type


async def _delete_options(request: Request) -> DeletionOptions:
    body: Any = await _body(request) if request.body else {}
    if not isinstance(body, dict):
        raise bad_request("the body of a DELETE must be DeleteOptions, an object")
    grace = request.number("gracePeriodSeconds")
    if grace is not None:
        body = {"gracePeriodSeconds": grace, **body}
    if request.query.get("propagationPolicy"):
        body = {"propagationPolicy": request.query["propagationPolicy"], **body}
    if write_options(request).dry_run:
        body = {**body, "dryRun": ["All"]}
    return parse_delete_options(body)


def _deleted_answer(deleted: Deleted) -> Response:
    """The object where it is still there, or is a pod; otherwise a Status, as Kubernetes does."""
    record = deleted.record
    if not deleted.gone or strategy_of(record.resource).answers_deleted:
        return Response(200, record.encoded)
    details: Object = {"name": record.name, "kind": record.resource.plural}
    if record.resource.group:
        details["group"] = record.resource.group
    details["uid"] = uid_of(record.stored)
    return json_answer(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
    )
