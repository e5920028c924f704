"""A process in a control group of its own, for the tests inside the guest."""

from __future__ import annotations

import subprocess
import sys
import time
from types import TracebackType

from livesize.runtime.cgroups.v2 import CgroupsV2

ROOT_GROUP = "livesize-inside"
POD = f"{ROOT_GROUP}/pod-1"
NAMES = ("main", "other")
MIB = 1024 * 1024

# Joins the groups before anything else, so that all it holds is charged to them.
_JOIN = """
import os, sys
for path in {files!r}:
    with open(path, "w") as file:
        file.write("0")
"""


def container_group(name: str) -> str:
    return f"{POD}/c-{name}"


def make_pod(driver: CgroupsV2) -> None:
    for name in NAMES:
        driver.make(container_group(name))


def remove_pod(driver: CgroupsV2) -> None:
    for path in (*(container_group(name) for name in NAMES), POD, ROOT_GROUP):
        driver.kill(path)
        deadline = time.monotonic() + 5
        while not driver.remove(path):
            assert time.monotonic() < deadline, f"{path} cannot be removed"
            time.sleep(0.01)


class Workload:
    """Python that runs ``code`` in the group ``path``; it is ready when it says so."""

    def __init__(self, driver: CgroupsV2, path: str, code: str) -> None:
        joining = _JOIN.format(files=driver.join_files(path))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", joining + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Workload:  # noqa: PYI034 - Self is more than a test needs
        assert self.says() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ended(self) -> int:
        return self._process.wait(timeout=10)
