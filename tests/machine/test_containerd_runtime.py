"""What containerd brings beyond the contract of runtimes, and what its driver does about it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.runtime import oci
from livesize.runtime.containerd.daemon import CniFolders
from livesize.runtime.containerd.image_garbage import CleaningLimits
from livesize.runtime.containerd.leftovers import ContainerdLeftovers
from livesize.runtime.containerd.messages import PodSandboxFilter
from livesize.runtime.containerd.requests import HASH_WITHOUT_RESOURCES_LABEL
from livesize.runtime.containerd.runtime import ContainerdRuntime, ContainerdSettings
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    ImageMissingError,
    PodConfig,
    PodGroup,
    RegistryLogin,
    RuntimeCallError,
)
from livesize.runtime.streams import ExecRequest, Session
from local_registry import Registry, serving
from system.networks import SUBNET, write_network

pytestmark = pytest.mark.containers

UID = "pod-one"
LIMITS = KernelLimits(512, 50_000, 64 << 20)
POD = PodConfig(UID, "default", "one", KernelLimits(1024, 100_000, None))
DAILY_POINTS = ["start/created", "start/started"]
RARE_POINTS = [
    "create-pod/group",
    "create-pod/sandbox",
    "start/image",
    "remove-pod/sandbox",
    "remove-pod/groups",
]
AGENT = """
import asyncio, sys
from pathlib import Path
import msgspec
from livesize.machinery.context import system_context
from livesize.machinery.steps import CrashPoints
from livesize.runtime.containerd.runtime import ContainerdRuntime, ContainerdSettings
from livesize.runtime.interface import ContainerConfig, PodConfig

async def main(state, group, pod, container, crash_at, arm):
    settings = ContainerdSettings(points=CrashPoints(crash_at=crash_at, arm=arm))
    runtime = ContainerdRuntime(Path(state), group, system_context(), settings=settings)
    await runtime.open()
    config = msgspec.json.decode(pod, type=PodConfig)
    await runtime.create_pod(config)
    await runtime.start_container(msgspec.json.decode(container, type=ContainerConfig))
    await runtime.stop_container(config.uid, "main", 0)
    await runtime.remove_pod(config.uid)

