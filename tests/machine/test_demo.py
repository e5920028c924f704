"""`livesize demo` keeps its promises; the leak guard looks behind it once more."""

from __future__ import annotations

import re
import subprocess

import pytest

from system.up import LIVESIZE

pytestmark = pytest.mark.containers


def test_the_demo_shows_the_proof_and_leaves_nothing_behind() -> None:
    shown = subprocess.run(
        [LIVESIZE, "demo"], capture_output=True, text=True, timeout=150, check=False
    )

    assert shown.returncode == 0, shown.stdout + shown.stderr
    row = re.compile(r"^(start|grow|shrink) .* (\d+)(?:  +[\d.]+ ms)? *$", re.MULTILINE)
    rows = row.findall(shown.stdout)
    assert [word for word, _ in rows][:3] == ["start", "grow", "shrink"]
    assert len({pid for _, pid in rows[:3]}) == 1
    assert "Nothing is left behind" in shown.stdout
