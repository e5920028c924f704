"""Inside the guest: memory limits lowered under workloads that allocate and free; nobody dies.

The workloads keep to their own limit: before each piece they look how much it leaves them. So
whoever is killed here held more than the limit at the moment it fell.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.workload import MIB, POD, Workload, container_group, make_pod, remove_pod
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups import narrow as narrowing
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import MemoryInUseError

pytestmark = pytest.mark.cgroup_v2

GROUP = container_group("main")
FILES = Path("/sys/fs/cgroup") / GROUP
LARGE = 200 * MIB
SEED = 7

HOLD_AND_READ = """
held = bytearray(20 << 20)
for page in range(0, len(held), 4096):
    held[page] = 1
disk = os.open("/dev/vda", os.O_RDONLY)
for _ in range(85):
    os.read(disk, 1 << 20)
print("ready", flush=True)
for line in sys.stdin:
    print("still here", flush=True)
"""
BREATHE = """
import random
chance, pieces, files = random.Random(7), [], "/sys/fs/cgroup/{group}/"
disk = os.open("/dev/vda", os.O_RDONLY)
def number(name):
    with open(files + name) as file:
        return int(file.read())
def room():
    return number("memory.max") - len(pieces) * (1 << 20) - (24 << 20)
print("ready", flush=True)
while True:
    for _ in range(chance.randrange(120)):
        if room() > 0:
            pieces.append(bytearray(b"x") * (1 << 20))
    os.lseek(disk, chance.randrange(60) << 20, 0)
    os.read(disk, 4 << 20)
    del pieces[chance.randrange(len(pieces) + 1):]
"""
GROW_IF_ALLOWED = """
disk = os.open("/dev/vda", os.O_RDONLY)
for _ in range(60):
    os.read(disk, 1 << 20)
print("ready", flush=True)
for line in sys.stdin:
    with open("/sys/fs/cgroup/{group}/memory.max") as file:
        allowed = int(file.read()) > 80 << 20
    held = bytearray(b"x") * ((40 << 20) * allowed)
    print("grown" if allowed else "not grown", flush=True)
"""


@pytest.fixture
def driver() -> Iterator[CgroupsV2]:
    made = CgroupsV2("/sys/fs/cgroup", SystemClock())
    make_pod(made)
    made.write_memory(GROUP, LARGE)
    Path("/proc/sys/vm/drop_caches").write_text("1")
    yield made
    remove_pod(made)


def read(name: str) -> str:
    return (FILES / name).read_text().strip()


def assert_nothing_left() -> None:
    assert read("memory.high") == "max"
    assert read("cgroup.freeze") == "0"
    assert os.listxattr(FILES) == []


def assert_answers(workload: Workload) -> None:
    workload.tell("?")
    assert workload.says() == "still here"


def test_the_workload_is_held_up_no_longer_than_the_limit_needs(driver: CgroupsV2) -> None:
    with Workload(driver, GROUP, HOLD_AND_READ) as workload:
        driver.write_memory(GROUP, 40 * MIB)
        assert driver.memory_limit(GROUP) == 40 * MIB
        assert_nothing_left()
        assert_answers(workload)


@pytest.mark.matrix
def test_a_workload_that_somebody_stopped_stays_so(driver: CgroupsV2) -> None:
    with Workload(driver, GROUP, HOLD_AND_READ) as workload:
        (FILES / "memory.high").write_text(str(150 * MIB))
        (FILES / "cgroup.freeze").write_text("1")
        driver.write_memory(GROUP, 40 * MIB)
        assert driver.memory_limit(GROUP) == 40 * MIB
        assert (read("memory.high"), read("cgroup.freeze")) == (str(150 * MIB), "1")
        (FILES / "cgroup.freeze").write_text("0")
        assert_answers(workload)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("_reclaim", marks=pytest.mark.matrix),
        pytest.param("_frozen", marks=pytest.mark.matrix),
        "_look_at_all",
    ],
)
def test_killed_in_the_middle_the_next_agent_puts_it_right(driver: CgroupsV2, place: str) -> None:
    with Workload(driver, GROUP, HOLD_AND_READ) as workload:
        child = os.fork()
        if child == 0:
            _die_in_the_window(place)
            driver.write_memory(GROUP, 40 * MIB)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert read("memory.high") == str(40 * MIB)
        groups = PodGroups(driver, POD.rpartition("/")[0], SystemClock())
        groups.open()
        groups.close()
        assert_nothing_left()
        assert driver.memory_limit(GROUP) == LARGE
        assert_answers(workload)


def _die_in_the_window(place: str) -> None:
    """In a child: at the next call there, once memory.high was set."""
    real = getattr(narrowing, place)

    def die(*arguments: object) -> object:
        if read("memory.high") != "max":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    setattr(narrowing, place, die)


@pytest.mark.parametrize("freezes", [True, False])
def test_why_it_is_frozen(
    driver: CgroupsV2, monkeypatch: pytest.MonkeyPatch, freezes: bool
) -> None:
    """The agent may lose the processor between its last look and the limit. A workload that grows
    meanwhile, as its limit allows, would be killed; a frozen one finds the new limit."""
    real = narrowing._look_at_all

    def look_and_lose_the_processor(group: str, target_bytes: int, margin_bytes: int) -> None:
        real(group, target_bytes, margin_bytes)
        if read("memory.high") != "max":
            (FILES / "memory.high").write_text("max")  # it slows down what is looked for here
            workload.tell("grow")
            time.sleep(1.0)

    monkeypatch.setattr(narrowing, "_look_at_all", look_and_lose_the_processor)
    if not freezes:
        monkeypatch.setattr(narrowing, "_frozen", lambda _: contextlib.nullcontext())
    with Workload(driver, GROUP, GROW_IF_ALLOWED.format(group=GROUP)) as workload:
        driver.write_memory(GROUP, 30 * MIB)
        if freezes:
            assert workload.says() == "not grown"
            assert driver.oom_kills(GROUP) == 0
        else:
            assert workload.ended() == -signal.SIGKILL


def test_random_shrinks_against_a_workload_that_breathes(driver: CgroupsV2) -> None:
    shrink_at_random(driver, 60)


@pytest.mark.matrix
def test_a_thousand_random_shrinks(driver: CgroupsV2) -> None:
    shrink_at_random(driver, 1000)


def shrink_at_random(driver: CgroupsV2, times: int) -> None:
    chance, refused = random.Random(SEED), 0
    with Workload(driver, GROUP, BREATHE.format(group=GROUP)) as workload:
        for _ in range(times):
            target = chance.randrange(40, 160) * MIB
            time.sleep(chance.random() / 20)
            try:
                driver.write_memory(GROUP, target)
            except MemoryInUseError:
                refused += 1
            else:
                assert driver.memory_limit(GROUP) == target
            assert_nothing_left()
            assert workload.is_alive, f"killed at {target >> 20} MiB"
            driver.write_memory(GROUP, LARGE)
        assert driver.oom_kills(GROUP) == 0
    print(f"{times} random shrinks, {refused} refused because of what was held")
    assert 0 < refused < times