asyncio.run(main(*sys.argv[1:]))
"""


def config(script: str = "sleep 1000", image: str = oci.BUILT_IN_IMAGE) -> ContainerConfig:
    return ContainerConfig(
        pod_uid=UID,
        name="main",
        image=image,
        command=("sh", "-c", script),
        args=(),
        env=(),
        working_dir="",
        hostname="one",
        limits=LIMITS,
    )


@asynccontextmanager
async def opened(
    folder: Path, group: str, settings: ContainerdSettings | None = None
) -> AsyncIterator[ContainerdRuntime]:
    runtime = ContainerdRuntime(
        folder, group, system_context(), settings=settings or ContainerdSettings()
    )
    await runtime.open()
    try:
        yield runtime
    finally:
        for pod in runtime.list_pods():
            for container in pod.containers:
                await runtime.stop_container(pod.uid, container.name, 0)
            await runtime.remove_pod(pod.uid)
        await runtime.close()


@pytest.fixture
async def runtime(containerd_folder: Path, root_group: str) -> AsyncIterator[ContainerdRuntime]:
    async with opened(containerd_folder, root_group) as one:
        yield one


def seen(runtime: ContainerdRuntime) -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    return pod.containers[0]


async def ended(runtime: ContainerdRuntime) -> ContainerView:
    events = runtime.events()
    async with asyncio.timeout(10):
        while seen(runtime).phase is not ContainerPhase.EXITED:
            await anext(events)
    return seen(runtime)


def daemon_pid(folder: Path) -> int:
    return int((folder / "containerd" / "containerd.pid").read_text())


@pytest.mark.parametrize(
    "point", [*DAILY_POINTS, *(pytest.param(p, marks=pytest.mark.matrix) for p in RARE_POINTS)]
)
async def test_killed_at_any_point_the_next_agent_gets_on(
    containerd_folder: Path, root_group: str, tmp_path: Path, point: str
) -> None:
    (tmp_path / "arm").write_text("1")
    documents = [msgspec.json.encode(one).decode() for one in (POD, config())]
    words = [str(containerd_folder), root_group, *documents, point, str(tmp_path / "arm")]
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", AGENT, *words], timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    async with opened(containerd_folder, root_group) as runtime:
        await runtime.create_pod(POD)
        found = runtime.pod(UID)
        assert found is not None
        if point == "start/started":
            assert seen(runtime).phase is ContainerPhase.RUNNING  # not started a second time
        else:
            assert found.containers == ()
        await runtime.start_container(config())
        assert seen(runtime).phase is ContainerPhase.RUNNING
        assert runtime.read_limits(ContainerGroup(UID, "main")) == LIMITS


async def test_a_killed_containerd_is_started_again_and_goes_on_telling(
    runtime: ContainerdRuntime, containerd_folder: Path
) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config("trap 'exit 9' TERM; sleep 1000 & wait"))
    before = daemon_pid(containerd_folder)
    os.kill(before, signal.SIGKILL)
    await runtime.write(ContainerGroup(UID, "main"), SetMemory(32 << 20))
    assert runtime.read_limits(ContainerGroup(UID, "main")).memory_limit_bytes == 32 << 20
    assert daemon_pid(containerd_folder) != before
    assert seen(runtime) == view
    os.kill(view.pid, signal.SIGTERM)
    assert (await ended(runtime)).exit_code == 9


async def test_a_containerd_with_older_settings_is_started_anew_below_running_containers(
    containerd_folder: Path, root_group: str, tmp_path: Path
) -> None:
    first = ContainerdRuntime(containerd_folder, root_group, system_context())
    await first.open()
    await first.create_pod(POD)
    view = await first.start_container(config())
    before = daemon_pid(containerd_folder)
    await first.close()
    assert daemon_pid(containerd_folder) == before
    settings = ContainerdSettings(cni=CniFolders(str(tmp_path), str(tmp_path)))
    async with opened(containerd_folder, root_group, settings) as second:
        assert daemon_pid(containerd_folder) != before
        assert seen(second) == view
        await second.write(ContainerGroup(UID, "main"), SetCpu(256, 20_000))
        assert second.read_limits(ContainerGroup(UID, "main")).cpu_quota_us == 20_000


async def test_an_end_while_containerd_is_away_is_found(
    runtime: ContainerdRuntime, containerd_folder: Path
) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config())
    os.kill(daemon_pid(containerd_folder), signal.SIGKILL)
    os.kill(view.pid, signal.SIGKILL)
    assert (await ended(runtime)).exit_code == 137


async def test_a_dead_sandbox_is_replaced_by_the_next_start(runtime: ContainerdRuntime) -> None:
    await runtime.create_pod(POD)
    await runtime.start_container(config("exit 0"))
    await ended(runtime)
    pod = runtime._pods[UID]
    client = runtime._sandboxes._client
    status = await client.call("PodSandboxStatus", pod_sandbox_id=pod.sandbox.id, verbose=True)
    os.kill(msgspec.json.decode(status.info["info"])["pid"], signal.SIGKILL)
    async with asyncio.timeout(10):
        while status.status.state == 0:
            status = await client.call("PodSandboxStatus", pod_sandbox_id=pod.sandbox.id)
    before = pod.sandbox.id
    started = await runtime.start_container(msgspec.structs.replace(config(), attempt=1))
    assert started.phase is ContainerPhase.RUNNING
    assert pod.sandbox.id != before
    assert runtime.read_limits(PodGroup(UID)) == POD.limits


async def test_a_killed_shim_takes_its_pod_with_it_and_the_next_start_works(
    runtime: ContainerdRuntime,
) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config())
    shim = int(Path(f"/proc/{view.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGKILL)
    assert (await ended(runtime)).exit_code is not None
    started = await runtime.start_container(msgspec.structs.replace(config(), attempt=1))
    assert started.phase is ContainerPhase.RUNNING
    assert runtime.read_limits(ContainerGroup(UID, "main")) == LIMITS


async def test_output_is_logged_as_cri_does(runtime: ContainerdRuntime) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config("echo out; echo err >&2; printf part"))
    await ended(runtime)
    lines = [line.split(" ", 3)[1:] for line in Path(view.log_path).read_text().splitlines()]
    assert sorted(lines) == [
        ["stderr", "F", "err"],
        ["stdout", "F", "out"],
        ["stdout", "P", "part"],
    ]


async def test_containerd_finds_a_container_by_its_second_hash(
    runtime: ContainerdRuntime,
) -> None:
    """IBM: "stored as a one of the container's labels"."""
    await runtime.create_pod(POD)
    hashed = msgspec.structs.replace(config(), hash="h1", hash_without_resources="h2")
    view = await runtime.start_container(hashed)
    assert view.hash_without_resources == "h2"
    label = {HASH_WITHOUT_RESOURCES_LABEL: view.hash_without_resources}
    assert [one.id for one in await runtime._containers.listing(label)] == [view.id]
    assert await runtime._containers.listing({HASH_WITHOUT_RESOURCES_LABEL: "another"}) == []


def processes_of(group: str, word: str) -> list[int]:
    """Of those in the control groups below ``group`` that have the word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            inside = group in path.with_name("cgroup").read_text()
            if inside and word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.matrix
