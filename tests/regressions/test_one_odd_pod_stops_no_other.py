"""A pod that a part of the agent cannot digest is no other pod's problem, also at its start."""

from __future__ import annotations

import pytest

from livesize.agent.judge import Judge
from livesize.agent.observation import PodSnapshot
from livesize.agent.pods.status_reporter import StatusReporter
from livesize.api.objects import Object, name_of
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


async def test_the_agent_starts_with_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came while it ran was passed over; one that was there ended it, at every start."""
    real = Judge.admit

    def admit(self: Judge, pod: Object, *, already_runs: bool) -> object:
        if name_of(pod) == "odd":
            raise ValueError("a bug")
        return real(self, pod, already_runs=already_runs)

    monkeypatch.setattr(Judge, "admit", admit)
    await world.api.start()
    await world.api.run_pod("odd", container())
    await world.api.run_pod("even", container())
    await world.start()
    await world.running("even")


async def test_a_bug_while_a_failure_is_told_ends_no_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a turn could not do is told after it, where nothing caught what that raised."""
    real, told = StatusReporter.report, []

    async def report(self: StatusReporter, *look: PodSnapshot) -> bool:
        if name_of(self._record.pod) == "odd":
            told.append(look)
            raise ValueError("a bug")
        return await real(self, *look)

    monkeypatch.setattr(StatusReporter, "report", report)
    world.machine.create_error = "no room for groups"
    await world.start()
    await world.api.run_pod("odd", container())
    await world.until(lambda: told, "it was to be told")
    world.machine.create_error = ""
    await world.api.run_pod("even", container())
    await world.running("even")
