"""Pytest plugin, inside the guest: each result is a line of JSON on a virtio port, at once.

So the results up to a hang or a crash of the guest are known outside. The last line says that the
session has finished. The built-in image is unpacked once for all tests: that takes seconds here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from guest.boot import RESULTS_PORT
from livesize.runtime.images import ImageStore
from livesize.runtime.oci import BUILT_IN_IMAGE

PORTS = Path("/sys/class/virtio-ports")


def find_port(name: str) -> Path:
    for port in sorted(PORTS.iterdir()):
        if (port / "name").read_text().strip() == name:
            return Path("/dev", port.name)
    raise pytest.UsageError(f"this is not the test guest: it has no virtio port {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reporter(find_port(RESULTS_PORT)), "livesize-guest-report")


@pytest.fixture(scope="session")
def unpacked_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    ImageStore(folder).resolve(BUILT_IN_IMAGE)
    return folder


@pytest.fixture(autouse=True)
def _shared_images(request: pytest.FixtureRequest) -> None:
    """For the contract's runtimes, whose images stand in state/images of the test's folder."""
    if request.node.get_closest_marker("containers") is not None:
        state: Path = request.getfixturevalue("tmp_path") / "state"
        state.mkdir()
        (state / "images").symlink_to(request.getfixturevalue("unpacked_images"))


class Reporter:
    def __init__(self, port: Path) -> None:
        self._port = os.open(port, os.O_WRONLY)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line for each test; more where setup or teardown failed too."""
        if getattr(report, "held", False) or (report.when != "call" and report.passed):
            return
        self._say(
            test=report.nodeid,
            outcome=report.outcome,
            seconds=round(report.duration, 3),
            flaky=getattr(report, "flaky", False),
            text=report.longreprtext,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(test=report.nodeid, outcome="failed", seconds=0, text=report.longreprtext)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._say(finished=int(exitstatus))

    def _say(self, **values: object) -> None:
        line = json.dumps(values).encode() + b"\n"
        while line:
            line = line[os.write(self._port, line) :]
