"""Inside the guest: `livesize up` as a service of systemd, whose groups are nobody's but ours.

systemd resets what it believes to be its own whenever it reads its units again. Pods stand in
groups of their own beside its tree: whatever it does, their limits stay, and a service that is
restarted finds them again.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.service import UNIT, WAIT_SECONDS, Service, start_service, systemctl
from system.groups import GroupFiles, group_of, start_time
from system.up import container

pytestmark = pytest.mark.cgroup_v2

DATA = Path("/var/lib/livesize")
MIB = 1024 * 1024
SETTINGS = """\
node-name: guest
listen: 127.0.0.1:7443
allocatable: {cpu: 2, memory: 1Gi}
cpu-policy: static
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Service]:
    start_service(SETTINGS)
    service = Service(DATA)
    service.await_ready()
    for name, cpu in (("shared", "100m"), ("db", "1")):
        if service.pod(name).get("kind") != "Pod":  # there again where a test is run once more
            service.create_pod(name, [container("app", cpu, "32Mi")])
    yield service
    systemctl("stop", UNIT)


def limits(group: GroupFiles) -> tuple[int | None, int | None, str]:
    return group.cpu_quota_us(), group.memory_limit_bytes(), group.cpus()


def test_units_that_are_read_again_and_come_and_go_change_nothing(up: Service) -> None:
    groups = [group_of(up, name, "app") for name in ("db", "shared")]
    before = [limits(group) for group in groups]
    assert before == [(100_000, 32 * MIB, "1"), (10_000, 32 * MIB, "0")]
    assert not any("slice" in str(group.path) for group in groups), "beside systemd's tree"
    systemctl("daemon-reload")
    limited = ("-p", "CPUQuota=50%", "-p", "MemoryMax=64M", "-p", "AllowedCPUs=0-1")
    transient = ["systemd-run", "-q", "--service-type=oneshot", *limited, "true"]
    subprocess.run(transient, check=True, timeout=120)
    systemctl("daemon-reload")
    systemctl("daemon-reexec")
    assert [limits(group) for group in groups] == before
    assert os.sched_getaffinity(groups[0].main_pid()) == {1}
    up.resize("db", cpu="1", memory="48Mi")
    assert limits(groups[0]) == (100_000, 48 * MIB, "1")


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_service_that_starts_again_finds_its_pods(up: Service, how: str) -> None:
    group = group_of(up, "db", "app")
    pid = group.main_pid()
    began = start_time(pid)
    main = systemctl("show", "-P", "MainPID", UNIT).strip()
    up.expect_restart()
    if how == "restart":
        systemctl("restart", UNIT)
    else:
        os.kill(int(main), 9)
        deadline = time.monotonic() + WAIT_SECONDS
        while systemctl("show", "-P", "MainPID", UNIT).strip() in (main, "0"):
            assert time.monotonic() < deadline, "systemd starts it again"
            time.sleep(0.2)
    assert systemctl("show", "-P", "MainPID", UNIT).strip() != main
    up.await_ready()
    memory = "40Mi" if how == "restart" else "36Mi"
    up.resize("db", cpu="1", memory=memory)
    systemctl("daemon-reload")
    assert limits(group) == (100_000, int(memory[:2]) * MIB, "1")
    assert (group.main_pid(), start_time(pid)) == (pid, began), "nothing restarted"
    assert up.pod("db")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_what_is_systemds_own_it_resets(up: Service) -> None:
    """Why pods do not stand in a scope's own group."""
    with subprocess.Popen(
        ["systemd-run", "--scope", "-q", "--unit=loose", "-p", "Delegate=yes", "sleep", "1000"]
    ) as scope:
        try:
            limit = Path("/sys/fs/cgroup/system.slice/loose.scope/memory.max")
            up.wait_until(limit.exists, "the scope runs", WAIT_SECONDS)
            limit.write_text(str(64 * MIB))
            systemctl("daemon-reload")
            assert limit.read_text().strip() == "max"
        finally:
            scope.kill()
