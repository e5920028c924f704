"""What --cpu-policy and --reserved-cpus mean, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from livesize.agent.cpus.plan import CpuSupply
from livesize.machinery.context import system_context
from livesize.main.entry import cli
from livesize.main.wiring.agent import (
    Allocatable,
    NodeSettings,
    StaticCpus,
    _agent_settings,
    _supply,
    parse_cpu_policy,
)
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.ownership import NodeIdentity

IDENTITY = NodeIdentity("0123", "n.0123")


@pytest.mark.parametrize(
    ("policy", "reserved", "meant"),
    [
        ("none", "", None),
        ("static", "", StaticCpus()),
        ("static", "0,2-3", StaticCpus((0, 2, 3))),
    ],
)
def test_what_is_meant(policy: str, reserved: str, meant: StaticCpus | None) -> None:
    assert parse_cpu_policy(policy, reserved) == meant


@pytest.mark.parametrize(
    ("policy", "reserved", "why"),
    [
        ("none", "0", "it is for --cpu-policy static"),
        ("static", "zero", "'zero' is neither a CPU's number nor a range"),
    ],
)
def test_what_is_refused(policy: str, reserved: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        parse_cpu_policy(policy, reserved)


def test_a_cpu_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    words = ["up", "--runtime", "fake", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(cli, [*words, "--cpu-policy", "static", "--reserved-cpus", "64"])
    assert done.exit_code == 1
    assert "--reserved-cpus: this machine has the CPUs 0-3, and not 64" in done.output


def test_reserved_cpus_are_not_promised_unless_somebody_says_so() -> None:
    runtime = FakeRuntime(context=system_context(), machine=FakeMachine(system_context()))
    supply = _supply(StaticCpus((0, 1)), runtime)
    assert supply == CpuSupply((0, 1, 2, 3), (0, 1))
    node = NodeSettings("n", IDENTITY, "127.0.0.1")
    settings = _agent_settings(node, runtime.machine(), supply)
    assert (settings.allocatable_cpu_milli, settings.cpus) == (2000, supply)
    given = NodeSettings("n", IDENTITY, "127.0.0.1", allocatable=Allocatable(cpu_milli=4000))
    assert _agent_settings(given, runtime.machine(), supply).allocatable_cpu_milli == 4000
    assert _agent_settings(node, runtime.machine(), None).allocatable_cpu_milli is None
    with pytest.raises(RuntimeCallError, match="none would be left"):
        _supply(StaticCpus((0, 1, 2, 3)), runtime)
