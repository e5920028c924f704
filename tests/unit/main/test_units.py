"""The systemd units: as the files in packaging/ say, and as systemd reads them."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from livesize.main.commands.units import unit_name, unit_text
from livesize.main.entry import cli
from livesize.main.settings.table import Part

PACKAGING = Path(__file__).parents[3] / "packaging" / "systemd"


@pytest.mark.parametrize("part", Part)
def test_the_packaged_unit_is_the_printed_one(part: Part) -> None:
    words = ["units", "print", part.value, "--program", "/usr/bin/livesize"]
    printed = CliRunner().invoke(cli, words)
    assert (PACKAGING / unit_name(part)).read_text() == printed.output


def test_nothing_else_is_packaged() -> None:
    assert sorted(path.name for path in PACKAGING.iterdir()) == sorted(map(unit_name, Part))


@pytest.mark.parametrize("part", Part)
def test_what_matters_is_in_it(part: Part) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(unit_text(part, "/opt/livesize"))
    service = unit["Service"]
    assert service["Type"] == "notify"
    keeps = " --keep" if part is Part.UP else ""  # the agent keeps pods by itself
    assert service["ExecStart"] == f"/opt/livesize {part}{keeps}"
    assert service["Environment"] == f"LIVESIZE_CONFIG=/etc/livesize/{part}.yaml"
    runs_pods = part in (Part.UP, Part.AGENT)
    assert (service.get("KillMode") == "process") == runs_pods, "pods outlive the service"


def test_it_is_installed_where_it_is_told(tmp_path: Path) -> None:
    words = ["units", "install", "agent", "--directory", str(tmp_path)]
    done = CliRunner().invoke(cli, [*words, "--program", "/usr/bin/livesize"])
    assert done.exit_code == 0
    assert "systemctl enable --now livesize-agent.service" in done.output
    written = (tmp_path / "livesize-agent.service").read_text()
    assert written == unit_text(Part.AGENT, "/usr/bin/livesize")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    words = ["units", "install", "agent", "--directory", str(tmp_path / "gone")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1
    assert "cannot be written" in done.output


def test_systemd_finds_nothing_wrong(tmp_path: Path, not_run: Callable[[str], NoReturn]) -> None:
    if shutil.which("systemd-analyze") is None:
        not_run("needs systemd-analyze")
    for part in Part:
        path = tmp_path / unit_name(part)
        path.write_text(unit_text(part, "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
        )
        assert unit_name(part) not in done.stderr
