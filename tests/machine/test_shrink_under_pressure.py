"""Memory limits lowered under real pressure: what can be given back is, what is held is not taken.

F24 and decisions 8 and 13, through `livesize up`; the kernel's files are the witness.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from livesize.api.kernel_units import CgroupVersion
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.interface import MemoryInUseError
from system.groups import GroupFiles, group_of, start_time
from system.up import Up, container, running_up

pytestmark = pytest.mark.containers

MIB = 1 << 20
HELD = "/dev/shm/held"
ONCE = "/once/held"
"""On a volume, which outlives the container: who starts again in less memory than it held before
would be killed for it, and not by us."""
HOLD = (
    f"trap 'rm -f {HELD}' USR1;"
    f" [ -e {ONCE} ] || {{ touch {ONCE}; head -c 50m /dev/zero > {HELD}; }};"
    " while :; do sleep 0.05; done"
)
READ = "head -c 70m /dev/zero > /big; sync; cat /big > /dev/null; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up"), allocatable="cpu=4,memory=1Gi") as running:
        yield running


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "up" in request.fixturenames:
        up: Up = request.getfixturevalue("up")
        for pod in up.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]:
            up.delete_pod(pod["metadata"]["name"])


def start(up: Up, name: str, command: str, **annotations: str) -> GroupFiles:
    """A pod of 100 MiB, of which the command will have more than 50 in use."""
    app = container("app", "500m", "100Mi", command=command)
    pod = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [{**app, "volumeMounts": [{"name": "once", "mountPath": "/once"}]}],
            "volumes": [{"name": "once", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    code, answer = up.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert code == 201, answer
    up.wait_running(name)
    group = group_of(up, name, "app")
    up.wait_until(lambda: group.memory_usage_bytes() > 50 * MIB, f"{name} uses its memory")
    return group


def lives(group: GroupFiles) -> tuple[int, int]:
    pid = group.main_pid()
    return pid, start_time(pid)


def ask(up: Up, name: str, memory: str) -> None:
    size = {"memory": memory}
    resources = {"requests": size, "limits": size}
    patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    code, answer = up.patch_resize(name, patch)
    assert code == 200, answer


def in_progress(up: Up, name: str) -> Any:
    """The condition, once it says why it takes longer."""
    conditions = up.pod(name).get("status", {}).get("conditions", [])
    return next(
        (
            c
            for c in conditions
            if c["type"] == "PodResizeInProgress" and c.get("reason") == "Error"
        ),
        None,
    )


def held_up(up: Up, name: str) -> str:
    found = up.wait_until(lambda: in_progress(up, name), f"{name} says what holds it up")
    return str(found["message"])


def test_page_cache_gives_way(up: Up) -> None:
    group = start(up, "reader", READ)
    up.wait_until(lambda: group.file_cache_bytes() > 50 * MIB, "the file is in the cache")
    before = lives(group)
    ask(up, "reader", "24Mi")
    up.wait_resized("reader")
    assert group.memory_limit_bytes() == group.pod().memory_limit_bytes() == 24 * MIB
    assert lives(group) == before


def test_what_is_held_is_waited_for_also_by_the_next_agent(up: Up) -> None:
    """ "memory limit (N) below current usage (M)" with the bytes to go; it goes on by itself when
    memory is freed. The agent is killed meanwhile: nothing is left of it, nothing is lost."""
    group = start(up, "holder", HOLD)
    before = lives(group)
    ask(up, "holder", "24Mi")
    message = held_up(up, "holder")
    assert f"memory limit ({24 * MIB}) below current usage (" in message
    assert message.endswith(f"bytes to go; until then the limit stays at {100 * MIB}")
    assert group.memory_limit_bytes() == group.pod().memory_limit_bytes() == 100 * MIB
    up.kill()
    assert lives(group) == before
    up.start()
    assert "bytes to go" in held_up(up, "holder")
    assert group.memory_limit_bytes() == 100 * MIB
    os.kill(before[0], signal.SIGUSR1)
    up.wait_resized("holder")
    assert group.memory_limit_bytes() == group.pod().memory_limit_bytes() == 24 * MIB
    assert lives(group) == before
    (status,) = up.pod("holder")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert status["resources"]["limits"]["memory"] == "24Mi"


def test_at_the_deadline_each_pod_gets_what_it_chose(up: Up) -> None:
    """Decisions 13: Keep, Revert, Restart (same node, same pod), Evict. All at once."""
    actions = ("Keep", "Revert", "Restart", "Evict")
    names = {action: action.lower() for action in actions}
    groups = {
        action: start(up, name, HOLD, **{ON_DEADLINE: action, DEADLINE: "1s"})
        for action, name in names.items()
    }
    lived = {action: lives(group) for action, group in groups.items()}
    uids = {action: up.pod(name)["metadata"]["uid"] for action, name in names.items()}
    for name in names.values():
        ask(up, name, "24Mi")
    path = "/api/v1/namespaces/default/pods/evict"
    up.wait_until(lambda: up.request("GET", path)[0] == 404, "the pod that may go is gone")

    def reverted() -> bool:
        pod = up.pod("revert")
        desired = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        return bool(desired == "100Mi" and pod["status"]["resizeState"]["phase"] == "Done")

    up.wait_until(reverted, "the pod that goes back is back")
    assert groups["Revert"].memory_limit_bytes() == 100 * MIB
    assert lives(groups["Revert"]) == lived["Revert"]

    def restarted() -> bool:
        (status,) = up.pod("restart")["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and "running" in status["state"])

    up.wait_until(restarted, "the container that restarts was restarted")
    assert up.pod("restart")["metadata"]["uid"] == uids["Restart"]
    again = group_of(up, "restart", "app")
    up.wait_until(lambda: again.memory_limit_bytes() == 24 * MIB, "it has its new size")

    assert in_progress(up, "keep") is not None
    assert groups["Keep"].memory_limit_bytes() == 100 * MIB
    assert lives(groups["Keep"]) == lived["Keep"]


# The driver alone, against a workload that allocates and frees. It keeps to its own limit: before
# each piece it looks how much that leaves it. So whoever is killed here held more than the limit
# at the moment it fell.
BREATHE = """
import os, random, sys
for path in {files!r}:
    with open(path, "w") as file:
        file.write("0")
