"""What a container of the process runtime sees and may do, asked from inside and from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.runtime import oci
from livesize.runtime.interface import ContainerGroup, RuntimeCallError
from livesize.runtime.process.runtime import ProcessRuntime
from livesize.runtime.security import grant_capabilities
from system.process_pod import MIB, UID, config, process_pod, run, seen

pytestmark = pytest.mark.containers


@pytest.fixture
async def runtime(tmp_path: Path, root_group: str) -> AsyncIterator[ProcessRuntime]:
    async with process_pod(tmp_path, root_group) as opened:
        yield opened


async def test_it_sees_itself_and_nothing_of_the_host(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    said = await run(
        runtime,
        "echo pid=$$ host=$(hostname) dir=$(pwd) colour=$COLOUR home=$HOME;"
        "cat /etc/hostname /etc/hosts; ls /; echo processes=$(ls /proc | grep -c '^[0-9]');"
        f"ls -d {tmp_path} /sys/fs/cgroup/memory/*/; ls -l /proc/self/fd | grep -c ' [3-9] ->'",
    )
    assert "pid=1 host=one dir=/task/here colour=deep blue home=/root" in said
    assert "127.0.1.1\tone" in said
    assert f"ls: {tmp_path}: No such file" in said
    assert "ls: /sys/fs/cgroup/memory/*/: No such file" in said
    processes = int(said.partition("processes=")[2].split()[0])
    assert processes <= 4  # the shell and the pipe that counts


async def test_powers_are_dropped(runtime: ProcessRuntime) -> None:
    said = await run(runtime, "cat /proc/self/status")
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(status[name], 16) & ~grant_capabilities(config("")).mask == 0
    assert int(status["CapInh"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /tmp",
        "mknod /tmp/disk b 8 0",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo b > /proc/sysrq-trigger",
        "echo changed > /sys/kernel/mm/transparent_hugepage/enabled",
        "unshare -U true",
        "unshare -m true",
        "hostname other",
        "chroot /proc/1/root/../../.. ls -d /boot",
        "ls /proc/acpi | grep .",
        "ip link add dummy9 type dummy",
    ],
)
async def test_what_would_reach_the_host_fails(runtime: ProcessRuntime, attempt: str) -> None:
    said = await run(runtime, f"( {attempt} ) && echo DONE IT")
    assert "DONE IT" not in said


async def test_the_usual_devices_and_a_private_tmp_are_there(runtime: ProcessRuntime) -> None:
    said = await run(
        runtime,
        "head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x > /dev/null;"
        "echo x > /tmp/x && echo x > /dev/shm/x && test -c /dev/tty && test -e /dev/pts/ptmx"
        " && echo fine; ls /dev | wc -l",
    )
    assert said.split() == ["4", "4", "fine", "13"]


async def test_another_user_has_no_powers_at_all(runtime: ProcessRuntime) -> None:
    said = await run(
        runtime,
        "id; grep CapEff /proc/self/status; touch /etc/x; echo opened anew >> /dev/stdout",
        run_as_user=1234,
        run_as_group=77,
    )
    assert "uid=1234 gid=77 groups=77" in said
    assert "CapEff:\t0000000000000000" in said
    assert said.count("Permission denied") == 1
    assert "opened anew" in said


async def test_a_read_only_root_refuses_writes(runtime: ProcessRuntime) -> None:
    said = await run(runtime, "touch /x; touch /etc/x; touch /dev/shm/x", read_only_root=True)
    assert said.count("Read-only file system") == 2


async def test_a_network_of_its_own_has_only_loopback(runtime: ProcessRuntime) -> None:
    said = await run(runtime, "ls /sys/class/net; cat /sys/class/net/lo/flags", host_network=False)
    assert said.split() == ["lo", "0x9"]  # up


async def test_what_it_writes_stays_out_of_the_image(runtime: ProcessRuntime) -> None:
    await run(runtime, "echo mine > /bin/mine; rm /bin/ls")
    assert "mine: not found" in await run(runtime, "mine", attempt=1)
    image = runtime.image_store.resolve(oci.BUILT_IN_IMAGE)
    assert not Path(image.rootfs, "bin/mine").exists()
    assert Path(image.rootfs, "bin/ls").is_symlink()


async def test_links_in_a_hostile_image_do_not_lead_to_the_host(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """/etc, /proc, /dev and the working folder of the image point to a folder of the host."""
    victim = tmp_path / "victim"
    victim.mkdir()
    layer: dict[str, oci.LayerFile | oci.LayerLink | oci.LayerFolder] = {
        name: oci.LayerLink(str(victim)) for name in ("etc", "proc", "dev", "sys", "tmp", "task")
    }
    busybox = oci.find_static_busybox()
    layer["bin"] = oci.LayerFolder()
    layer["bin/sh"] = oci.LayerFile(busybox.read_bytes(), 0o755)
    oci.write_image(
        tmp_path / "evil.tar", "localhost/evil:1", [layer], oci.ImageSettings(command=("sh",))
    )
    runtime.image_store.import_tar(tmp_path / "evil.tar")
    try:
        await run(runtime, "echo started", image="localhost/evil:1", working_dir="/task/deep")
    except RuntimeCallError as refused:
        assert "cannot start" in str(refused)  # noqa: PT017 - either is fine; the host is what counts
    assert list(victim.iterdir()) == []


async def test_an_oom_score_that_may_not_be_lowered_is_noted(runtime: ProcessRuntime) -> None:
    view = await runtime.start_container(config("sleep 100", oom_score_adj=500))
    assert view.note == ""
    assert Path(f"/proc/{view.pid}/oom_score_adj").read_text().strip() == "500"


async def test_the_workload_is_where_the_files_say(
    runtime: ProcessRuntime, root_group: str
) -> None:
    view = await runtime.start_container(config("", command=("sleep", "100")))
    membership = Path(f"/proc/{view.pid}/cgroup").read_text()
    assert f"{root_group}/pod-{UID}/c-main" in membership
    assert Path(f"/proc/{view.pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"100"]
    assert runtime.read(ContainerGroup(UID, "main")).memory_usage_bytes < 4 * MIB  # no Python in it


async def test_a_quota_is_what_it_gets(runtime: ProcessRuntime) -> None:
    """Measured over 10 periods, in which an 11th may fall: 30 % of a CPU, then 10 %, no restart."""
    view = await runtime.start_container(
        config("while :; do :; done", limits=KernelLimits(1024, 30_000, 64 * MIB))
    )
    group = ContainerGroup(UID, "main")

    async def share() -> float:
        began, used = time.monotonic(), runtime.read(group).cpu_usage_ns
        await asyncio.sleep(1)
        return (runtime.read(group).cpu_usage_ns - used) / 1e9 / (time.monotonic() - began)

    assert 0.15 < await share() < 0.36
    await runtime.write(group, SetCpu(None, 10_000))
    await asyncio.sleep(0.1)
    assert 0.04 < await share() < 0.14
    assert seen(runtime).pid == view.pid


async def test_it_finds_its_own_size_where_programs_look_for_it(runtime: ProcessRuntime) -> None:
    """As cgroup version 1 has it, before and after a resize, and not to be written to."""
    limits = KernelLimits(512, 30_000, 64 * MIB)
    view = await runtime.start_container(config("sleep 100", limits=limits))
    top = Path(f"/proc/{view.pid}/root/sys/fs/cgroup")

    def sizes() -> tuple[int, ...]:
        files = ("memory/memory.limit_in_bytes", "cpu/cpu.cfs_quota_us", "cpu/cpu.shares")
        return tuple(int((top / name).read_text()) for name in files)

    assert sizes() == (64 * MIB, 30_000, 512)
    group = ContainerGroup(UID, "main")
    await runtime.write(group, SetCpu(256, 50_000))
    await runtime.write(group, SetMemory(96 * MIB))
    assert sizes() == (96 * MIB, 50_000, 256)
    script = (
        "cat /proc/self/cgroup; cat /proc/self/mountinfo;"
        " (echo 1 > /sys/fs/cgroup/memory/memory.limit_in_bytes) && echo DONE IT;"
        " (mkdir /sys/fs/cgroup/memory/x) && echo DONE IT; (mkdir /sys/fs/cgroup/x) && echo DONE IT"
    )
    result = await runtime.run_command(UID, "main", ("sh", "-c", script), env=(), timeout_seconds=9)
    assert "DONE IT" not in result.output
    assert result.output.count("Read-only file system") == 3
    lines = [line.split() for line in result.output.splitlines()]
    seen_groups = {line[0].split(":")[1]: line[0].split(":")[2] for line in lines if len(line) == 1}
    assert (seen_groups["memory"], seen_groups["pids"]) == ("/", "/")
    mounts = {line[4].rpartition("/")[2]: line[3] for line in lines if "cgroup" in line}
    assert set(mounts.values()) == {"/"}
    wanted = {"memory", "cpu", "cpuacct", "cpuset"}  # a JVM believes none if one is missing
    assert wanted <= {name for shown in mounts for name in shown.split(",")}
    assert runtime.read_cpus(group) is None
