"""Inside the guest: quotas and weights of version 2, by what the kernel lets a process use."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from guest.workload import POD, Workload, container_group, make_pod, remove_pod
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.interface import GoneError, RuntimeCallError

pytestmark = pytest.mark.cgroup_v2

SPIN = "while True: pass"


@pytest.fixture
def driver() -> Iterator[CgroupsV2]:
    made = CgroupsV2("/sys/fs/cgroup", SystemClock())
    make_pod(made)
    yield made
    remove_pod(made)


def cores_used(driver: CgroupsV2, path: str, seconds: float = 0.7) -> float:
    time.sleep(0.2)  # the period in which the quota changed
    start, before = time.monotonic(), driver.read(path).cpu_usage_ns
    time.sleep(seconds)
    return (driver.read(path).cpu_usage_ns - before) / 1e9 / (time.monotonic() - start)


def test_a_quota_bounds_a_running_process_and_is_changed_live(driver: CgroupsV2) -> None:
    group = container_group("main")
    with Workload(driver, group, f"print('ready', flush=True)\n{SPIN}") as workload:
        for quota_us in (20_000, 80_000, 10_000):
            driver.write_cpu(group, 100, quota_us)
            assert driver.read(group).limits.cpu_quota_us == quota_us
            wanted = quota_us / CPU_PERIOD_US
            assert cores_used(driver, group) == pytest.approx(wanted, abs=0.07)
        driver.write_cpu(group, 100, None)
        assert driver.read(group).limits.cpu_quota_us is None
        assert cores_used(driver, group) > 0.85
        assert workload.is_alive


def test_a_group_made_anew_is_not_taken_for_the_one_before(driver: CgroupsV2) -> None:
    group, somebody_else = container_group("main"), CgroupsV2("/sys/fs/cgroup", SystemClock())
    for weight, quota_us, limit_bytes in ((50, 25_000, 64 << 20), (25, 50_000, 32 << 20)):
        driver.write_cpu(group, weight, quota_us)
        driver.write_memory(group, limit_bytes)
        assert somebody_else.read_limits(group) == KernelLimits(weight, quota_us, limit_bytes)
        assert driver.read_limits(group) == KernelLimits(weight, quota_us, limit_bytes)
        assert somebody_else.remove(group)
        with pytest.raises(GoneError):
            driver.read_limits(group)
        with pytest.raises(GoneError):
            driver.write_cpu(group, 50, None)
        with pytest.raises(GoneError):
            driver.write_memory(group, None)
        somebody_else.make(group)
        assert driver.read_limits(group) == KernelLimits(100, None, None)


def test_the_quota_of_the_pod_bounds_its_containers(driver: CgroupsV2) -> None:
    group = container_group("main")
    with Workload(driver, group, f"print('ready', flush=True)\n{SPIN}"):
        driver.write_cpu(group, None, 80_000)
        driver.write_cpu(POD, None, 20_000)  # version 2 takes a parent below its child
        assert cores_used(driver, group) == pytest.approx(0.2, abs=0.07)
        assert cores_used(driver, POD) == pytest.approx(0.2, abs=0.07)


@pytest.mark.parametrize(("weight", "quota_us"), [(100, 999), (0, 10_000), (10_001, 10_000)])
def test_what_the_kernel_refuses_is_a_sentence(
    driver: CgroupsV2, weight: int, quota_us: int
) -> None:
    with pytest.raises(RuntimeCallError, match="cannot write"):
        driver.write_cpu(container_group("main"), weight, quota_us)


@pytest.mark.parametrize("weight", [1, 100, 10_000])
def test_weights_are_read_back(driver: CgroupsV2, weight: int) -> None:
    driver.write_cpu(container_group("main"), weight, None)
    assert driver.read(container_group("main")).limits.cpu_weight == weight