chance, pieces, piece = random.Random(7), [], 16 << 10
def room():
    with open({limit!r}) as file:
        return int(file.read()) - len(pieces) * piece - (24 << 20)
print("ready", flush=True)
while True:
    for _ in range(chance.randrange(120) * 16):
        if room() <= 0:
            break
        pieces += [bytearray(b"x") * piece for _ in range(4)]
    del pieces[chance.randrange(len(pieces) + 1):]
"""
LARGE = 200 * MIB

# Breathes within the limit it was given, and never looks at it again: pages that it touches itself,
# pages that the kernel fills for it, and children. Whatever fails ends it.
BREATHE_BLINDLY = """
import mmap, os, random
for path in {files!r}:
    with open(path, "w") as file:
        file.write("0")
chance, pieces, piece = random.Random(7), [], 1 << 20
source = os.memfd_create("source")
os.write(source, bytes(piece))
def grow():
    pieces.append(mmap.mmap(-1, piece))
    if chance.random() < 0.5:
        assert os.preadv(source, [pieces[-1]], 0) == piece
    else:
        for page in range(0, piece, 4096):
            pieces[-1][page] = 1
    if chance.random() < 0.05:
        if (child := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
while len(pieces) < 100:
    grow()
print("ready", flush=True)
while True:
    for _ in range(chance.randrange(60)):
        grow()
    del pieces[100 + chance.randrange(10):]
"""
# Grows once, by pages that it touches or that the kernel fills.
GROW = """
import mmap, os, sys
for path in {files!r}:
    with open(path, "w") as file:
        file.write("0")
size = 64 << 20
source = os.memfd_create("source")
os.truncate(source, size)
for offset in range(0, size, 4 << 20):
    os.pwrite(source, bytes(4 << 20), offset)
print("ready", flush=True)
way, fresh = sys.stdin.readline().strip(), mmap.mmap(-1, size)
try:
    filled = 0
    while way == "kernel" and filled < size:
        filled += os.preadv(source, [memoryview(fresh)[filled:]], filled)
    while filled < size:
        fresh[filled], filled = 1, filled + 4096
except OSError as failure:
    print(failure.strerror, flush=True)
else:
    print("grown", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def group(
    root_group: str, not_run: Callable[[str], NoReturn]
) -> Iterator[tuple[CgroupDriver, str]]:
    driver = open_cgroups(SystemClock())
    if driver.version is not CgroupVersion.V1:
        not_run("needs control groups of version 1")
    path = f"{root_group}/pod-u/c-main"
    driver.make(path)
    driver.write_memory(path, LARGE)
    yield driver, path
    for one in (path, f"{root_group}/pod-u", root_group):
        deadline = time.monotonic() + 5
        while not driver.remove(one) and time.monotonic() < deadline:
            driver.kill(one)
            time.sleep(0.005)


@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.matrix)])
def test_random_shrinks_against_a_workload_that_breathes(
    group: tuple[CgroupDriver, str], times: int
) -> None:
    driver, path = group
    limit = f"/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes"
    code = BREATHE.format(files=driver.join_files(path), limit=limit)
    with running(code) as workload:
        chance, refused = random.Random(7), 0
        for _ in range(times):
            target = chance.randrange(40, 160) * MIB
            time.sleep(chance.random() / 50)
            try:
                driver.write_memory(path, target)
            except MemoryInUseError:
                refused += 1
                assert driver.memory_limit(path) == LARGE
            else:
                assert driver.memory_limit(path) == target
            assert workload.poll() is None, f"killed at {target >> 20} MiB"
            driver.write_memory(path, LARGE)
        assert driver.oom_kills(path) == 0
    assert 0 < refused < times


