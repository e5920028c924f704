"""Memory limits lowered under real pressure: what can be given back is, what is held is not taken.

F24 and decisions 8 and 13, through `livesize up`; the kernel's files are the witness.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from livesize.api.kernel_units import CgroupVersion
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
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
    assert message.endswith("bytes to go")
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


@pytest.fixture
def group(
    root_group: str, not_run: Callable[[str], NoReturn]
) -> Iterator[tuple[CgroupDriver, str]]:
    driver = open_cgroups()
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
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workload:
        assert workload.stdout is not None
        assert workload.stdout.readline() == "ready\n"
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
        workload.kill()
    assert 0 < refused < times
