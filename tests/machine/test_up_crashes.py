"""kill -9 between any two steps of a resize: after the restart it completes, nothing restarted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from system.accounts import check_accounts
from system.groups import GroupFiles, group_of, start_time
from system.up import Up, container

pytestmark = pytest.mark.containers

# What one resize passes, in order; test_these_are_all_the_crash_points keeps the list true.
STEPS = (
    "checkpoint",
    "accept",
    "pod:cpu",
    "container:app:cpu",
    "pod:memory",
    "container:app:memory",
    "actuated",
    "report",
)
AGENT_POINTS = [f"resize/{step}/{side}" for step in STEPS for side in ("before", "after")]
SERVER_POINTS = ["apiserver/commit/before", "apiserver/commit/after"]

# Daily: nothing promised, promised and not applied, half applied, applied and not told.
DAILY_STEPS = ("checkpoint", "pod:cpu", "container:app:memory", "report")
DAILY_AGENT_POINTS = [f"resize/{step}/before" for step in DAILY_STEPS]
# The first and the third commit of a resize: not yet asked, done (or an event).
DAILY_SERVER_CRASHES = [("apiserver/commit/before", 1), ("apiserver/commit/after", 3)]
RARE_SERVER_CRASHES = [
    (point, count)
    for point in SERVER_POINTS
    for count in range(1, 6)
    if (point, count) not in DAILY_SERVER_CRASHES
]


class Scene:
    """A running pod, its group and its process, in a system that dies where it is told to."""

    def __init__(self, up: Up, directory: Path) -> None:
        self.up = up
        self.arm = directory / "arm"
        self.reached = directory / "reached"
        self.reached.touch()
        self.reached.chmod(0o666)
        self.start()
        up.create_pod("db", [container("app", "200m", "64Mi")])
        self.group: GroupFiles = group_of(up, "db", "app")
        self.pid = self.group.main_pid()
        self.began = start_time(self.pid)

    def start(self) -> None:
        """Unless it runs."""
        if self.up.process is not None and self.up.process.poll() is None:
            return
        self.up.process = None
        self.up.start(
            environment={
                "LIVESIZE_CRASH_ARM": str(self.arm),
                "LIVESIZE_CRASH_LOG": str(self.reached),
            }
        )

    def clear(self) -> None:
        self.arm.unlink(missing_ok=True)
        self.start()
        self.up.delete_pod("db")

    def resize_and_crash(self, point: str, count: int = 1) -> None:
        self.reached.write_text("")
        self.arm.write_text(f"{count} {point}")
        self.arm.chmod(0o666)
        self.up.livesize(
            *("resize", "pod/db", "--cpu", "600m", "--memory", "128Mi", "--no-wait"), check=False
        )

    def check_it_completed(self) -> None:
        self.up.wait_resized("db")
        assert self.group.cpu_quota_us() == 60_000
        assert self.group.memory_limit_bytes() == 128 << 20
        assert self.group.pod().cpu_quota_us() == 60_000
        assert self.group.pod().memory_limit_bytes() == 128 << 20
        assert (self.group.main_pid(), start_time(self.pid)) == (self.pid, self.began)
        pod = self.up.pod("db")
        status = pod["status"]["containerStatuses"][0]
        assert status["resources"] == pod["spec"]["containers"][0]["resources"]
        assert status["restartCount"] == 0
        check_accounts(self.up)


@pytest.fixture(scope="module")
def crash_dir() -> Iterator[Path]:
    """Where the control plane, an ordinary user, may disarm its own crash."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One data directory, and one system as long as it is not killed."""
    up = Up(tmp_path_factory.mktemp("up"), allocatable="cpu=4,memory=4Gi")
    yield up
    up.end()


@pytest.fixture
def scene(shared: Up, crash_dir: Path) -> Iterator[Scene]:
    made = Scene(shared, crash_dir)
    yield made
    made.clear()


def test_these_are_all_the_crash_points_of_a_resize(scene: Scene) -> None:
    scene.resize_and_crash("none")
    scene.up.wait_resized("db")
    reached = scene.reached.read_text().split()
    assert sorted({name for name in reached if name.startswith("resize/")}) == sorted(AGENT_POINTS)
    assert set(SERVER_POINTS) <= set(reached)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in DAILY_AGENT_POINTS else pytest.mark.matrix)
        for point in AGENT_POINTS
    ],
)
def test_the_agent_dies_and_the_resize_completes(scene: Scene, point: str) -> None:
    scene.resize_and_crash(point)
    assert scene.up.process is not None
    scene.up.process.wait(timeout=10)
    assert start_time(scene.pid) == scene.began, "the workload outlives the agent"
    scene.start()
    scene.check_it_completed()


@pytest.mark.parametrize(
    ("point", "count"),
    [
        *DAILY_SERVER_CRASHES,
        *(pytest.param(*crash, marks=pytest.mark.matrix) for crash in RARE_SERVER_CRASHES),
    ],
)
def test_the_control_plane_dies_and_the_resize_completes(
    scene: Scene, point: str, count: int
) -> None:
    up = scene.up
    before = up.control_plane_pid()
    scene.resize_and_crash(point, count)
    up.wait_until(lambda: not scene.arm.exists(), "the control plane has died")
    up.wait_until(lambda: _replaced(up, before), "it was started again")
    if point.endswith("before") and count == 1:
        # Nobody was answered 2xx, so nothing is promised: ask again.
        up.livesize("resize", "pod/db", "--cpu", "600m", "--memory", "128Mi", "--wait")
    scene.check_it_completed()


def _replaced(up: Up, before: int) -> bool:
    try:
        return up.control_plane_pid() != before
    except (AssertionError, FileNotFoundError):
        return False
