"""Checks of workloads are seen to fail: a bug is planted into the real product.

A few sequences find each of them. What they find first may be any of the checks named.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from livesize.api.objects import Object
from livesize.api.workload_resize import Hold, released
from livesize.apiserver.admission import workload_hold
from livesize.client.interface import Client
from livesize.controllers.in_place import plan, pod_plan, turns
from livesize.controllers.in_place.pod_plan import PodJudge, PodStanding, PodState
from livesize.controllers.kit.loop import run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.machinery.context import Context
from livesize.main.wiring.controllers import CLUSTER, OURS, control
from livesize.main.wiring.scheduler import schedule
from livesize.sim import sequence, workload_users
from livesize.sim.cluster import Parts
from livesize.sim.manifests import CPU, MEMORY, PolicyForm, draw_manifest
from livesize.sim.sequence import run_sequence
from livesize.sim.simulation import SimulationOutcome

MOST_SEEDS = 16
RESTARTING_SEED = 9
APART_SEED = 1


def run(seed: int) -> SimulationOutcome:
    return run_sequence(seed, Parts(schedule, control))


def first_failure() -> str:
    outcomes = (run(seed) for seed in range(1, MOST_SEEDS))
    return next((one.failed_check for one in outcomes if one.failed_check), "")


def test_without_a_bug_all_checks_pass_and_one_seed_gives_one_trace() -> None:
    first, again = run(3), run(3)
    assert (first.failed_check, first.message) == ("", "")
    assert first.trace_digest == again.trace_digest
    assert first.counts["operations"] >= 8


def test_a_release_that_forgets_what_was_the_users_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forget(workload: Object, hold: Hold) -> Object:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
        return released(workload, msgspec.structs.replace(hold, strategy=strategy, paused=True))

    monkeypatch.setattr(plan, "released", forget)
    assert first_failure() == "own strategy"


def test_a_write_that_is_not_held_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_hold, "_begin", lambda _old, new: new)
    assert first_failure() == "no needless recreation"


def test_a_pod_that_is_recreated_without_need_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for room is given up at once, whatever its user has said."""
    judge = PodJudge._judge_unsettled

    def give_up(self: PodJudge, *given: Any) -> PodState:
        state = judge(self, *given)
        if state.standing is not PodStanding.WAITS:
            return state
        return PodState(state.pod, PodStanding.RECREATE, "Deferred")

    monkeypatch.setattr(PodJudge, "_judge_unsettled", give_up)
    assert first_failure() == "no needless recreation"


def test_a_hold_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "SETTLE_SECONDS", 60.0)
    monkeypatch.setattr(plan, "_finish", lambda *_: None)
    assert first_failure() in ("settled", "settled when all is possible")


def test_pods_that_are_counted_before_they_have_their_sizes_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequence, "SETTLE_SECONDS", 60.0)
    monkeypatch.setattr(pod_plan, "size_patch", lambda *_: None)
    monkeypatch.setattr(pod_plan, "has_sizes", lambda *_: True)
    assert first_failure() in ("settled", "settled when all is possible")


def test_restarts_that_heed_no_budget_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sequences draw both: here every change of memory restarts, and budgets come and go."""
    restarting = PolicyForm(listed=((CPU, "NotRequired"), (MEMORY, "RestartContainer")))
    often = {"resize": 8, "budget": 1}

    def draw(*given: Any) -> Any:
        drawn = draw_manifest(*given)
        return msgspec.structs.replace(drawn, policy=restarting, action="InPlaceResize")

    monkeypatch.setattr(sequence, "draw_manifest", draw)
    monkeypatch.setattr(sequence, "OPERATIONS", (20, 30))
    weights = [often.get(name, 0) for name in workload_users._NAMES]
    monkeypatch.setattr(workload_users, "_WEIGHTS", weights)
    heeding = run(RESTARTING_SEED)
    assert heeding.failed_check == "", heeding.message
    monkeypatch.setattr(turns, "may_be_disrupted", lambda *_: True)
    assert run(RESTARTING_SEED).failed_check == "budgets are heeded"


def test_a_release_before_labels_are_seen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where in_place is a process of its own, and every watch is behind by its own time."""

    async def apart(client: Client, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for chosen in (CLUSTER, OURS):
                made = [make(context) for make in chosen]
                group.create_task(run_controllers(made, client, context, KitMetrics()))

    network = msgspec.structs.replace(
        sequence.RATES.network, delays_watches=True, stall_probability=0.1, stall_seconds=1.0
    )
    rates = msgspec.structs.replace(sequence.RATES, network=network)
    monkeypatch.setattr(sequence, "RATES", rates)
    parts = Parts(schedule, apart)
    waiting = run_sequence(APART_SEED, parts)
    assert waiting.failed_check == "", waiting.message
    monkeypatch.setattr(plan._Ordinals, "are_labels_seen", lambda *_: True)
    assert run_sequence(APART_SEED, parts).failed_check == "no needless recreation"


@pytest.mark.parametrize("seed", [1084, 1182, 1339, 1680, 1681])
def test_what_was_no_bug_is_not_taken_for_one(seed: int) -> None:
    """A pod serves for a moment only; policies ask for another pod while its resize waits, twice; a
    pod that is to go waits for one before it, which waits for room; and a write with former sizes
    is under way when the product goes back."""
    outcome = run(seed)
    assert (outcome.failed_check, outcome.message) == ("", "")
