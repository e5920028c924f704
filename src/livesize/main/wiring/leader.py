"""Runs the work of a scheduler or of the controllers while this process is their leader.

`livesize up` does so on a shared store, `livesize scheduler` and `controllers` always.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from livesize.client.adapters import ClientLease
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.machinery.election import leader_terms, run_elected
from livesize.main.settings.table import Part

Work: TypeAlias = Callable[[Client, Context], Coroutine[Any, Any, None]]


async def lead(part: Part, holder: str, work: Work, client: Client, context: Context) -> None:
    """Do ``work`` while no other process leads, until cancelled."""
    terms = leader_terms(f"livesize-{part}", holder)
    record = ClientLease(client, terms.namespace, terms.name)
    await run_elected(record, terms, lambda: work(client, context), context=context)
