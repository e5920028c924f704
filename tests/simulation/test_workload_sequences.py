"""`livesize sim --scenario workloads`: random sequences of what users do to StatefulSets and
Deployments, with nodes lost and processes killed in the middle.

No pod is recreated that need not be, none is held for ever, and partition and paused are the user's
own again (livesize.sim.workload_checks).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.workloads
AT_ONCE = 100
OFTEN = ("resize", "roll", "scale", "controllers killed", "agents killed", "pods resized", "holds")


def simulate(seed: int, sequences: int, *options: str, hash_seed: str = "random") -> dict[str, Any]:
    command = [sys.executable, "-m", "livesize.main", "sim", "--scenario", "workloads"]
    command += ["--seed", str(seed), "--sequences", str(sequences), "-o", "json", *options]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, said["failed"]) == (0, []), said["failed"]
    assert said["sequences"] == len(said["traces"]) == sequences
    return said


def test_a_hundred_sequences() -> None:
    counts = simulate(1, AT_ONCE)["counts"]
    assert min(counts[what] for what in OFTEN) > AT_ONCE
    assert counts["nodes lost"] > 0
    assert counts["recreated: fallback"] > 0


def test_one_seed_gives_one_trace(tmp_path: Path) -> None:
    traces = tmp_path / "first", tmp_path / "again"
    for trace, hash_seed in zip(traces, ("1", "2"), strict=True):
        simulate(7, 2, "--trace", str(trace), hash_seed=hash_seed)
    assert traces[0].read_bytes() == traces[1].read_bytes()


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(1 + AT_ONCE, 2001, AT_ONCE))
def test_two_thousand_sequences(first: int) -> None:
    """With the hundred of every day."""
    simulate(first, AT_ONCE)
