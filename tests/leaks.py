"""Pytest plugin: after a test nothing of it may be left on the machine.

Looked for: cgroup directories under the test's own root group (fixture ``root_group``), and
mounts and processes that have to do with that group or with the test's own directory. Checked
after every test marked containers, and once more at the end for all directories of the session.
A system that makes its groups elsewhere says so with ``claim(name, directory)``. What is found
fails the test, and is then removed, so that the next test starts clean.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")
_claims: dict[str, Path] = {}


def claim(group: str, directory: Path) -> None:
    """The cgroups named ``group`` belong to whoever owns ``directory``, and end with it."""
    _claims[group] = directory


@pytest.fixture
def root_group(tmp_path: Path) -> str:
    """The name of a root cgroup for this test alone."""
    name = f"livesize-test-{os.getpid()}-{tmp_path.name}"
    claim(name, tmp_path)
    return name


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before the test's own fixtures, hence finished after them."""
    if request.node.get_closest_marker("containers") is None:
        yield
        return
    directory: Path = request.getfixturevalue("tmp_path")
    yield
    leaks = sweep(directory)
    if leaks:
        pytest.fail("left behind:\n  " + "\n  ".join(leaks))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_SessionGuard(config), "livesize-leaks")


class _SessionGuard:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._leaks: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for directory in sorted(set(_claims.values())):
            self._leaks += sweep(directory)
        if self._leaks and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for leak in self._leaks:
            terminalreporter.write_line(f"left behind by the session: {leak}", red=True)


def sweep(directory: Path) -> list[str]:
    """Name what is left of the owner of ``directory``, and remove it."""
    names = [name for name, owner in _claims.items() if owner.is_relative_to(directory)]
    groups = [group for name in names for group in groups_named(name)]
    processes = processes_of(directory, names)
    mounts = mounts_below(directory)
    leaks = [f"process {pid}: {_command(pid)}" for pid in processes]
    leaks += [f"mount {mount}" for mount in mounts]
    leaks += [f"cgroup {group}" for group in groups]
    for pid in processes:
        _kill(pid)
    for mount in reversed(mounts):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    for group in reversed(groups):
        _remove_group(group)
    for name in names:
        del _claims[name]
    return leaks


def groups_named(name: str) -> list[Path]:
    """Directories called ``name``, or so with the uid of a node behind it, in any hierarchy, and
    all below, parents first."""
    found: list[Path] = []
    for parent, children, _files in os.walk(CGROUPS, onerror=lambda _error: None):
        here = Path(parent)
        if here.name == name or here.name.startswith(f"{name}.") or here.parent in found:
            found.append(here)
        children.sort()
    return found


def mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].replace("\\040", " ") for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def processes_of(directory: Path, groups: list[str]) -> list[int]:
    """Processes in one of the groups, or whose command, root or working directory is inside."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sorted(pid for pid in pids if pid != os.getpid() and _belongs(pid, directory, groups))


def _belongs(pid: int, directory: Path, groups: list[str]) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        membership = Path(f"/proc/{pid}/cgroup").read_text()
        places = [Path(f"/proc/{pid}/{link}").readlink() for link in ("cwd", "root")]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b"/")
    except OSError:
        return False  # it ended while we looked, or it is not ours to look at
    lines = [f"{line}/" for line in membership.splitlines()]
    inside = any(f"/{name}{end}" in line for name in groups for line in lines for end in "/.")
    nearby = any(place.is_relative_to(directory) for place in places)
    return state != "Z" and (inside or nearby or f"{directory}/".encode() in command + b"/")


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended meanwhile"
    return b" ".join(words).decode(errors="replace").strip()[:200]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    _until(lambda: not Path(f"/proc/{pid}/root").exists())


def _remove_group(group: Path) -> None:
    def gone() -> bool:
        try:
            group.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    _until(gone)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
