"""`livesize scheduler`, and the scheduler's part of `livesize up`."""

from __future__ import annotations

import functools
from typing import Any

from livesize.client.interface import Client
from livesize.controllers.kit.metrics import KitMetrics
from livesize.machinery.context import Context
from livesize.main.settings.table import Part
from livesize.scheduler.loop import Scheduler


async def schedule(
    client: Client,
    context: Context,
    metrics: KitMetrics | None = None,
    resize_judge: str = "node",
) -> None:
    """Place pods, until cancelled."""
    scheduler = Scheduler(
        client,
        context=context,
        judges_resizes=resize_judge == "scheduler",
        metrics=(metrics or KitMetrics()).of("scheduler"),
    )
    await scheduler.run()


def run_scheduler(resize_judge: str, **settings: Any) -> None:
    from livesize.main.wiring.remote_process import run_remote_process

    metrics = KitMetrics()
    work = functools.partial(schedule, metrics=metrics, resize_judge=resize_judge)
    run_remote_process(Part.SCHEDULER, work, metrics, **settings)