@pytest.mark.parametrize("times", [30, pytest.param(1000, marks=pytest.mark.matrix)])
def test_shrinks_that_do_not_fit_hurt_nobody(group: tuple[CgroupDriver, str], times: int) -> None:
    """The workload may use all of its old limit until the new one fits: every other shrink is the
    kernel's alone to refuse."""
    driver, path = group
    file = Path(f"/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes")
    with running(BREATHE_BLINDLY.format(files=driver.join_files(path))) as workload:
        chance = random.Random(7)
        for number in range(times):
            target = chance.randrange(40, 100) * MIB
            time.sleep(chance.random() / 50)
            if number % 2:
                with pytest.raises(MemoryInUseError):
                    driver.write_memory(path, target)
            else:
                with pytest.raises(OSError, match="busy"):
                    file.write_text(str(target))
            assert driver.memory_limit(path) == LARGE
            assert workload.poll() is None, f"it was hurt at {target >> 20} MiB"
        assert driver.oom_kills(path) == 0


@pytest.mark.parametrize(
    ("may_kill", "way", "harm"),
    [(True, "own", "killed"), (False, "own", "stopped"), (False, "kernel", "Bad address")],
)
def test_why_the_limit_does_not_follow_what_is_in_use(
    group: tuple[CgroupDriver, str], may_kill: bool, way: str, harm: str
) -> None:
    """ADR 0040: an agent that has moved the limit near what is in use is killed, or late. The
    workload then grows as its old limit allowed: it is killed for it; or, with the killer switched
    off, stands still until somebody raises the limit, or its system calls fail."""
    driver, path = group
    files = Path(f"/sys/fs/cgroup/memory/{path}")
    with running(GROW.format(files=driver.join_files(path))) as workload:
        assert workload.stdin is not None
        assert workload.stdout is not None
        (files / "memory.oom_control").write_text("0" if may_kill else "1")
        usage = int((files / "memory.usage_in_bytes").read_text())
        (files / "memory.limit_in_bytes").write_text(str(usage + 32 * MIB))
        workload.stdin.write(f"{way}\n")
        workload.stdin.flush()
        if harm == "killed":
            assert workload.wait(timeout=10) == -signal.SIGKILL
            return
        if harm == "stopped":
            wait_until(lambda: "under_oom 1" in (files / "memory.oom_control").read_text())
            driver.write_memory(path, LARGE)
            harm = "grown"
        assert workload.stdout.readline() == f"{harm}\n"


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own, once it says that it is ready."""
    command = [sys.executable, "-I", "-S", "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as workload:
        assert workload.stdout is not None
        try:
            assert workload.stdout.readline() == "ready\n"
            yield workload
        finally:
            workload.kill()
