"""Each check of the simulator is seen to fail: a bug is planted into the real product.

A run of a few virtual minutes finds each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from livesize.agent import agent
from livesize.agent.agent import Agent
from livesize.agent.pods.status_reporter import StatusReporter
from livesize.agent.resize.driver import NEVER, ResizeDriver
from livesize.api.errors import StatusError
from livesize.api.resources import Amounts
from livesize.apiserver.service import ApiService
from livesize.main.wiring.controllers import control
from livesize.main.wiring.scheduler import schedule
from livesize.runtime.fake import FakeRuntime
from livesize.sim.cluster import Parts
from livesize.sim.scenario import NO_FAULTS, Scenario
from livesize.sim.simulation import SimulationOutcome, run_simulation
from livesize.store.interface import Check, Write
from livesize.store.memory import MemoryStore

SMALL = Scenario(
    nodes=2,
    pods=12,
    resizes_an_hour=2000,
    node_cpu_milli=6000,
    node_memory_bytes=4 << 30,
    creation_seconds=20,
    settle_seconds=60,
)
HOURS = 0.1


def run(seed: int = 1, **scenario: Any) -> SimulationOutcome:
    chosen = msgspec.structs.replace(SMALL, **scenario)
    return run_simulation(seed, HOURS, chosen, Parts(schedule, control))


@pytest.mark.parametrize("seed", [1, 2])
def test_without_a_bug_all_checks_pass(seed: int) -> None:
    outcome = run(seed)
    assert (outcome.failed_check, outcome.message) == ("", "")
    assert outcome.counts["pods resized"] > 100


def test_an_agent_that_promises_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts on twice of what its node has."""
    allocatable = agent.allocatable_of

    def doubled(*more: Any) -> Amounts:
        found = allocatable(*more)
        return Amounts(2 * (found.cpu_milli or 0), 2 * (found.memory_bytes or 0))

    monkeypatch.setattr(agent, "allocatable_of", doubled)
    outcome = run(pods=30, faults=NO_FAULTS)
    assert outcome.failed_check == "no overcommit"
    assert "may use" in outcome.message


def test_a_store_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    commit, calls = MemoryStore.commit, iter(range(10_000))

    async def forget(self: MemoryStore, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        if next(calls) % 50 == 49:
            return await self.revision() + 1
        return await commit(self, checks, writes)

    monkeypatch.setattr(MemoryStore, "commit", forget)
    assert run(faults=NO_FAULTS).failed_check == "no lost write"


def test_a_store_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = MemoryStore.list

    async def without_pods(self: MemoryStore, prefix: str, **more: Any) -> Any:
        found = await listing(self, prefix, **more)
        if more:
            return found
        kept = tuple(entry for entry in found.entries if "/pods/" not in entry.key)
        return msgspec.structs.replace(found, entries=kept)

    monkeypatch.setattr(MemoryStore, "list", without_pods)
    outcome = run(faults=NO_FAULTS)
    assert outcome.failed_check == "no lost write"
    assert "now at none" in outcome.message


def test_an_agent_that_restarts_to_resize_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drive = ResizeDriver.drive

    async def restart(self: ResizeDriver, target: Any, snapshot: Any) -> float:
        again = await drive(self, target, snapshot)
        if target.generation > 1:
            for name in snapshot.containers:
                await self._dependencies.runtime.stop_container(target.uid, name, 1.0)
        return again

    monkeypatch.setattr(ResizeDriver, "drive", restart)
    assert run(faults=NO_FAULTS).failed_check == "no needless restart"


def test_an_agent_that_forgets_to_resize_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rest(*_: Any) -> float:
        return NEVER

    monkeypatch.setattr(ResizeDriver, "drive", rest)
    outcome = run(faults=NO_FAULTS)
    assert outcome.failed_check == "convergence"
    assert "is still" in outcome.message


def test_a_node_that_keeps_deleted_pods_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(*_: Any) -> None:
        return None

    monkeypatch.setattr(FakeRuntime, "remove_pod", keep)
    outcome = run(replacements_an_hour=500, faults=NO_FAULTS)
    assert outcome.failed_check == "convergence"
    assert "which is not its own" in outcome.message


def test_a_bug_that_a_component_survives_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(StatusReporter, "build", fail)
    outcome = run()
    assert (outcome.failed_check, "a bug" in outcome.message) == ("no bug was met", True)


def test_an_agent_that_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(_: Agent) -> None:
        return None

    monkeypatch.setattr(Agent, "run", end)
    assert run().failed_check == "no component ends"


def test_a_server_that_refuses_its_users_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise StatusError(422, "Invalid", "not today")

    monkeypatch.setattr(ApiService, "patch", refuse)
    assert run().failed_check == "users are served"


def test_one_seed_gives_one_trace_and_another_another() -> None:
    first, again, other = (run(seed).trace_digest for seed in (1, 1, 2))
    assert (first == again, first == other) == (True, False)
