"""ARCHITECTURE.md, "One PATCH, from the door to the cgroup and back", is what the code really does.

One real resize, asked by the real command line over TLS, is run with a profiler in every thread.
Each function named in that section must have been entered, in the order of the document. Without
root the machine is the fake one, and the rows below runtime/ are left out.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from design.one_process import one_process
from livesize.cli.app import cli
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import group_path
from livesize.runtime.interface import ContainerGroup

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "livesize"
HEADING = "## One PATCH, from the door to the cgroup and back"
QUIET_SECONDS = 0.1
ROW = re.compile(r"\| `([\w/]+\.py)` \| `(\w+)` \|")


class Place(NamedTuple):
    """A file below src/livesize, and one of its functions."""

    file: str
    function: str


def walk() -> list[Place]:
    """The rows of the table, in order."""
    _, _, rest = (ROOT / "ARCHITECTURE.md").read_text().partition(HEADING)
    section = rest.partition("\n## ")[0]
    return [Place(*match.groups()) for match in ROW.finditer(section)]


class Watched:
    """Notes the first entry into each place, from when the command line enters the first one.

    The command has a thread of its own; the agent, in the main thread, patches too.
    """

    def __init__(self, places: list[Place]) -> None:
        self._wanted = {(str(PACKAGE / place.file), place.function): place for place in places}
        self._first = places[0]
        self._lock = threading.Lock()
        self.entered: list[Place] = []
        self.calls = 0

    async def quiet(self) -> None:
        """Wait until the system has nothing to do."""
        calls = -1
        while calls != self.calls:
            calls = self.calls
            await asyncio.sleep(QUIET_SECONDS)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        place = self._wanted.get((code.co_filename, code.co_name))
        if place is None:
            return
        self.calls += 1
        with self._lock:
            if place not in self.entered and (self.entered or self._begins(place)):
                self.entered.append(place)

    def _begins(self, place: Place) -> bool:
        return place == self._first and threading.current_thread() is not threading.main_thread()


@contextmanager
def watching(places: list[Place]) -> Iterator[Watched]:
    watched = Watched(places)
    before = sys.getprofile()
    threading.setprofile(watched)
    sys.setprofile(watched)
    try:
        yield watched
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def resize_once(folder: Path, places: list[Place], root_group: str = "") -> list[Place]:
    folder.mkdir(exist_ok=True)
    with watching(places) as watched:
        # Under a profiler nothing is done at once: Accepted would be posted by itself.
        async with one_process(folder, root_group=root_group, accept_delay_seconds=5) as system:
            pod = await system.run_pod("db", system.container())
            await system.until_told("db", "Started")
            await watched.quiet()
            words = ["resize", "pod/db", "--cpu", "300m", "--memory", "64Mi", "--wait"]
            words += ["--kubeconfig", str(system.kubeconfig)]
            done = await asyncio.to_thread(CliRunner().invoke, cli, words)
            assert done.exit_code == 0, done.output
            if root_group:
                group = group_path(root_group, ContainerGroup(pod["metadata"]["uid"], "app"))
                limits = open_cgroups().read(group).limits
                assert (limits.cpu_quota_us, limits.memory_limit_bytes) == (30_000, 64 << 20)
    return watched.entered


def test_each_file_is_named_once_and_has_the_function() -> None:
    places = walk()
    files = [place.file for place in places]
    assert len(files) >= 20
    assert sorted(set(files)) == sorted(files)
    texts = {place: (PACKAGE / place.file).read_text() for place in places}
    assert [place for place, text in texts.items() if f"def {place.function}(" not in text] == []


async def test_one_patch_goes_the_way_the_architecture_says(tmp_path: Path) -> None:
    """Twice, where a heartbeat of the node came in between."""
    places = [place for place in walk() if not place.file.startswith("runtime/")]
    if await resize_once(tmp_path / "first", places) != places:
        assert await resize_once(tmp_path / "second", places) == places


@pytest.mark.containers
async def test_one_patch_goes_that_way_down_to_the_cgroup(tmp_path: Path, root_group: str) -> None:
    version = open_cgroups().version.name.lower()
    places = [
        place._replace(file=place.file.replace("cgroups/v1.py", f"cgroups/{version}.py"))
        for place in walk()
    ]
    assert await resize_once(tmp_path, places, root_group) == places
