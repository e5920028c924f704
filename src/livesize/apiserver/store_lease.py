"""A lease in the store itself, for the leader election of a process that is the API server.

The election renews from a thread with a store of its own. A request to the API server would wait
for the very event loop whose work the lease protects. Other API servers on the store,
and their watches, see the lease like any other object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from livesize.api.errors import conflict
from livesize.api.kinds.lease import LEASES
from livesize.api.objects import Object, version_of
from livesize.api.times import format_time
from livesize.apiserver.keys import key_of
from livesize.apiserver.object_metadata import prepare_create
from livesize.apiserver.records import decode_record, make_record, stored_bytes
from livesize.machinery.context import Context
from livesize.store.interface import Check, ConflictError, Put, Store, StoreUnavailableError


class StoreLease:
    """The LeaseRecord of machinery. Raises StatusError and ConnectionError as a client does."""

    def __init__(self, store: Store, namespace: str, name: str, context: Context) -> None:
        self._store = store
        self._namespace = namespace
        self._name = name
        self._key = key_of(LEASES, namespace, name)
        self._context = context

    async def load(self) -> Object | None:
        with self._refusals():
            entry = await self._store.get(self._key)
        return (
            None if entry is None else decode_record(LEASES, entry.value, entry.mod_revision).served
        )

    async def create(self, lease: Object) -> Object:
        uid, now = self._context.ids.uid(), format_time(self._context.clock.now())
        made = prepare_create(LEASES, self._namespace, lease, uid=uid, now=now, suffix="")
        return await self._put(made, 0)

    async def update(self, lease: Object) -> Object:
        return await self._put(lease, int(version_of(lease)))

    async def _put(self, lease: Object, revision: int) -> Object:
        write = Put(self._key, stored_bytes(lease))
        with self._refusals():
            revision = await self._store.commit([Check(self._key, revision)], [write])
        return make_record(LEASES, lease, revision).served

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except ConflictError:
            raise conflict(LEASES, self._name) from None
        except StoreUnavailableError as failure:
            raise ConnectionError(str(failure)) from failure
