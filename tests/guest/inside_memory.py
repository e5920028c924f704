"""Inside the guest: what version 2 does when memory limits of a running workload change.

Here the kernel takes any limit and kills whoever holds more, so that every promise of the driver
is checked with a workload that would not survive a wrong one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.workload import MIB, NAMES, POD, Workload, container_group, make_pod, remove_pod
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import MemoryInUseError

pytestmark = pytest.mark.cgroup_v2

GROUP = container_group("main")
FILES = Path("/sys/fs/cgroup")
DISK = "/dev/vda"

HOLD = """
held = bytearray({mib} << 20)
for page in range(0, len(held), 4096):
    held[page] = 1
"""
READ_DISK = """
disk = os.open("/dev/vda", os.O_RDONLY)
left = {mib}
while left:
    os.read(disk, 1 << 20)
    left -= 1
"""
WAIT = """
print("ready", flush=True)
for line in sys.stdin:
    print("still here", flush=True)
"""
GROW = """
print("ready", flush=True)
more = []
for line in sys.stdin:
    more.append(bytearray(b"x") * (int(line) << 20))
    print("grown", flush=True)
"""


@pytest.fixture
def driver() -> Iterator[CgroupsV2]:
    made = CgroupsV2("/sys/fs/cgroup", SystemClock())
    make_pod(made)
    for name in NAMES:
        made.write_memory(container_group(name), 200 * MIB)
    made.write_memory(POD, 400 * MIB)
    drop_caches()  # pages of the disk stay charged to whoever read them first
    yield made
    remove_pod(made)


def drop_caches() -> None:
    Path("/proc/sys/vm/drop_caches").write_text("1")


def current(path: str) -> int:
    return int((FILES / path / "memory.current").read_text())


def events(path: str) -> dict[str, int]:
    lines = (FILES / path / "memory.events").read_text().splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}


def assert_unharmed(workload: Workload) -> None:
    workload.tell("?")
    assert workload.says() == "still here"
    assert events(POD)["oom_kill"] == 0


@pytest.mark.parametrize("path", [GROUP, POD])
def test_a_limit_below_what_is_held_is_refused_and_nobody_is_killed(
    driver: CgroupsV2, path: str
) -> None:
    with Workload(driver, GROUP, HOLD.format(mib=40) + WAIT) as workload:
        before = driver.read(path).limits
        with pytest.raises(MemoryInUseError) as refused:
            driver.write_memory(path, 20 * MIB)
        assert refused.value.limit_bytes == 20 * MIB
        assert refused.value.usage_bytes > 40 * MIB
        assert driver.read(path).limits == before
        assert_unharmed(workload)
        driver.write_memory(path, 80 * MIB)
        assert driver.memory_limit(path) == 80 * MIB
        assert_unharmed(workload)


def test_without_the_driver_the_kernel_would_have_killed(driver: CgroupsV2) -> None:
    """Why the refusal is needed; and one kill is counted once, in the pod too."""
    with Workload(driver, GROUP, HOLD.format(mib=40) + WAIT) as workload:
        (FILES / GROUP / "memory.max").write_text(str(20 * MIB))
        assert workload.ended() == -9
        assert driver.read(GROUP).oom_kills == 1
        assert driver.oom_kills(POD) == 1
        assert driver.oom_kills(container_group("other")) == 0


@pytest.mark.parametrize("path", [GROUP, POD])
def test_page_cache_gives_way_to_a_lower_limit(driver: CgroupsV2, path: str) -> None:
    code = HOLD.format(mib=20) + READ_DISK.format(mib=85) + WAIT
    with Workload(driver, GROUP, code) as workload:
        assert current(path) > 105 * MIB
        start = time.monotonic()
        driver.write_memory(path, 40 * MIB)
        print(f"105 MiB, 85 of them cache, to 40 in {time.monotonic() - start:.3f} s")
        assert driver.memory_limit(path) == 40 * MIB
        assert current(path) <= 40 * MIB
        assert_unharmed(workload)


def test_a_file_in_memory_whose_writer_is_gone_still_counts(
    driver: CgroupsV2, tmp_path: Path
) -> None:
    """The kernel would take the limit and leave the usage above it."""
    file = tmp_path / "held"
    code = f"open({str(file)!r}, 'wb').write(bytes(60 << 20)); print('ready', flush=True)"
    with Workload(driver, GROUP, code) as workload:
        assert workload.ended() == 0
    with pytest.raises(MemoryInUseError):
        driver.write_memory(GROUP, 32 * MIB)
    assert driver.memory_limit(GROUP) == 200 * MIB
    file.unlink()
    driver.write_memory(GROUP, 32 * MIB)
    assert driver.memory_limit(GROUP) == 32 * MIB


def test_locked_memory_counts_once(driver: CgroupsV2) -> None:
    lock = "import ctypes; assert ctypes.CDLL(None).mlockall(1) == 0\n"
    with Workload(driver, GROUP, HOLD.format(mib=40) + lock + WAIT) as workload:
        held = driver.read(GROUP).memory_unreclaimable_bytes
        assert 40 * MIB < held < 70 * MIB
        with pytest.raises(MemoryInUseError):
            driver.write_memory(GROUP, 32 * MIB)
        driver.write_memory(GROUP, 80 * MIB)
        assert_unharmed(workload)


def test_what_is_reported_as_held_is_what_reclaim_leaves(driver: CgroupsV2) -> None:
    code = HOLD.format(mib=30) + READ_DISK.format(mib=60) + WAIT
    with Workload(driver, GROUP, code) as workload:
        reading = driver.read(GROUP)
        assert reading.memory_usage_bytes > 90 * MIB
        assert 30 * MIB < reading.memory_unreclaimable_bytes < 50 * MIB
        assert_unharmed(workload)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(100_000_000, 99_999_744), (64 * MIB + 1, 64 * MIB), (64 * MIB - 1, 64 * MIB - 4096)],
)
def test_limits_are_kept_in_whole_pages(driver: CgroupsV2, asked: int, kept: int) -> None:
    driver.write_memory(GROUP, asked)
    assert driver.memory_limit(GROUP) == kept
    driver.write_memory(GROUP, None)
    assert driver.memory_limit(GROUP) is None


def test_a_higher_limit_lets_a_running_process_grow_at_once(driver: CgroupsV2) -> None:
    driver.write_memory(GROUP, 64 * MIB)
    with Workload(driver, GROUP, GROW) as workload:
        workload.tell("30")
        assert workload.says() == "grown"
        driver.write_memory(GROUP, 160 * MIB)
        workload.tell("80")
        assert workload.says() == "grown"
        assert events(GROUP)["oom_kill"] == 0
        driver.write_memory(GROUP, 150 * MIB)
        workload.tell("60")
        assert workload.ended() == -9
        assert driver.read(GROUP).oom_kills == 1


def test_kill_ends_all_processes_of_a_group(driver: CgroupsV2) -> None:
    code = "os.fork(); os.fork()\nif os.getppid() > 1: pass\n"
    wait = "print('ready', flush=True)\nimport signal; signal.pause()"
    with Workload(driver, GROUP, code + wait) as workload:
        until(lambda: len(driver.processes(GROUP)) == 4)
        assert driver.kill(GROUP) == 4
        assert workload.ended() == -9
        until(lambda: driver.processes(GROUP) == ())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
