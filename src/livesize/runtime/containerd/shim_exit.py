"""Calls under which a shim may end, together with what it looks after.

containerd refuses such a call ("ttrpc: closed"), and a moment later, when it has noticed the end,
there is nothing left to stop. So what was refused is asked for again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from livesize.machinery.clock import Clock
from livesize.runtime.containerd.cri_client import CriRefusedError

ENDING_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


async def ask_until_noticed(clock: Clock, ask: Callable[[], Awaitable[object]]) -> None:
    """What is refused to the end is raised."""
    for delay_seconds in ENDING_DELAYS:
        with contextlib.suppress(CriRefusedError):
            await ask()
            return
        await clock.sleep(delay_seconds)
    await ask()
