"""What scripts/setup brings to a machine is what we have looked at: by its hash."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETUP = (ROOT / "scripts" / "setup").read_text()


def test_pip_installs_by_hash_only() -> None:
    joined = SETUP.replace("\\\n", " ")
    calls = re.findall(r"-m pip install.*", joined)
    assert len(calls) == 3
    for call in calls:
        assert "--require-hashes" in call or "--no-deps -e ." in call


def test_the_installer_is_pinned_for_each_architecture() -> None:
    lines = (ROOT / "scripts" / "uv.txt").read_text()
    assert len(re.findall(r"^uv==\d+\.\d+\.\d+ ", lines, re.MULTILINE)) == 1
    assert len(set(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", lines))) >= 4


def test_what_setup_runs_is_in_its_stamp() -> None:
    assert "cat uv.lock pyproject.toml scripts/setup scripts/uv.txt" in SETUP
