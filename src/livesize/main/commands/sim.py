"""`livesize sim`: the whole cluster on virtual time, with faults drawn from a seed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from livesize.sim.cluster import Parts
    from livesize.sim.scenario import Scenario
    from livesize.sim.simulation import SimulationOutcome

_HASH_SEED = "0"
_WORKLOADS = "workloads"
_SCENARIOS = ("faults", "calm", "crowded", "storm", _WORKLOADS)


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Draws everything.")
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="So long, in virtual time, users and faults are at work.",
)
@click.option("--nodes", type=click.IntRange(1), help="How many.  [default: the scenario's, 50]")
@click.option("--pods", type=click.IntRange(0), help="How many.  [default: the scenario's, 1000]")
@click.option(
    "--scenario",
    type=click.Choice(_SCENARIOS),
    default="faults",
    show_default=True,
    help="calm: no faults; crowded: small nodes; storm: ten times the faults;"
    " workloads: StatefulSets and Deployments.",
)
@click.option(
    "--sequences",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Of workloads: so many, one after the other, each with the next seed.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write every event into this file, one line each.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def sim(  # noqa: PLR0913, PLR0917 - its options
    seed: int,
    hours: float,
    nodes: int | None,
    pods: int | None,
    scenario: str,
    sequences: int,
    trace: Path | None,
    output: str,
) -> None:
    """Run API server, scheduler, controllers and agents on virtual time, and check what they do.

    Processes are killed, watches cut, requests and answers lost, all drawn from the seed. The same
    seed gives the same trace, byte for byte. Exit code 1 when a check failed; the last line says
    how to repeat it.

    With --scenario workloads the seed also draws nodes, workloads and what their users do in a few
    minutes: resizes, rollouts, scaling, pauses, re-applies, deletions.

    \b
    Examples:
      livesize sim --seed 7
      livesize sim --seed 7 --hours 0.1 --nodes 5 --pods 50 --trace trace.txt
      livesize sim --scenario storm --hours 24 -o json
      livesize sim --scenario workloads --seed 1 --sequences 100
    """
    _fix_hashes()
    import msgspec

    from livesize.machinery.clock import SystemClock
    from livesize.machinery.telemetry import set_up_logging
    from livesize.main.wiring.controllers import control
    from livesize.main.wiring.scheduler import schedule
    from livesize.sim.cluster import Parts
    from livesize.sim.scenario import SCENARIOS
    from livesize.sim.simulation import run_simulation

    set_up_logging("error")
    parts = Parts(schedule, control)
    if scenario == _WORKLOADS:
        _run_sequences(seed, sequences, parts, trace, output)
        return
    chosen = SCENARIOS[scenario]
    chosen = msgspec.structs.replace(
        chosen, nodes=nodes or chosen.nodes, pods=chosen.pods if pods is None else pods
    )
    clock = SystemClock()
    began = clock.monotonic()
    progress = _Progress(hours)
    file = None if trace is None else trace.open("w")
    try:
        outcome = run_simulation(
            seed, hours, chosen, parts, trace_file=file, progress=progress.show
        )
    finally:
        progress.end()
        if file is not None:
            file.close()
    repeat = (
        f"livesize sim --seed {seed} --hours {hours:g} --nodes {chosen.nodes}"
        f" --pods {chosen.pods} --scenario {scenario}"
    )
    if output == "json":
        click.echo(msgspec.json.encode({**msgspec.to_builtins(outcome), "repeat": repeat}))
    else:
        _print(outcome, chosen, repeat, clock.monotonic() - began)
    if outcome.failed_check:
        sys.exit(1)


def _run_sequences(
    seed: int, sequences: int, parts: Parts, trace: Path | None, output: str
) -> None:
    """``trace``: of all of them, one after the other."""
    import msgspec

    from livesize.machinery.clock import SystemClock
    from livesize.sim.sequence import run_sequence

    clock = SystemClock()
    began, counts, digests = clock.monotonic(), Counter[str](), []
    failed: list[SimulationOutcome] = []
    with contextlib.nullcontext() if trace is None else trace.open("w") as file:
        for each in range(seed, seed + sequences):
            outcome = run_sequence(each, parts, trace_file=file)
            counts.update(outcome.counts)
            digests.append(outcome.trace_digest)
            if outcome.failed_check:
                failed.append(outcome)
                if output == "text":
                    click.echo(f"Check failed: {outcome.failed_check}: {outcome.message}")
                    click.echo(f"Repeat it: {_repeat_sequence(each)}")
    if output == "json":
        failures = [
            {**msgspec.to_builtins(one), "repeat": _repeat_sequence(one.seed)} for one in failed
        ]
        said = {"sequences": sequences, "failed": failures, "counts": counts, "traces": digests}
        click.echo(msgspec.json.encode(said))
    else:
        _print_sequences(seed, sequences, counts, clock.monotonic() - began)
        passed = sequences - len(failed)
        click.echo(f"All checks passed in {passed} of {sequences} sequences.")
    if failed:
        sys.exit(1)


def _repeat_sequence(seed: int) -> str:
    return f"livesize sim --scenario {_WORKLOADS} --seed {seed}"


def _fix_hashes() -> None:
    """Sets of strings have one order only where their hashes do not change: begin again with a
    fixed seed for them."""
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


class _Progress:
    """One line on a terminal, written over."""

    def __init__(self, hours: float) -> None:
        self._minutes = hours * 60
        self._shows = sys.stderr.isatty()

    def show(self, virtual_seconds: float) -> None:
        if self._shows:
            words = f"\r{virtual_seconds / 60:.0f} of {self._minutes:.0f} virtual minutes "
            click.echo(words, nl=False, err=True)

    def end(self) -> None:
        if self._shows:
            click.echo("\r\033[K", nl=False, err=True)


def _print(
    outcome: SimulationOutcome, scenario: Scenario, repeat: str, real_seconds: float
) -> None:
    count = outcome.counts.get
    click.echo(
        f"Simulated {outcome.virtual_seconds / 60:.1f} minutes of {scenario.nodes} nodes and"
        f" {scenario.pods} pods in {real_seconds:.1f} s, seed {outcome.seed}."
    )
    click.echo(
        f"  users      {count('pods created', 0)} pods created, {count('pods resized', 0)} resized,"
        f" {count('pods replaced', 0)} replaced"
    )
    click.echo(
        f"  faults     {count('agents killed', 0)} agents and {count('control plane killed', 0)}"
        f" control planes killed, {count('cut watches', 0)} watches cut,"
        f" {count('lost requests', 0)} requests and {count('lost answers', 0)} answers lost"
    )
    click.echo(
        f"  checked    {count('writes checked', 0)} acknowledged writes,"
        f" {count('machine changes checked', 0)} changes of machines"
    )
    click.echo(f"  trace      {outcome.trace_lines} lines, sha256 {outcome.trace_digest}")
    if outcome.failed_check:
        click.echo(f"Check failed: {outcome.failed_check}: {outcome.message}")
        click.echo(f"Repeat it: {repeat}")
    else:
        seconds = outcome.converged_seconds or 0.0
        click.echo(f"All checks passed; converged {seconds:.1f} s after the last fault.")


def _print_sequences(seed: int, sequences: int, counts: Counter[str], real_seconds: float) -> None:
    seeds = f"seed {seed}" if sequences == 1 else f"seeds {seed} to {seed + sequences - 1}"
    click.echo(f"Simulated {sequences} sequences in {real_seconds:.1f} s, {seeds}.")
    click.echo(
        f"  users      {counts['operations']} operations: {counts['resize']} resizes,"
        f" {counts['roll']} rollouts, {counts['scale']} times scaled"
    )
    click.echo(
        f"  faults     {counts['controllers killed']} times the controllers at a write,"
        f" {counts['control plane killed']} control planes and {counts['agents killed']} agents"
        f" killed, {counts['nodes lost']} nodes lost, {counts['cut watches']} watches cut"
    )
    click.echo(
        f"  pods       {counts['pods resized']} resized under {counts['holds']} holds,"
        f" {counts['pods recreated']} recreated, each for a reason"
    )
