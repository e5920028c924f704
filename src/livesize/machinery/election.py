"""Of several that could do a work, one does it: whoever holds a Lease, for as long as it renews it.

    waiting ──lease free, run out, or ours──► leading ──not renewed in time──► waiting
                                                 └──cancelled, or the work failed──► released

A lease has run out when it has not changed for its duration *while we watched*: the clocks of two
machines are never compared. A leader that cannot renew stops its work before the others may begin:
it gives up after GIVE_UP_AFTER of the duration, counted from before its last renewal was sent. Who
is stopped in good order releases the lease, and the next one need not wait for it to run out.

What a leader has asked the API server just before it lost the lease may still arrive. The work must
bear that, as it must bear a crash: it reads first and writes against the version it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from livesize.api.errors import StatusError
from livesize.api.objects import Object, evolve, lookup, version_of
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.lease import LeaseRecord, LeaseTerms, new_lease, renewed_lease
from livesize.machinery.telemetry import get_logger

log = get_logger("election")

NAMESPACE = "kube-system"
DURATION_SECONDS = 5
RENEW_SECONDS = 1.0
GIVE_UP_AFTER = 0.7
RELEASE_SECONDS = 2.0


def leader_terms(name: str, holder: str) -> LeaseTerms:
    return LeaseTerms(name, holder, NAMESPACE, DURATION_SECONDS, RENEW_SECONDS)


async def run_elected(
    record: LeaseRecord,
    terms: LeaseTerms,
    work: Callable[[], Awaitable[None]],
    *,
    context: Context,
) -> None:
    """Until cancelled: ``work`` runs from its beginning each time we are elected, and is cancelled
    when we are not any more. What it raises ends this too."""
    clock = context.clock
    while True:
        held = await _win(record, terms, clock)
        log.info("leading", lease=terms.name, holder=terms.holder)
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(_work(work))
                await _hold(record, terms, held, clock)
                working.cancel()
        finally:
            await _release(record, terms)
        log.warning("not leading any more", lease=terms.name, holder=terms.holder)


async def _work(work: Callable[[], Awaitable[None]]) -> None:
    await work()
    raise AssertionError("the work of a leader ends only when it is cancelled")


class _Held(msgspec.Struct, frozen=True):
    """The lease as we have written it, and when the request that did so was sent."""

    lease: Object
    requested_at: float


async def _win(record: LeaseRecord, terms: LeaseTerms, clock: Clock) -> _Held:
    """Wait until the lease is ours."""
    seen, since = "", clock.monotonic()
    while True:
        requested_at = clock.monotonic()
        try:
            async with asyncio.timeout(terms.duration_seconds):
                lease = await record.load()
                if lease is not None and version_of(lease) != seen:
                    seen, since = version_of(lease), clock.monotonic()
                if lease is None:
                    created = await record.create(new_lease(terms, clock.now()))
                    return _Held(created, requested_at)
                if _is_free(lease, terms, clock.monotonic() - since):
                    taken = await record.update(_taken(lease, terms, clock.now()))
                    return _Held(taken, requested_at)
        except StatusError as refusal:
            if refusal.code != 409:  # else somebody was faster
                log.warning("lease not read", lease=terms.name, reason=str(refusal))
        except (ConnectionError, TimeoutError) as failure:
            log.warning("lease not read", lease=terms.name, reason=str(failure))
        await clock.sleep(terms.renew_seconds)


def _is_free(lease: Object, terms: LeaseTerms, unchanged_seconds: float) -> bool:
    holder = lookup(lease, "spec", "holderIdentity", default="")
    lasts = float(lookup(lease, "spec", "leaseDurationSeconds", default=terms.duration_seconds))
    return holder in ("", terms.holder) or unchanged_seconds >= lasts


def _taken(lease: Object, terms: LeaseTerms, now: float) -> Object:
    taken = renewed_lease(lease, terms, now)
    if lookup(lease, "spec", "holderIdentity", default="") == terms.holder:
        return taken
    transitions = int(lookup(lease, "spec", "leaseTransitions", default=0))
    return evolve(taken, ("spec", "leaseTransitions"), transitions + 1)


async def _hold(record: LeaseRecord, terms: LeaseTerms, held: _Held, clock: Clock) -> None:
    """Return when the lease is lost, or could be lost soon."""
    while True:
        deadline = held.requested_at + terms.duration_seconds * GIVE_UP_AFTER
        left = deadline - clock.monotonic()
        if left <= 0:
            return
        await clock.sleep(min(terms.renew_seconds, left))
        requested_at = clock.monotonic()
        try:
            async with asyncio.timeout(max(0.0, deadline - requested_at)):
                renewed = await _renew(record, terms, held.lease, clock.now())
            if renewed is None:
                return
            held = _Held(renewed, requested_at)
        except (ConnectionError, TimeoutError, StatusError) as failure:
            log.warning("lease not renewed", lease=terms.name, reason=str(failure))


async def _renew(record: LeaseRecord, terms: LeaseTerms, held: Object, now: float) -> Object | None:
    """None where it is not ours any more. Somebody may have changed something else of it, or the
    answer to our last renewal was lost: then what is there says whose it is."""
    try:
        return await record.update(renewed_lease(held, terms, now))
    except StatusError as refusal:
        if refusal.code not in (404, 409):
            raise
    lease = await record.load()
    if lease is None or lookup(lease, "spec", "holderIdentity") != terms.holder:
        return None
    return await record.update(renewed_lease(lease, terms, now))


async def _release(record: LeaseRecord, terms: LeaseTerms) -> None:
    """Let the next one begin at once. Where this fails, the lease runs out by itself."""
    with contextlib.suppress(ConnectionError, TimeoutError, StatusError):
        async with asyncio.timeout(RELEASE_SECONDS):
            lease = await record.load()
            if lookup(lease, "spec", "holderIdentity") == terms.holder:
                assert lease is not None
                await record.update(evolve(lease, ("spec", "holderIdentity"), ""))
                log.info("lease released", lease=terms.name, holder=terms.holder)
