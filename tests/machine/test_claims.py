"""kill -9 at each write of a claim's life: it gets one folder, keeps it, and nothing is left."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from system.claims import CLAIMS, VOLUMES, is_gone, volume, volume_of, writer
from system.up import Up

pytestmark = [pytest.mark.containers, pytest.mark.matrix]

PODS = "/api/v1/namespaces/default/pods"
AGENT_POINTS = [
    f"{step}/{side}"
    for step in ("start/app", "remove/volumes", "reclaim/remove", "reclaim/let-go")
    for side in ("before", "after")
]
MOST_WRITES = 60


@pytest.fixture(params=["process", "containerd"])
def up(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Up]:
    if request.param == "containerd":
        request.getfixturevalue("needs_containerd")
    up = Up(tmp_path / "up", runtime=request.param, allocatable="cpu=8,memory=4Gi")
    yield up
    up.end()


@pytest.fixture
def arm() -> Iterator[Path]:
    """What says when to die; the control plane, an ordinary user, may remove it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name) / "arm"


def begin(up: Up, arm: Path, point: str) -> None:
    up.start(environment={"LIVESIZE_CRASH_AT": point, "LIVESIZE_CRASH_ARM": str(arm)})


def set_arm(arm: Path, count: int) -> None:
    arm.write_text(str(count))
    arm.chmod(0o666)


class Life:
    """A claim with pods, from the first request to its last trace, whoever dies meanwhile."""

    def __init__(self, up: Up, number: int) -> None:
        self.up = up
        self.claim, self.pod = f"claim-{number}", f"pod-{number}"
        self.deaths = 0  # of the agent

    def live(self) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        self._make(CLAIMS, {"metadata": {"name": self.claim}, "spec": spec})
        self._write(lines=1)
        folder = self._write(lines=2)  # what the first wrote is still there
        self._delete(f"{CLAIMS}/{self.claim}")
        self._eventually(lambda: is_gone(self.up, f"{VOLUMES}/{folder.name}"), "the volume is gone")
        assert list(folder.parent.iterdir()) == []

    def died(self, point: str) -> None:
        """The agent has, once; it may be after the last trace of the claim was gone."""
        self._eventually(lambda: self.deaths == 1, f"the agent has died at {point}")

    def _write(self, lines: int) -> Path:
        """A pod writes a line when it starts; more than one, where its start was cut off."""
        self._run_pod()
        folder = self._folder()
        log = folder / "log"

        def written() -> bool:
            return log.exists() and len(log.read_text().splitlines()) >= lines

        self._eventually(written, f"it has written line {lines} into its volume")
        self._delete(f"{PODS}/{self.pod}")
        return folder

    def _run_pod(self) -> None:
        spec = {
            "containers": [writer()],
            "volumes": [volume(self.claim)],
            "terminationGracePeriodSeconds": 0,
            "hostNetwork": True,
        }
        self._make(PODS, {"metadata": {"name": self.pod}, "spec": spec})

    def _folder(self) -> Path:
        found = self._eventually(lambda: volume_of(self.up, self.claim), "the claim is bound")
        return Path(found["spec"]["local"]["path"])

    def _make(self, path: str, body: Any) -> None:
        self._eventually(lambda: self._ask("POST", path, body) in (201, 409), f"{path} made")

    def _delete(self, path: str) -> None:
        self._ask("DELETE", path)

        def gone() -> bool:
            # An answer that was lost leaves open whether it was heard.
            return self._ask("DELETE", path) == 404

        self._eventually(gone, f"{path} gone")

    def _ask(self, method: str, path: str, body: Any = None) -> int:
        with contextlib.suppress(OSError):
            return self.up.request(method, path, body)[0]
        return 0

    def _eventually(self, holds: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + 60
        while not (found := holds()):
            assert time.monotonic() < deadline, f"waited until {what}:\n{self.up.log()}"
            if self.up.process is not None and self.up.process.poll() is not None:
                self.up.process = None
                self.up.start()  # the agent has died, as it was told to
                self.deaths += 1
            time.sleep(0.02)
        return found


@pytest.mark.parametrize("up", ["process"], indirect=True)  # no runtime has a part in it
@pytest.mark.parametrize("side", ["before", "after"])
def test_the_control_plane_dies_at_each_write(up: Up, arm: Path, side: str) -> None:
    begin(up, arm, f"apiserver/commit/{side}")
    for count in itertools.count(1):
        assert count < MOST_WRITES
        set_arm(arm, count)
        Life(up, count).live()
        if arm.exists():  # there were fewer writes than that
            arm.unlink()
            break
    assert count > 10, "a life has more writes than that"


def test_the_agent_dies_at_each_step(up: Up, arm: Path) -> None:
    for number, point in enumerate(AGENT_POINTS):
        begin(up, arm, point)
        set_arm(arm, 1)
        life = Life(up, number)
        life.live()
        life.died(point)
        up.stop()
