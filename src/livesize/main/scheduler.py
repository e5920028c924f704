"""`livesize scheduler`, and the scheduler's part of `livesize up`."""

from __future__ import annotations

from typing import Any

from livesize.client.interface import Client
from livesize.machinery.clock import Clock
from livesize.main.settings_table import Part
from livesize.scheduler.loop import Scheduler


async def schedule(client: Client, clock: Clock) -> None:
    """Place pods, until cancelled."""
    await Scheduler(client, clock=clock).run()


def run_scheduler(**settings: Any) -> None:
    from livesize.main.peers import run_peer

    run_peer(Part.SCHEDULER, schedule, **settings)
