"""Runs the work of a scheduler or of the controllers while this process is their leader.

The lease is renewed from a thread with a connection of its own, so that work which holds its event
loop stays the leader's. `livesize scheduler` and `livesize controllers` renew it at an API server;
`livesize up` on a shared store, whose API server is in the loop of the work, in the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from livesize.client.adapters import ClientLease
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.machinery.election import leader_terms
from livesize.machinery.election_thread import run_elected_in_thread
from livesize.machinery.lease import LeaseRecord, LeaseTerms
from livesize.main.settings.table import Part

if TYPE_CHECKING:
    from livesize.store.interface import Store

PartWork: TypeAlias = Callable[[Client, Context], Coroutine[Any, Any, None]]
OpenStore: TypeAlias = "Callable[[], Awaitable[Store]]"


async def lead_in_server(
    part: Part, holder: str, work: PartWork, client: Client, open_store: OpenStore, context: Context
) -> None:
    """Do ``work`` through ``client`` while no other process leads, until cancelled. The thread of
    the lease opens a store of its own."""
    from livesize.apiserver.store_lease import StoreLease

    terms = terms_of(part, holder)

    @contextlib.asynccontextmanager
    async def record() -> AsyncIterator[LeaseRecord]:
        store = await open_store()
        try:
            yield StoreLease(store, terms.namespace, terms.name, context)
        finally:
            await store.close()

    await run_elected_in_thread(record, terms, lambda: work(client, context), context=context)


async def lead_remotely(
    part: Part, holder: str, work: PartWork, connection: ConnectionConfig, context: Context
) -> None:
    """The same, over ``connection``: one client for the work, another one for the lease."""
    terms = terms_of(part, holder)

    @contextlib.asynccontextmanager
    async def record() -> AsyncIterator[LeaseRecord]:
        client = await HttpClient.open(connection, context.clock)
        try:
            yield ClientLease(client, terms.namespace, terms.name)
        finally:
            await client.close()

    client = await HttpClient.open(connection, context.clock)
    try:
        await run_elected_in_thread(record, terms, lambda: work(client, context), context=context)
    finally:
        await client.close()


def terms_of(part: Part, holder: str) -> LeaseTerms:
    return leader_terms(f"livesize-{part}", holder)
