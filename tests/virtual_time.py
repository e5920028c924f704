"""Tests on virtual time: they sleep as long as they like, and nobody waits for them.

    @virtual_time
    async def test_a_lease_runs_out() -> None:
        await CLOCK.sleep(3600)

Such a test runs on livesize.sim.loop.VirtualLoop, which has neither threads nor sockets. Async
fixtures run on another loop: what a test needs it makes itself. Tasks that are left at its end are
cancelled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from livesize.machinery.context import Context, seeded_context
from livesize.sim.loop import VirtualClock, run_virtual

CLOCK = VirtualClock()

Parameters = ParamSpec("Parameters")


def virtual_time(
    test: Callable[Parameters, Coroutine[Any, Any, None]],
) -> Callable[Parameters, None]:
    @functools.wraps(test)
    def run(*arguments: Parameters.args, **more: Parameters.kwargs) -> None:
        run_virtual(test(*arguments, **more))

    return run


def virtual_context(seed: int = 1) -> Context:
    return seeded_context(seed, CLOCK)
