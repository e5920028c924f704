"""Work of which one at a time is done among several processes, whoever runs it: the scheduler's and
the controllers', in `livesize up` on a shared store and in the commands of their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from livesize.client.interface import Client
from livesize.client.records import ClientLease
from livesize.machinery.context import Context
from livesize.machinery.election import leader_terms, run_elected
from livesize.main.settings.table import Part

Work: TypeAlias = Callable[[Client, Context], Coroutine[Any, Any, None]]


async def lead(part: Part, holder: str, work: Work, client: Client, context: Context) -> None:
    """Do ``work`` whenever nobody else does it, until cancelled."""
    terms = leader_terms(f"livesize-{part}", holder)
    record = ClientLease(client, terms.namespace, terms.name)
    await run_elected(record, terms, lambda: work(client, context), context=context)
