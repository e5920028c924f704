"""A `livesize up` of the demo's own, in a folder of its own, of which nothing is left at the end.

It is stopped whatever happens, an interrupt included, and ends by itself should the demo be
killed. Then the demo looks for itself. A system that died is started once more, for the next one
cleans up after the last; what is left even then is removed by force, and said.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from livesize.demo.interrupts import undisturbed
from livesize.demo.leftovers import (
    DemoLeftovers,
    find_leftovers,
    remove_by_force,
    wait_for_nothing,
)
from livesize.machinery.data_directory import DataDirectory
from livesize.runtime.ownership import NodeIdentity, read_identity

_LOG_LINES = 20
_GONE_SECONDS = 5.0
# Four vCPUs and a container fit on a machine with any number of CPUs; quotas are shares of time.
_ALLOCATABLE = "cpu=8"
# Should the demo be killed, the system stops as if it had been asked to.
_END_WITH_US = ("setpriv", "--pdeathsig", "TERM")
# The second time it asks no workload to end by itself.
_STOPPING = ((signal.SIGTERM, 5.0), (signal.SIGTERM, 30.0), (signal.SIGKILL, 1.0))


class DemoSystem:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = DataDirectory(folder / "data")
        self.node = f"demo-{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def container_groups(self) -> str:
        return self._identity().container_root

    @property
    def vm_groups(self) -> str:
        return self._identity().vm_root

    def _identity(self) -> NodeIdentity:
        """Of a system that never came so far, nothing can be left."""
        return read_identity(self.directory.node) or NodeIdentity("", f"{self.node}.none")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Fails where something was left, even though it is gone by then."""
        try:
            self.start()
            yield
        except BaseException:
            left = self.end()
            if left:
                click.echo(_sentence(left), err=True)
            raise
        left = self.end()
        if left:
            raise click.ClickException(_sentence(left))

    def start(self) -> None:
        """Return when it answers."""
        ready_read, ready_write = os.pipe()
        arguments = ["--data-dir", str(self.directory.root), "--listen", "127.0.0.1:0"]
        arguments += ["--node-name", self.node, "--allocatable", _ALLOCATABLE]
        with (self.folder / "up.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_END_WITH_US, sys.executable, "-m", "livesize.main", "up", *arguments],
                stdout=ready_write,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops it
            )
        os.close(ready_write)
        with os.fdopen(ready_read) as lines:
            if not lines.readline():
                raise click.ClickException(f"Livesize did not start:\n{self.last_log()}")

    def end(self) -> DemoLeftovers:
        """Stop it, undisturbed. Nothing is left after it; returned is what it did not remove."""
        groups = (self.container_groups, self.vm_groups)
        with undisturbed():
            if self._stop():
                left = wait_for_nothing(self.folder, groups, _GONE_SECONDS)
            else:
                left = find_leftovers(self.folder, groups)
            if left:
                with contextlib.suppress(click.ClickException):
                    self.start()
                self._stop()
                left = wait_for_nothing(self.folder, groups, _GONE_SECONDS)
            if left:
                remove_by_force(self.folder, groups)
        return left

    def last_log(self) -> str:
        log = self.folder / "up.log"
        if not log.exists():
            return ""
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def _stop(self) -> bool:
        """False: it did not end as it should, and has not cleaned up."""
        process, self._process = self._process, None
        if process is None:
            return True
        for number, seconds in _STOPPING:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(seconds) == 0
        process.wait()
        return False


def _sentence(left: DemoLeftovers) -> str:
    return f"Livesize left something behind, which was removed by force: {left}"