async def test_what_runs_for_a_client_that_has_left_is_ended(
    runtime: ContainerdRuntime, root_group: str
) -> None:
    """With all that it has started, and none of what runs beside it."""
    await runtime.create_pod(POD)
    await runtime.start_container(config())

    async def begin(script: str) -> Session:
        session = await runtime.exec(ExecRequest(UID, "main", ("sh", "-c", script)))
        assert (await anext(session.output())).data == b"on\n"
        return session

    async def gone(word: str) -> None:
        async with asyncio.timeout(2):
            while processes_of(root_group, word):
                await asyncio.sleep(0.01)

    probe = asyncio.create_task(
        runtime.run_command(UID, "main", ("sleep", "1"), env=(), timeout_seconds=10)
    )
    leaving = await begin("echo on; sleep 4321; true")
    staying = await begin("trap '' TERM; echo on; sleep 4322; true")
    assert processes_of(root_group, "4321")
    await leaving.close()
    await gone("4321")
    assert processes_of(root_group, "4322")
    assert (await probe).exit_code == 0
    await staying.close()
    await gone("4322")
    assert seen(runtime).phase is ContainerPhase.RUNNING


async def recorded(runtime: ContainerdRuntime, limits: KernelLimits) -> None:
    """Return when containerd has these in its record."""
    view = seen(runtime)
    async with asyncio.timeout(10):
        while await runtime._containers.recorded_limits(view.id) != limits:
            await asyncio.sleep(0.01)


async def test_what_containerd_would_set_again_is_what_the_kernel_has(
    runtime: ContainerdRuntime,
) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    assert await runtime._containers.recorded_limits(view.id) == LIMITS
    await runtime.write(group, SetMemory(32 << 20))
    after = msgspec.structs.replace(LIMITS, memory_limit_bytes=32 << 20)
    assert await runtime._containers.recorded_limits(view.id) == after
    await runtime.write(group, SetCpu(700, 70_000))
    assert runtime.read_limits(group) == KernelLimits(700, 70_000, 32 << 20)
    await recorded(runtime, KernelLimits(700, 70_000, 32 << 20))
    await runtime.write(group, SetCpu(700, None))
    await recorded(runtime, KernelLimits(700, None, 32 << 20))


async def test_cpu_is_changed_while_containerd_is_away(
    runtime: ContainerdRuntime, containerd_folder: Path
) -> None:
    await runtime.create_pod(POD)
    await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    os.kill(daemon_pid(containerd_folder), signal.SIGKILL)
    for quota_us in (30_000, 40_000, 70_000):
        await runtime.write(group, SetCpu(700, quota_us))
        changed = KernelLimits(700, quota_us, LIMITS.memory_limit_bytes)
        assert runtime.read_limits(group) == changed
    await recorded(runtime, changed)
    await runtime.write(group, SetMemory(32 << 20))
    assert runtime.read_limits(group) == KernelLimits(700, 70_000, 32 << 20)


async def test_containerd_is_told_of_memory_together_with_cpu(runtime: ContainerdRuntime) -> None:
    await runtime.create_pod(POD)
    view = await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    path = runtime._path(group)
    runtime._cgroups.write_cpu(path, 700, 70_000)
    runtime._cgroups.write_memory(path, 32 << 20)
    changed = KernelLimits(700, 70_000, 32 << 20)
    assert runtime._notifier is not None
    runtime._notifier.later(view.id, path, changed, memory=True)
    await recorded(runtime, changed)
    assert runtime.read_limits(group) == changed


async def test_what_an_agent_did_not_tell_the_next_one_tells(
    containerd_folder: Path, root_group: str
) -> None:
    group = ContainerGroup(UID, "main")
    first = ContainerdRuntime(containerd_folder, root_group, system_context())
    await first.open()
    await first.create_pod(POD)
    await first.start_container(config())
    path = first._path(group)
    first._cgroups.write_cpu(path, 700, 70_000)  # and then it was killed
    await first.close()
    async with opened(containerd_folder, root_group) as runtime:
        changed = KernelLimits(700, 70_000, LIMITS.memory_limit_bytes)
        await recorded(runtime, changed)
        assert runtime.read_limits(group) == changed


