"""`livesize sim`: the real cluster for a virtual hour, and in the matrix for a virtual day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.simulation
FAULTS = (
    *("agents killed", "control plane killed"),
    *("cut watches", "lost requests", "lost answers"),
)


def simulate(*options: str, hash_seed: str = "") -> dict[str, Any]:
    """The outcome, also of one that failed."""
    command = [sys.executable, "-m", "livesize.main", "sim", "-o", "json", *options]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed or "random"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, outcome["failed_check"]) == (0, ""), outcome
    return outcome


def test_one_seed_gives_a_virtual_hour_of_one_trace(tmp_path: Path) -> None:
    """Issue: "Same seed, same trace, byte for byte"."""
    size = ("--seed", "7", "--hours", "1", "--nodes", "10", "--pods", "200")
    traces = tmp_path / "first", tmp_path / "again"
    for trace, hash_seed in zip(traces, ("1", "2"), strict=True):
        outcome = simulate(*size, "--trace", str(trace), hash_seed=hash_seed)
        assert outcome["virtual_seconds"] > 3600
        assert outcome["counts"]["agents killed"] > 10
        assert outcome["counts"]["pods resized"] > 1000
    assert traces[0].read_bytes() == traces[1].read_bytes()
    assert len(traces[0].read_text().splitlines()) == outcome["trace_lines"]


def test_the_scenario_of_fifty_nodes_and_a_thousand_pods() -> None:
    outcome = simulate("--seed", "1", "--hours", "0.1")
    assert outcome["counts"]["pods created"] >= 1000


@pytest.mark.matrix
@pytest.mark.parametrize("scenario", ["faults", "crowded", "storm"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_many_seeds_of_a_virtual_hour(scenario: str, seed: int) -> None:
    size = ("--nodes", "10", "--pods", "200")
    simulate("--seed", str(seed), "--scenario", scenario, *size)


@pytest.mark.matrix
def test_a_virtual_day() -> None:
    """Of fifty nodes and a thousand pods, with every fault there is."""
    outcome = simulate("--seed", "1", "--hours", "24")
    assert outcome["virtual_seconds"] > 86_400
    counts = outcome["counts"]
    assert counts["pods resized"] > 30_000
    assert min(counts[fault] for fault in FAULTS) > 50
