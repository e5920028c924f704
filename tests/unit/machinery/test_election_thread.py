"""Leading goes on while the work holds its event loop; a loop that is dead loses the lease."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from livesize.api.objects import Object
from livesize.machinery import election_thread
from livesize.machinery.context import system_context
from livesize.machinery.election_thread import run_elected_in_thread
from livesize.machinery.lease import LeaseRecord, LeaseTerms
from unit.machinery.test_election import Server

DURATION_SECONDS = 1


def terms(holder: str) -> LeaseTerms:
    return LeaseTerms("livesize-controllers", holder, "kube-system", DURATION_SECONDS, 0.1)


class Candidate:
    """Leads on ``server`` with its own record; notes when its work begins and ends."""

    def __init__(self, server: Server, holder: str, leading: list[str]) -> None:
        self.holder = holder
        self.threads: set[str] = set()
        self._server = server
        self._leading = leading
        self.task: asyncio.Task[None] | None = None
        self.fails = False

    @contextlib.asynccontextmanager
    async def record(self) -> AsyncIterator[LeaseRecord]:
        inner, threads = self._server.record(self.holder), self.threads

        class Noting:
            async def load(self) -> Object | None:
                return await inner.load()

            async def create(self, lease: Object) -> Object:
                threads.add(threading.current_thread().name)
                return await inner.create(lease)

            async def update(self, lease: Object) -> Object:
                threads.add(threading.current_thread().name)
                return await inner.update(lease)

        yield Noting()

    async def work(self) -> None:
        self._leading.append(self.holder)
        assert len(self._leading) == 1, "two lead at once"
        try:
            if self.fails:
                await asyncio.sleep(0.1)
                raise ZeroDivisionError
            await asyncio.Event().wait()
        finally:
            self._leading.remove(self.holder)

    def start(self) -> None:
        self.task = asyncio.create_task(
            run_elected_in_thread(
                self.record, terms(self.holder), self.work, context=system_context()
            )
        )

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def other_process(server: Server, seconds: float) -> tuple[threading.Thread, list[str]]:
    """Another candidate with a loop of its own, for a while."""
    led: list[str] = []

    async def compete() -> None:
        rival = Candidate(server, "b", led)

        async def work() -> None:
            led.append("b")
            await asyncio.Event().wait()

        rival.work = work  # type: ignore[method-assign]
        rival.start()
        await asyncio.sleep(seconds)
        await rival.stop()

    thread = threading.Thread(target=lambda: asyncio.run(compete()))
    thread.start()
    return thread, led


async def test_work_that_holds_the_loop_for_longer_than_the_lease_goes_on_leading() -> None:
    server, leading = Server(), []
    candidate = Candidate(server, "a", leading)
    candidate.start()
    await until(lambda: leading == ["a"])
    thread, led = other_process(server, 3 * DURATION_SECONDS)
    began = time.monotonic()
    while time.monotonic() - began < 2.5 * DURATION_SECONDS:
        sum(range(1000))  # Python that never gives the loop back
    await asyncio.to_thread(thread.join)
    assert led == []
    assert leading == ["a"]
    assert candidate.threads == {"election"}
    await candidate.stop()
    assert leading == []
    assert (server.lease or {})["spec"]["holderIdentity"] == "", "released"


async def test_a_loop_that_is_dead_loses_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_thread, "STUCK_SECONDS", 0.5)
    server, leading = Server(), []
    candidate = Candidate(server, "a", leading)
    candidate.start()
    await until(lambda: leading == ["a"])
    thread, led = other_process(server, 4 * DURATION_SECONDS)
    time.sleep(3.5 * DURATION_SECONDS)
    assert led == ["b"]
    await until(lambda: leading == [])  # the first thing when it lives again
    await asyncio.to_thread(thread.join)
    await candidate.stop()


async def test_work_that_fails_is_raised_and_the_lease_released() -> None:
    server, leading = Server(), []
    candidate = Candidate(server, "a", leading)
    candidate.fails = True
    candidate.start()
    assert candidate.task is not None
    with pytest.raises(ZeroDivisionError):
        await candidate.task
    assert (server.lease or {})["spec"]["holderIdentity"] == ""


async def test_stopped_while_it_waits_for_the_lease() -> None:
    server, leading = Server(), []
    first, second = (Candidate(server, holder, leading) for holder in "ab")
    first.start()
    await until(lambda: leading == ["a"])
    second.start()
    await asyncio.sleep(0.3)
    await second.stop()
    assert leading == ["a"]
    await first.stop()


async def test_an_api_server_that_cannot_be_opened_is_raised() -> None:
    @contextlib.asynccontextmanager
    async def closed() -> AsyncIterator[LeaseRecord]:
        raise OSError("no such file")
        yield

    async def work() -> None:
        raise AssertionError("never")

    with pytest.raises(OSError, match="no such file"):
        await run_elected_in_thread(closed, terms("a"), work, context=system_context())
