"""Pytest plugin: tests on virtual time sleep as long as they like, and nobody waits for them.

    @virtual_time                # or of a whole file: pytestmark = virtual_time
    async def test_a_lease_runs_out() -> None:
        await CLOCK.sleep(3600)

Such a test and its async fixtures run on livesize.sim.loop.VirtualLoop, which has no sockets. What
the code gives to a thread is done at once, and takes no virtual time. Tasks that are left at the
end are cancelled. The fixture ``virtual_clock`` does the same for all tests that use it, or a
fixture that does. One test that needs threads or sockets nevertheless is marked ``real_time``;
CLOCK goes with the loop it is asked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from livesize.machinery.context import Context, seeded_context
from livesize.sim.loop import VirtualClock, VirtualLoop

CLOCK = VirtualClock()
virtual_time = pytest.mark.virtual_time
real_time = pytest.mark.real_time


class ThreadlessLoop(VirtualLoop):
    def run_in_executor(  # type: ignore[override]
        self, _executor: object, call: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(call(*arguments))
        except Exception as failure:  # noqa: BLE001 - it is the caller's
            done.set_exception(failure)
        return done


LoopFactories = dict[str, Callable[[], asyncio.AbstractEventLoop]]


@pytest.hookimpl(wrapper=True)
def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Generator[None, LoopFactories | None, LoopFactories]:
    chosen = yield  # by a folder's conftest
    marked = {mark.name for mark in item.iter_markers()}
    assert isinstance(item, pytest.Function)
    is_virtual = "virtual_time" in marked or "virtual_clock" in item.fixturenames
    if is_virtual and "real_time" not in marked:
        return {"virtual": ThreadlessLoop}
    return chosen or {"real": asyncio.new_event_loop}


@pytest.fixture
def virtual_clock() -> VirtualClock:
    return CLOCK


def virtual_context(seed: int = 1) -> Context:
    return seeded_context(seed, CLOCK)
