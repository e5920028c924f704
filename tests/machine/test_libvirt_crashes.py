"""The agent is killed between any two of its actions on a VM; the next one finds or clears all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from leaks import groups_named
from livesize.api.vm_changes import PlugVcpus
from livesize.runtime.interface import ContainerPhase, ImageMissingError, RuntimeCallError
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from livesize.runtime.vm_config import VmConfig
from vms.real import MIB, UID, Place, check_tools, place, pod_config, vm_config
from vms.sizes import with_devices

pytestmark = pytest.mark.vms

POINTS = [
    "vm-pod/owner",
    "vm-pod/group",
    "vm-pod/record",
    "vm-start/record",
    "vm-start/group",
    "vm-start/paused",
    "vm-start/joined",
    "vm-start/running",
    "vm-remove/groups",
    "vm-remove/record",
]
# Daily: before there is a QEMU, when it is there and not ours yet, when it runs, when it goes.
DAILY = {"vm-start/record", "vm-start/paused", "vm-start/running", "vm-remove/groups"}
# On uvloop, as `livesize up` runs.
AGENT = """
import sys
from pathlib import Path
import msgspec, uvloop
from livesize.machinery.context import system_context
from livesize.machinery.steps import CrashPoints
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.libvirt.runtime import LibvirtRuntime, LibvirtSettings
from livesize.runtime.vm import Accelerator

async def main(state, images, group, pod, container, crash_at, arm):
    points = CrashPoints(crash_at=crash_at, arm=arm)
    settings = LibvirtSettings(accelerator=Accelerator.TCG, points=points)
    runtime = LibvirtRuntime(Path(state), Path(images), group, system_context(), settings=settings)
    await runtime.open()
    config = msgspec.json.decode(pod, type=PodConfig)
    await runtime.create_pod(config)
    await runtime.start_container(msgspec.json.decode(container, type=ContainerConfig))
    await runtime.stop_container(config.uid, "vm", 0)
    await runtime.remove_pod(config.uid)

uvloop.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory, not_run: Callable[[str], NoReturn]) -> Place:
    check_tools(not_run)
    return place(tmp_path_factory.mktemp("crashes"))


def run_agent(where: Place, crash_at: str) -> int:
    arm = where.directory / "arm"
    arm.write_text("1")
    words = [
        *(str(where.state), str(where.images), where.group),
        *(msgspec.json.encode(pod_config()).decode(), msgspec.json.encode(vm_config()).decode()),
        *(crash_at, str(arm)),
    ]
    done = subprocess.run([sys.executable, "-c", AGENT, *words], timeout=120, check=False)
    return done.returncode


def qemu_pids(where: Place) -> set[int]:
    members = (path / "cgroup.procs" for path in groups_named(where.group))
    return {int(line) for path in members for line in path.read_text().split()}


@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=[] if p in DAILY else pytest.mark.matrix) for p in POINTS],
)
async def test_killed_there_the_next_agent_ends_up_with_one_vm_that_runs(
    where: Place, point: str
) -> None:
    assert run_agent(where, point) == -9
    left = qemu_pids(where)
    async with where.opened() as runtime:
        await runtime.create_pod(pod_config())
        view = await runtime.start_container(vm_config())
        assert (await runtime.refresh_vm(UID)).running
        assert qemu_pids(where) == {view.pid}
        if point in {"vm-start/joined", "vm-start/running"}:
            assert {view.pid} == left  # found, not started a second time
        await runtime.change_vm(UID, PlugVcpus(2))
        await runtime.stop_container(UID, "vm", 0)
        assert container_phase(runtime) is ContainerPhase.EXITED
    assert qemu_pids(where) == set()
    assert groups_named(where.group) == []
    assert list(where.state.glob("libvirt/lib/vms/*")) == []


async def test_an_agent_on_uvloop_starts_stops_and_removes(where: Place) -> None:
    assert run_agent(where, "") == 0
    async with where.opened() as runtime:
        assert runtime.list_pods() == ()


async def test_a_disk_gets_a_layer_of_the_vms_own(where: Place) -> None:
    make_disk(where.images / "empty.qcow2")
    before = (where.images / "empty.qcow2").read_bytes()
    async with where.opened() as runtime:
        await runtime.create_pod(pod_config())
        await runtime.start_container(vm_config(vm=disk_vm("empty.qcow2")))
        assert (await runtime.refresh_vm(UID)).running
        (layer,) = where.state.glob("libvirt/lib/vms/*/disk.qcow2")
        assert layer.stat().st_uid == Path(f"/proc/{next(iter(qemu_pids(where)))}").stat().st_uid
    assert (where.images / "empty.qcow2").read_bytes() == before


async def test_a_disk_image_that_names_another_file_is_refused(where: Place) -> None:
    make_disk(where.images / "empty.qcow2")
    make_disk(where.images / "chained.qcow2", "-b", "empty.qcow2", "-F", "qcow2")
    async with where.opened() as runtime:
        await runtime.create_pod(pod_config())
        with pytest.raises(RuntimeCallError, match="refers to another file"):
            await runtime.start_container(vm_config(vm=disk_vm("chained.qcow2")))
        with pytest.raises(ImageMissingError):
            await runtime.start_container(vm_config(vm=disk_vm("missing.qcow2")))
        assert qemu_pids(where) == set()


async def test_two_agents_on_one_state_folder_are_one_too_many(where: Place) -> None:
    async with where.opened():
        with pytest.raises(RuntimeCallError, match="another agent"):
            await where.runtime().open()


def container_phase(runtime: LibvirtRuntime) -> ContainerPhase:
    pod = runtime.pod(UID)
    assert pod is not None
    return pod.containers[0].phase


def disk_vm(image: str) -> VmConfig:
    memory = 256 * MIB
    return with_devices(VmConfig(1, 2, memory, 2 * memory, memory, disk=image))


def make_disk(path: Path, *options: str) -> None:
    path.unlink(missing_ok=True)
    size = [] if options else ["1G"]
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), *size]
    subprocess.run(command, check=True, cwd=path.parent, env=dict(os.environ))
