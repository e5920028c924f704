"""Runs the work of a scheduler or of the controllers while this process is their leader.

`livesize scheduler` and `livesize controllers` renew their lease from a thread with a connection of
its own. `livesize up` on a shared store renews it in the event loop of its API server: a loop that
is held there answers no request either.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

from livesize.client.adapters import ClientLease
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.machinery.election import leader_terms, run_elected
from livesize.machinery.election_thread import run_elected_in_thread
from livesize.machinery.lease import LeaseRecord
from livesize.main.settings.table import Part

Work: TypeAlias = Callable[[Client, Context], Coroutine[Any, Any, None]]


async def lead(part: Part, holder: str, work: Work, client: Client, context: Context) -> None:
    """Do ``work`` while no other process leads, until cancelled."""
    terms = leader_terms(f"livesize-{part}", holder)
    record = ClientLease(client, terms.namespace, terms.name)
    await run_elected(record, terms, lambda: work(client, context), context=context)


async def lead_remotely(
    part: Part, holder: str, work: Work, connection: ConnectionConfig, context: Context
) -> None:
    """The same, over ``connection``: one client for the work, another one for the lease."""
    terms = leader_terms(f"livesize-{part}", holder)

    @contextlib.asynccontextmanager
    async def record() -> AsyncIterator[LeaseRecord]:
        client = await HttpClient.open(connection)
        try:
            yield ClientLease(client, terms.namespace, terms.name)
        finally:
            await client.close()

    client = await HttpClient.open(connection)
    try:
        await run_elected_in_thread(record, terms, lambda: work(client, context), context=context)
    finally:
        await client.close()
