"""IBM's flow of a resize, where the scheduler judges first (resizeJudge: scheduler).

The real API server, scheduler and agent; the machine is the fake one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from design.one_process import NODE, OneProcess, one_process
from livesize.api.conditions import is_true
from livesize.api.kinds.node import NODES
from livesize.api.objects import Object
from livesize.api.reasons import ConditionType
from livesize.api.roles import Role
from livesize.machinery.context import system_context
from livesize.scheduler.loop import Scheduler

LONG = 30.0  # nobody's patience ends in a test that hears the scheduler


def both(**amounts: str) -> Object:
    return {"requests": amounts, "limits": amounts}


@contextlib.asynccontextmanager
async def judging(system: OneProcess) -> AsyncIterator[None]:
    client = system.as_role(Role.SCHEDULER)
    scheduler = Scheduler(client, context=system_context(), judges_resizes=True)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scheduler.run())
        await scheduler.synced()
        yield
        running.cancel()


async def phases(system: OneProcess, asked: Object, last: str) -> list[tuple[str, Any]]:
    """Phase, and whether the node has been heard, each change of them until ``last``."""
    seen: list[tuple[str, Any]] = []
    async with asyncio.timeout(10):
        async for pod in system.states(asked):
            state = pod["status"]["resizeState"]
            heard = state.get("observedGeneration", 0) >= state["generation"]
            if not seen or seen[-1] != (state["phase"], heard):
                seen.append((state["phase"], heard))
            if seen[-1] == (last, True):
                return seen
    raise AssertionError("the watch ended")


async def test_the_scheduler_says_first_whether_it_is_feasible(tmp_path: Path) -> None:
    """Once the 'Scheduler' determine whether a resource resizing on a pod is feasible, or not, it
    notifies to the API server via this Resizing API."""
    async with one_process(tmp_path, scheduler_seconds=LONG) as system, judging(system):
        await system.run_pod("db", system.container(cpu="1"))
        asked = await system.resize("db", {"app": both(cpu="2")})
        seen = await phases(system, asked, "Done")
        assert seen[:2] == [("Requested", False), ("Accepted", False)]
        asked = await system.resize("db", {"app": both(cpu="64")})
        seen = await phases(system, asked, "Infeasible")
        assert ("Infeasible", False) in seen


async def test_what_it_accepted_is_promised_to_nobody_else(tmp_path: Path) -> None:
    """The scheduler counts a resize that it has accepted, before the node has seen it."""
    async with one_process(tmp_path, scheduler_seconds=LONG) as system, judging(system):
        for name in ("a", "b"):
            await system.run_pod(name, system.container(cpu="1"))
        first = await system.resize("a", {"app": both(cpu="3")})
        second = await system.resize("b", {"app": both(cpu="2")})
        assert (await phases(system, first, "Done"))[-1] == ("Done", True)
        assert ("Deferred", True) in await phases(system, second, "Deferred")
        await system.resize("a", {"app": both(cpu="1")})
        assert (await phases(system, second, "Done"))[-1] == ("Done", True)


async def test_a_resize_completes_with_the_scheduler_stopped(tmp_path: Path) -> None:
    """The node waits for its word, and then judges alone."""
    async with one_process(tmp_path, scheduler_seconds=0.2) as system:
        await system.run_pod("db", system.container(cpu="1"))
        asked = await system.resize("db", {"app": both(cpu="2")})
        seen = await phases(system, asked, "Done")
        assert seen[0] == ("Requested", False)
        assert ("Accepted", False) not in seen


async def test_a_rejection_does_not_stop_the_node(tmp_path: Path) -> None:
    """The scheduler may know less than the node: here it believes that the node is small."""
    async with one_process(tmp_path, scheduler_seconds=LONG) as system:
        node = system.as_role(Role.NODE, NODE)
        small = {"status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}}
        await system.run_pod("db", system.container(cpu="1"))
        async with asyncio.timeout(10):  # its own first status would undo ours
            while not is_true(await node.get(NODES, NODE), ConditionType.READY):
                await asyncio.sleep(0.01)
        await node.patch(NODES, NODE, small, subresource="status")
        async with judging(system):
            asked = await system.resize("db", {"app": both(cpu="2")})
            seen = await phases(system, asked, "Done")
        assert ("Infeasible", False) in seen
