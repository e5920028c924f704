"""The controllers, one list for `livesize up` and `livesize controllers`; and that command.

A new controller is a class with ``run`` in livesize.controllers, and one more word in CONTROLLERS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from livesize.client.interface import Client
from livesize.controllers.claims.reconciler import ClaimBinder
from livesize.controllers.disruption.reconciler import DisruptionBudgets
from livesize.controllers.garbage.reconciler import GarbageCollector
from livesize.controllers.node_lifecycle.reconciler import NodeLifecycle
from livesize.controllers.quota.reconciler import QuotaCounter
from livesize.controllers.resize_deadline.reconciler import ResizeDeadlines
from livesize.machinery.context import Context
from livesize.main.settings.table import Part


class Controller(Protocol):
    async def run(self) -> None:
        """Until cancelled."""
        ...


CONTROLLERS: tuple[Callable[..., Controller], ...] = (
    GarbageCollector,
    NodeLifecycle,
    QuotaCounter,
    ResizeDeadlines,
    DisruptionBudgets,
    ClaimBinder,
)


async def control(client: Client, context: Context) -> None:
    """Run them all, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for controller in CONTROLLERS:
            group.create_task(controller(client, context=context).run())


def run_controllers(**settings: Any) -> None:
    from livesize.main.wiring.remote_process import run_remote_process

    run_remote_process(Part.CONTROLLERS, control, **settings)
