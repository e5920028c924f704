"""The one way to speak to an API server: ours or any Kubernetes.

Objects are plain JSON dicts (livesize.api.objects). Refusals are livesize.api.errors.StatusError
with code, reason and causes; ConnectionError means the server could not be reached, and the
call may or may not have happened. A resourceVersion is opaque: two can be equal or not, and no
client puts them in an order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.write_options import PLAIN_WRITE, WriteOptions


class Client(Protocol):
    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, subresource: str = ""
    ) -> Object: ...

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        """At most ``limit`` objects (0: all of them), and where there are more the token of the
        next page. All pages show one moment; StatusError 410 means that the server has let that
        moment go, and the list begins again (livesize.client.pages)."""
        ...

    def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after ``resource_version``. Ends when the server ends it (watch again from the
        last version seen); StatusError 410 means: list again.

        ``initial_events``, with an empty version: first the present state as ADDED events, until
        the bookmark that ``ends_initial_events``. StatusError 422: this server does not offer it.
        """
        ...

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object: ...

    async def update(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        """PUT the whole object; name, namespace and resourceVersion are taken from it."""
        ...

    async def patch(  # noqa: PLR0913 - the parts of a PATCH request
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        """PatchType.APPLY creates what is not there; its field manager is that of the options, or
        the client's own name."""
        ...

    async def delete(  # noqa: PLR0913 - the parts of a DELETE request
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> Object:
        """``propagation``: Background, Foreground or Orphan, for what the object owns."""
        ...

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        """POST to a subresource: binding, resizing, eviction."""
        ...

    async def close(self) -> None: ...


def delete_options(
    grace_period_seconds: int | None, uid: str, propagation: str = "", *, dry_run: bool = False
) -> Object:
    """The body of a DELETE."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if uid:
        options["preconditions"] = {"uid": uid}
    if propagation:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    return options
