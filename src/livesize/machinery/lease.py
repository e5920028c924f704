"""A heartbeat: a coordination.k8s.io Lease that its holder renews for as long as it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from livesize.api.errors import StatusError
from livesize.api.objects import Object, evolve, lookup
from livesize.api.times import format_micro_time
from livesize.machinery.context import Context
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger

log = get_logger("lease")

_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0


class LeaseTerms(msgspec.Struct, frozen=True):
    """Whose heartbeat it is. A lease not renewed for ``duration_seconds`` has run out."""

    name: str
    holder: str
    namespace: str = "kube-node-lease"
    duration_seconds: int = 40
    renew_seconds: float = 10.0


class LeaseRecord(Protocol):
    """Where the lease is kept."""

    async def load(self) -> Object | None: ...

    async def create(self, lease: Object) -> Object: ...

    async def update(self, lease: Object) -> Object: ...


def new_lease(terms: LeaseTerms, now: float, owner: Object | None = None) -> Object:
    """``owner`` is an ownerReference: the lease goes when its node goes."""
    metadata: Object = {"name": terms.name, "namespace": terms.namespace}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": metadata,
        "spec": {
            "holderIdentity": terms.holder,
            "leaseDurationSeconds": terms.duration_seconds,
            "acquireTime": format_micro_time(now),
            "renewTime": format_micro_time(now),
        },
    }


def renewed_lease(lease: Object, terms: LeaseTerms, now: float) -> Object:
    """The lease with a new heartbeat; a new holder also acquires it."""
    spec = {
        **lookup(lease, "spec", default={}),
        "leaseDurationSeconds": terms.duration_seconds,
        "renewTime": format_micro_time(now),
    }
    if spec.get("holderIdentity") != terms.holder:
        spec |= {"holderIdentity": terms.holder, "acquireTime": format_micro_time(now)}
    return evolve(lease, ("spec",), spec)


async def keep_lease(
    record: LeaseRecord,
    terms: LeaseTerms,
    *,
    context: Context,
    owner: Callable[[], Object | None] = lambda: None,
) -> None:
    """Renew until cancelled. A failed renewal is tried again soon, with jitter."""
    clock = context.clock
    backoff = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, context.random)
    held: Object | None = None
    failures = 0
    while True:
        try:
            async with asyncio.timeout(terms.renew_seconds):
                held = await _renew(record, terms, held, clock.now(), owner())
        except (ConnectionError, TimeoutError, StatusError) as failure:
            held = None
            failures += 1
            log.warning("lease not renewed", lease=terms.name, reason=str(failure))
            await clock.sleep(backoff.seconds(failures))
        else:
            failures = 0
            await clock.sleep(terms.renew_seconds)


async def _renew(
    record: LeaseRecord, terms: LeaseTerms, held: Object | None, now: float, owner: Object | None
) -> Object:
    lease = held if held is not None else await record.load()
    if lease is None:
        return await record.create(new_lease(terms, now, owner))
    return await record.update(renewed_lease(lease, terms, now))
