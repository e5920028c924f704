"""Controllers at work in a test: as main runs them, on one set of caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livesize.client.interface import Client
from livesize.controllers.kit.loop import Controller, run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.machinery.context import Context
from virtual_time import virtual_context


async def at_work(client: Client, *makes: Callable[[Context], Controller[Any]]) -> None:
    """Until cancelled."""
    context = virtual_context()
    await run_controllers([make(context) for make in makes], client, context, KitMetrics())