async def test_without_cni_a_pod_network_is_refused_plainly(
    containerd_folder: Path, root_group: str, tmp_path: Path
) -> None:
    cni = CniFolders(str(tmp_path), str(tmp_path))
    async with opened(containerd_folder, root_group, ContainerdSettings(cni=cni)) as runtime:
        with pytest.raises(RuntimeCallError, match=r"NetworkNotReady.*hostNetwork: true"):
            await runtime.create_pod(msgspec.structs.replace(POD, host_network=False))
        assert runtime.list_pods() == ()


async def test_with_cni_a_pod_has_an_address_of_its_own(
    containerd_folder: Path, root_group: str, tmp_path: Path
) -> None:
    write_network(tmp_path / "bin", tmp_path / "net.d")
    cni = CniFolders(str(tmp_path / "bin"), str(tmp_path / "net.d"))
    async with opened(containerd_folder, root_group, ContainerdSettings(cni=cni)) as runtime:
        await runtime.create_pod(msgspec.structs.replace(POD, host_network=False))
        pod = runtime.pod(UID)
        assert pod is not None
        assert pod.address == f"{SUBNET}.2"
        view = await runtime.start_container(config())
        own = Path(f"/proc/{view.pid}/ns/net").readlink()
        assert own != Path("/proc/self/ns/net").readlink()


