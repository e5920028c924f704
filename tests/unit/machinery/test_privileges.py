"""A process started by root becomes an ordinary user's, wherever its code lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from livesize.machinery import privileges

# Copied beside a closed directory, the module is found through sys.path like any other.
SCRIPT = """
import importlib.util, json, os, pathlib, sys
spec = importlib.util.spec_from_file_location("privileges", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.drop_privileges(4242, 4343, keep=[pathlib.Path(path) for path in sys.argv[2:]])
import wave  # not imported before: the standard library must still be there

def opens(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError as failure:
        return type(failure).__name__

def becomes_root():
    try:
        os.setuid(0)
    except PermissionError:
        return False
    return True

status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps({
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "capabilities": [line.split()[1] for line in status.splitlines() if line.startswith("CapEff")],
    "becomes_root": becomes_root(),
    "read": {path: opens(path + "/file") for path in sys.argv[2:]},
    "secret": opens(os.environ["SECRET"]),
}))
"""


def drop(module: Path, secret: Path, *keep: Path) -> dict[str, Any]:
    command = [sys.executable, "-I", "-c", SCRIPT, str(module), *map(str, keep)]
    environment = {"SECRET": str(secret)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory only root may enter, with something to reach and something to hide."""
    top = tmp_path / "closed"
    for name in ("needed", "other"):
        (top / name).mkdir(parents=True)
        (top / name / "file").write_text(name)
    shutil.copy(privileges.__file__, top / "needed" / "privileges.py")
    top.chmod(0o700)
    return top


def test_nothing_of_root_is_left(needs_root: None, closed: Path) -> None:
    answer = drop(closed / "needed" / "privileges.py", closed / "other" / "file")
    assert answer["ids"] == [4242, 4242, 4242, 4343, 4343, 4343]
    assert answer["capabilities"] == ["0" * 16]
    assert answer["becomes_root"] is False


def test_what_is_needed_below_a_closed_directory_is_reached_and_the_rest_is_not(
    needs_root: None, closed: Path
) -> None:
    needed, other = closed / "needed", closed / "other"
    answer = drop(needed / "privileges.py", other / "file", needed)
    assert answer["read"] == {str(needed): "needed"}
    assert answer["secret"] in {"FileNotFoundError", "PermissionError"}


def test_the_rest_of_the_machine_sees_no_change(needs_root: None, closed: Path) -> None:
    needed = closed / "needed"
    drop(needed / "privileges.py", closed / "other" / "file", needed)
    assert (closed / "other" / "file").read_text() == "other"
    assert str(closed) not in Path("/proc/self/mountinfo").read_text()
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("mode", "user", "group", "enters"),
    [
        pytest.param(0o700, 4242, 4343, False, id="a stranger where only the owner may"),
        pytest.param(0o711, 4242, 4343, True, id="a stranger where all may"),
        pytest.param(0o750, 4242, os.getegid(), True, id="the group where it may"),
        pytest.param(0o701, 4242, os.getegid(), False, id="the group where only others may"),
        pytest.param(0o700, os.geteuid(), 4343, True, id="the owner"),
    ],
)
def test_who_may_enter(tmp_path: Path, mode: int, user: int, group: int, enters: bool) -> None:
    tmp_path.chmod(mode)
    assert privileges._may_enter(tmp_path, user, group) is enters
