"""Empties terminating namespaces and removes them; makes the namespaces that are always there, and
what every namespace has.

Driven by changes: a namespace is looked at when it changes, when what every namespace has does, and
while it terminates whenever something in it goes. Pods that run on a node go when their node lets
them go.
"""

from __future__ import annotations

from livesize.api.errors import StatusError
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.registry import REGISTRY
from livesize.api.objects import lookup
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.bootstrap_objects import (
    BOOTSTRAP_KINDS,
    BootstrapObjects,
    bootstrap_cluster,
    bootstrap_namespace,
    is_bootstrapped,
)
from livesize.apiserver.deletion_plan import LASTING_NAMESPACES, DeletionOptions
from livesize.apiserver.keys import key_of
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_types import ListOptions
from livesize.apiserver.service import ApiService
from livesize.apiserver.watchers import WatchDelivery, Watcher
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.store.interface import StoreUnavailableError

_log = get_logger("apiserver.namespaces")
_IDENTITY = Identity("system:namespace-controller", Role.ADMIN)
DEFAULT_BOOTSTRAP = BootstrapObjects()
UNAVAILABLE_SECONDS = 1.0
_LOOKED_AT = frozenset({NAMESPACES, *BOOTSTRAP_KINDS})


async def ensure_lasting_namespaces(
    service: ApiService, bootstrap: BootstrapObjects = DEFAULT_BOOTSTRAP
) -> None:
    await bootstrap_cluster(service)
    for name in sorted(LASTING_NAMESPACES):
        try:
            await service.create(_IDENTITY, NAMESPACES, "", {"metadata": {"name": name}})
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    for record in service.cache.records(NAMESPACES):
        await bootstrap_namespace(service, record.name, bootstrap, renew=True)


async def run_namespaces(
    service: ApiService, bootstrap: BootstrapObjects = DEFAULT_BOOTSTRAP, *, clock: Clock
) -> None:
    """Until the cache ends its watches for good; one that was only cut off is begun again, and
    everything is looked at again when the store could not be reached for a while."""
    going: set[str] = set()  # namespaces that terminate

    def concerns(record: ObjectRecord) -> bool:
        return record.resource in _LOOKED_AT or record.namespace in going

    while True:
        watcher = service.cache.watch(None, matches=concerns)
        try:
            await _follow(service, watcher, bootstrap, going)
            if watcher.error is None:
                return
        except StoreUnavailableError as failure:
            _log.warning("namespaces not looked after, trying again", why=str(failure))
            await clock.sleep(UNAVAILABLE_SECONDS)
        finally:
            service.cache.end(watcher)


async def _follow(
    service: ApiService, watcher: Watcher, bootstrap: BootstrapObjects, going: set[str]
) -> None:
    for record in service.cache.records(NAMESPACES):
        await _look_at(service, record.name, bootstrap, going)
    while deliveries := await watcher.take(late=True):
        concerned = {_namespace_concerned(delivery) for delivery in deliveries}
        for name in sorted(concerned):
            await _look_at(service, name, bootstrap, going)


def _namespace_concerned(delivery: WatchDelivery) -> str:
    record = delivery.shown()
    assert record is not None
    return record.name if record.resource == NAMESPACES else record.namespace


async def _look_at(
    service: ApiService, name: str, bootstrap: BootstrapObjects, going: set[str]
) -> None:
    if not _is_terminating(service, name):
        going.discard(name)
        if not is_bootstrapped(service.cache, name):
            await bootstrap_namespace(service, name, bootstrap)
        return
    going.add(name)  # first: what goes while it is emptied brings us here again
    try:
        await _empty(service, name)
    except StatusError as error:
        # Somebody was faster; what they did brings us here again.
        _log.warning("namespace not emptied", namespace=name, reason=error.message)


async def _empty(service: ApiService, name: str) -> None:
    left = 0
    for resource in REGISTRY.stored():
        if not resource.namespaced:
            continue
        selection = ListOptions(namespace=name)
        page = await service.list(_IDENTITY, resource, selection)
        waiting = [one for one in page.records if not _is_going(one)]
        if waiting:
            deleted = await service.delete_collection(
                _IDENTITY, resource, selection, DeletionOptions()
            )
            left += sum(not one.gone for one in deleted)
        else:
            left += len(page.records)
    if not left and await service.finish_namespace(name):
        _log.info("namespace removed", namespace=name)


def _is_terminating(service: ApiService, name: str) -> bool:
    record = service.cache.get(NAMESPACES, key_of(NAMESPACES, "", name))
    return record is not None and _is_going(record)


def _is_going(record: ObjectRecord) -> bool:
    return bool(lookup(record.stored, "metadata", "deletionTimestamp"))