async def test_an_image_is_pulled_with_the_login_that_is_accepted(
    runtime: ContainerdRuntime, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    oci.write_busybox_image(archive, ref="unused:1")
    registry = Registry(archive, "reader", "secret")
    with serving(registry) as address:
        ref = f"{address}/team/app:{os.getpid()}"
        wrong = RegistryLogin(username="reader", password="wrong")
        right = RegistryLogin(username="reader", password="secret")
        with pytest.raises(ImageMissingError, match="could not be pulled"):
            await runtime.pull_image(ref, (wrong,))
        assert (bool(registry.refused), registry.served) == (True, [])
        with pytest.raises(ImageMissingError):
            await runtime.pull_image(ref, ())
        await runtime.pull_image(ref, (wrong, right))
    assert registry.served
    assert ref in runtime.images()
    await runtime.create_pod(POD)
    view = await runtime.start_container(config(image=ref))
    assert (view.phase, view.image) == (ContainerPhase.RUNNING, ref)


async def test_unused_images_go_when_the_disk_is_full_and_those_in_use_stay(
    runtime: ContainerdRuntime, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    oci.write_busybox_image(archive, ref="unused:1")
    registry = Registry(archive, "reader", "secret")
    login = (RegistryLogin(username="reader", password="secret"),)
    with serving(registry) as address:
        ref = f"{address}/team/app:{os.getpid()}"
        await runtime.pull_image(ref, login)
        await runtime.create_pod(POD)
        await runtime.start_container(config(image=ref))
        runtime._cleaner._limits = CleaningLimits(high=0, low=0, least_seconds=0)
        await runtime.look_again()
        assert ref in runtime.images()
        await runtime.stop_container(POD.uid, "main", 0)
        await runtime.remove_pod(POD.uid)
        await runtime.look_again()
        assert ref not in runtime.images()
        assert oci.BUILT_IN_IMAGE in runtime.images()
        runtime._cleaner._limits = CleaningLimits()
        await runtime.pull_image(ref, login)
        assert ref in runtime.images()


async def test_an_image_imported_again_under_its_name_is_the_one_that_runs(
    runtime: ContainerdRuntime, tmp_path: Path
) -> None:
    await runtime.create_pod(POD)
    program = oci.LayerFile(oci.find_static_busybox().read_bytes(), 0o755)
    for attempt, word in enumerate(("first", "second")):
        layer = {
            "bin": oci.LayerFolder(),
            "bin/sh": program,
            "bin/cat": program,
            "word": oci.LayerFile(word.encode()),
        }
        settings = oci.ImageSettings(command=("/bin/cat", "/word"))
        oci.write_image(tmp_path / "image.tar", "localhost/word:1", [layer], settings)
        runtime.image_store.import_tar(tmp_path / "image.tar")
        wanted = msgspec.structs.replace(
            config(image="localhost/word:1"), command=(), attempt=attempt
        )
        view = await runtime.start_container(wanted)
        await ended(runtime)
        assert Path(view.log_path).read_text().rstrip().endswith(word)


async def test_a_foreign_containerd_is_shared_and_strangers_are_left_alone(
    runtime: ContainerdRuntime, root_group: str, tmp_path: Path
) -> None:
    await runtime.create_pod(POD)
    theirs = await runtime.start_container(config())
    assert runtime._connection is not None
    settings = ContainerdSettings(endpoint=runtime._connection.client.socket)
    other_group = f"{root_group}/other"
    async with opened(tmp_path / "other", other_group, settings) as guest:
        assert guest.list_pods() == ()
        mine = msgspec.structs.replace(POD, uid="pod-two", name="two")
        await guest.create_pod(mine)
        started = await guest.start_container(msgspec.structs.replace(config(), pod_uid="pod-two"))
        assert [pod.uid for pod in runtime.list_pods()] == [UID]
        await guest.write(ContainerGroup("pod-two", "main"), SetCpu(512, 20_000))
        assert guest.read_limits(ContainerGroup("pod-two", "main")).cpu_quota_us == 20_000
        assert started.pid != theirs.pid
    assert seen(runtime) == theirs
    assert runtime.read_limits(ContainerGroup(UID, "main")) == LIMITS


async def test_a_containerd_with_pods_of_a_kubelet_is_refused(
    runtime: ContainerdRuntime, root_group: str, tmp_path: Path
) -> None:
    client = runtime._sandboxes._client
    strange = runtime._sandboxes.config(POD, 0)
    strange.labels.clear()
    strange.labels["io.kubernetes.pod.uid"] = UID
    strange.linux.cgroup_parent = f"/{root_group}/strange"
    await runtime._images.require(oci.BUILT_IN_IMAGE)
    made = await client.call("RunPodSandbox", config=strange)
    try:
        settings = ContainerdSettings(endpoint=client.socket)
        second = ContainerdRuntime(tmp_path, root_group, system_context(), settings=settings)
        with pytest.raises(RuntimeCallError, match="kubelet"):
            await second.open()
        everything = PodSandboxFilter()
        (left,) = (await client.call("ListPodSandbox", filter=everything)).items
        assert left.id == made.pod_sandbox_id
    finally:
        await client.call("StopPodSandbox", pod_sandbox_id=made.pod_sandbox_id)
        await client.call("RemovePodSandbox", pod_sandbox_id=made.pod_sandbox_id)
        leftovers = ContainerdLeftovers(runtime._cgroups, SystemClock())
        await leftovers.remove(f"{root_group}/strange")


async def test_no_containerd_at_the_endpoint_is_one_sentence(
    needs_containerd: None, root_group: str, tmp_path: Path
) -> None:
    settings = ContainerdSettings(endpoint=tmp_path / "nothing.sock")
    runtime = ContainerdRuntime(tmp_path / "state", root_group, system_context(), settings=settings)
    with pytest.raises(RuntimeCallError, match=r"nothing.sock is not a socket"):
        await runtime.open()


async def test_a_privileged_container_may_all_that_root_may(runtime: ContainerdRuntime) -> None:
    await runtime.create_pod(msgspec.structs.replace(POD, privileged=True))
    view = await runtime.start_container(msgspec.structs.replace(config(), privileged=True))
    mine, its = (capabilities(pid) for pid in (os.getpid(), view.pid))
    assert its == mine
    assert "NoNewPrivs:\t0" in Path(f"/proc/{view.pid}/status").read_text()
    assert "Seccomp:\t0" in Path(f"/proc/{view.pid}/status").read_text()


async def test_others_beside_a_privileged_one_stay_within_bounds(
    runtime: ContainerdRuntime,
) -> None:
    await runtime.create_pod(msgspec.structs.replace(POD, privileged=True))
    view = await runtime.start_container(config())
    assert capabilities(view.pid) != capabilities(os.getpid())
    assert "NoNewPrivs:\t1" in Path(f"/proc/{view.pid}/status").read_text()


async def test_kernel_settings_of_a_pods_own(runtime: ContainerdRuntime) -> None:
    before = Path("/proc/sys/kernel/msgmax").read_text()
    await runtime.create_pod(msgspec.structs.replace(POD, sysctls=(("kernel.msgmax", "4321"),)))
    await runtime.start_container(config())
    command = ("cat", "/proc/sys/kernel/msgmax")
    result = await runtime.run_command(UID, "main", command, env=(), timeout_seconds=10)
    assert result.output == "4321\n"
    assert Path("/proc/sys/kernel/msgmax").read_text() == before


def capabilities(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("CapEff:"))
