"""What every runtime promises, fake and real alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from livesize.api.group_changes import SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.context import system_context
from livesize.runtime.fake import Behaviour, FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    CommandTimeoutError,
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    ImageMissingError,
    MemoryInUseError,
    PodConfig,
    PodGroup,
    Runtime,
    RuntimeCallError,
)
from livesize.runtime.process.runtime import ProcessRuntime
from livesize.runtime.streams import AttachRequest, ExecRequest, LogQuery, NotRunningError, Session

MIB = 1024 * 1024
IMAGE = "localhost/livesize/busybox:1"
UID = "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a01"
POD_LIMITS = KernelLimits(cpu_weight=1024, cpu_quota_us=100_000, memory_limit_bytes=256 * MIB)
LIMITS = KernelLimits(cpu_weight=512, cpu_quota_us=50_000, memory_limit_bytes=64 * MIB)

POLITE = ("sh", "-c", "echo hello; trap 'exit 143' TERM; sleep 1000 & wait")
STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
EXITS_7 = ("sh", "-c", "exit 7")
GREEDY = ("dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
HOLDS_40 = (
    "sh",
    "-c",
    "dd if=/dev/zero of=/dev/shm/held bs=1M count=40 2>&1; trap 'exit 143' TERM; sleep 1000 & wait",
)
TALKS_BACK = ("sh", "-c", "while read word; do echo hello $word; done")
MISSING_PROGRAM = ("no-such-program",)
TELLS = ("sh", "-c", 'echo "colour $COLOUR size $SIZE"; echo badly >&2; exit 3')
NEVER_ENDS = ("sleep", "1000")

BEHAVIOURS = {
    POLITE: Behaviour(output="hello\n"),
    STUBBORN: Behaviour(ignores_sigterm=True),
    EXITS_7: Behaviour(exit_code=7),
    GREEDY: Behaviour(memory_bytes=100 * MIB),
    HOLDS_40: Behaviour(memory_bytes=40 * MIB),
    TALKS_BACK: Behaviour(answers="hello "),
    MISSING_PROGRAM: Behaviour(start_error="the image has no program 'no-such-program'"),
    TELLS: Behaviour(exit_code=3, output="colour blue size large\nbadly\n"),
    NEVER_ENDS: Behaviour(),
}


class Machine:
    """Opens runtimes on one and the same machine, and clears it at the end."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self.runtime = make()

    async def restart_agent(self, away: Callable[[], object] = lambda: None) -> Runtime:
        """Close the runtime, let something happen, and open a new one."""
        await self.runtime.close()
        away()
        self.runtime = self._make()
        await self.runtime.open()
        return self.runtime

    async def clear(self) -> None:
        try:
            for pod in self.runtime.list_pods():
                for container in pod.containers:
                    await self.runtime.stop_container(pod.uid, container.name, 0)
                await self.runtime.remove_pod(pod.uid)
        finally:
            await self.runtime.close()


@pytest.fixture(
    params=[
        "fake",
        pytest.param("process", marks=pytest.mark.containers),
        pytest.param("containerd", marks=pytest.mark.containers),
    ]
)
async def machine(
    request: pytest.FixtureRequest, tmp_path: Path, root_group: str
) -> AsyncIterator[Machine]:
    context = system_context()
    if request.param == "fake":
        world = FakeMachine(context, behaviours=BEHAVIOURS)
        world.log_directory = tmp_path
        opened = Machine(lambda: FakeRuntime(context=context, machine=world))
    elif request.param == "process":
        opened = Machine(lambda: ProcessRuntime(tmp_path / "state", root_group, context))
    else:
        from livesize.runtime.containerd.runtime import ContainerdRuntime  # grpc is an extra

        folder: Path = request.getfixturevalue("containerd_folder")
        opened = Machine(lambda: ContainerdRuntime(folder, root_group, context))
    await opened.runtime.open()
    yield opened
    await opened.clear()


@pytest.fixture
async def runtime(machine: Machine) -> Runtime:
    """With one pod on it."""
    await machine.runtime.create_pod(PodConfig(UID, "default", "db", POD_LIMITS))
    return machine.runtime


def config(
    command: tuple[str, ...] = POLITE, name: str = "main", **changes: object
) -> ContainerConfig:
    values: dict[str, object] = {
        "pod_uid": UID,
        "name": name,
        "image": IMAGE,
        "command": command,
        "args": (),
        "env": (("COLOUR", "blue"),),
        "working_dir": "",
        "hostname": "db",
        "limits": LIMITS,
        "hash": "h1",
        "hash_without_resources": "h2",
    }
    return ContainerConfig(**{**values, **changes})  # type: ignore[arg-type]


def view_of(runtime: Runtime, name: str = "main") -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    return next(view for view in pod.containers if view.name == name)


async def ended(runtime: Runtime, name: str = "main") -> ContainerView:
    """Wait for the end of a container, by events alone."""
    events = runtime.events()
    async with asyncio.timeout(10):
        while (view := view_of(runtime, name)).phase is not ContainerPhase.EXITED:
            await anext(events)
    return view


async def said(view: ContainerView, words: str) -> None:
    async with asyncio.timeout(10):
        while words not in Path(view.log_path).read_text():
            await asyncio.sleep(0.005)


async def test_a_started_container_runs_with_its_limits_set(runtime: Runtime) -> None:
    view = await runtime.start_container(config())
    assert view.phase is ContainerPhase.RUNNING
    assert (view.name, view.attempt, view.hash, view.hash_without_resources) == (
        "main",
        0,
        "h1",
        "h2",
    )
    assert view.pid > 0
    assert view.image == IMAGE
    assert view.image_id.startswith("sha256:")
    assert runtime.read(ContainerGroup(UID, "main")).limits == LIMITS
    assert runtime.read(PodGroup(UID)).limits == POD_LIMITS
    assert runtime.read_limits(ContainerGroup(UID, "main")) == LIMITS
    assert runtime.read_limits(PodGroup(UID)) == POD_LIMITS


async def test_pods_and_containers_are_listed(runtime: Runtime) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name in ("zeta", "alpha"):
            tasks.create_task(runtime.start_container(config(name=name)))
    (pod,) = runtime.list_pods()
    assert (pod.uid, pod.namespace, pod.name) == (UID, "default", "db")
    assert [view.name for view in pod.containers] == ["alpha", "zeta"]
    assert runtime.pod("no-such-pod") is None


async def test_the_machine_says_what_it_has(runtime: Runtime) -> None:
    facts = runtime.machine()
    assert facts.cpu_milli >= 1000
    assert facts.memory_bytes > 100 * MIB
    assert "://" in facts.runtime_version
    assert IMAGE in runtime.images()


async def test_an_end_by_itself_is_an_event_with_an_exit_code(runtime: Runtime) -> None:
    started = await runtime.start_container(config(EXITS_7))
    view = await ended(runtime)
    assert (view.exit_code, view.oom_killed) == (7, False)
    assert view.finished_at is not None
    assert view.finished_at >= started.started_at
    with pytest.raises(GoneError):
        runtime.read(ContainerGroup(UID, "main"))
    with pytest.raises(GoneError):
        runtime.read_limits(ContainerGroup(UID, "main"))
    with pytest.raises(GoneError):
        runtime.read_back(ContainerGroup(UID, "main"), SetMemory(MIB))


async def test_stop_sends_sigterm_first(runtime: Runtime) -> None:
    view = await runtime.start_container(config())
    await said(view, "hello")
    await asyncio.sleep(0.05)  # the shell sets its trap after it has spoken
    await runtime.stop_container(UID, "main", 10)
    assert view_of(runtime).exit_code == 143
    await runtime.stop_container(UID, "main", 10)  # harmless again


async def test_stop_kills_what_ignores_sigterm_after_the_grace(runtime: Runtime) -> None:
    await runtime.start_container(config(STUBBORN))
    await runtime.stop_container(UID, "main", 0.1)
    assert view_of(runtime).exit_code == 137
    assert not view_of(runtime).oom_killed


async def test_stop_of_what_does_not_exist_is_harmless(runtime: Runtime) -> None:
    await runtime.stop_container(UID, "nobody", 1)
    await runtime.stop_container("no-such-pod", "nobody", 1)
    await runtime.remove_pod("no-such-pod")


async def test_more_memory_than_the_limit_is_an_oom_kill(runtime: Runtime) -> None:
    await runtime.start_container(config(GREEDY))
    view = await ended(runtime)
    assert (view.exit_code, view.oom_killed) == (137, True)


async def test_output_is_in_the_log_file(runtime: Runtime) -> None:
    view = await runtime.start_container(config())
    await said(view, "hello\n")


async def test_cpu_is_changed_and_read_back(runtime: Runtime) -> None:
    view = await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    await runtime.write(group, SetCpu(weight=256, quota_us=20_000))
    assert runtime.read(group).limits == KernelLimits(256, 20_000, 64 * MIB)
    assert runtime.read_back(group, SetCpu(1, 1_000)) == SetCpu(256, 20_000)
    await runtime.write(group, SetCpu(weight=None, quota_us=None))
    assert runtime.read(group).limits == KernelLimits(256, None, 64 * MIB)
    assert view_of(runtime).pid == view.pid


async def test_memory_is_changed_in_whole_pages_and_read_back(runtime: Runtime) -> None:
    await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    for asked, kept in ((100_000_000, 99_999_744), (32 * MIB, 32 * MIB), (None, None)):
        await runtime.write(group, SetMemory(asked))
        assert runtime.read(group).limits == KernelLimits(512, 50_000, kept)
        assert runtime.read_back(group, SetMemory(MIB)) == SetMemory(kept)


async def test_a_pod_group_is_changed_like_a_container(runtime: Runtime) -> None:
    group = PodGroup(UID)
    await runtime.write(group, SetCpu(weight=2048, quota_us=200_000))
    await runtime.write(group, SetMemory(512 * MIB))
    assert runtime.read(group).limits == KernelLimits(2048, 200_000, 512 * MIB)
    assert runtime.read_back(group, SetCpu(1, 1_000)) == SetCpu(2048, 200_000)


UNCOUNTED_BYTES = MIB // 2
"""Version 1 counts each CPU's last 64 pages of a kind late."""


@pytest.mark.parametrize("group", [ContainerGroup(UID, "main"), PodGroup(UID)])
async def test_memory_in_use_refuses_the_shrink_and_nothing_changes(
    runtime: Runtime, group: ContainerGroup | PodGroup
) -> None:
    view = await runtime.start_container(config(HOLDS_40))
    main = ContainerGroup(UID, "main")  # what else a pod has may be given back
    async with asyncio.timeout(10):  # version 1 counts what is held up to two seconds late
        while runtime.read(main).memory_usage_bytes < 40 * MIB:
            await asyncio.sleep(0.01)
        while runtime.read(group).memory_unreclaimable_bytes < 40 * MIB:
            await asyncio.sleep(0.02)
    before = runtime.read(group).limits
    with pytest.raises(MemoryInUseError) as refused:
        await runtime.write(group, SetMemory(16 * MIB))
    assert refused.value.limit_bytes == 16 * MIB
    assert refused.value.usage_bytes >= 40 * MIB - UNCOUNTED_BYTES
    assert runtime.read(group).limits == before
    read = runtime.read(group)
    assert 40 * MIB <= read.memory_working_set_bytes <= read.memory_usage_bytes
    assert runtime.machine_usage().memory_working_set_bytes >= 40 * MIB
    assert view_of(runtime).phase is ContainerPhase.RUNNING
    assert view_of(runtime).pid == view.pid
    await runtime.write(group, SetMemory(60 * MIB))  # as far as it can go


async def test_a_child_may_not_have_more_quota_than_its_parent_on_v1(runtime: Runtime) -> None:
    await runtime.start_container(config())
    too_wide = runtime.write(ContainerGroup(UID, "main"), SetCpu(512, 150_000))
    too_narrow = runtime.write(PodGroup(UID), SetCpu(1024, 40_000))
    refused = runtime.cgroup_version is CgroupVersion.V1
    expected = pytest.raises(RuntimeCallError) if refused else contextlib.nullcontext()
    with expected:
        await too_wide
    with expected:
        await too_narrow
    if refused:
        assert runtime.read(ContainerGroup(UID, "main")).limits == LIMITS
        assert runtime.read(PodGroup(UID)).limits == POD_LIMITS


async def test_a_quota_below_a_millisecond_is_refused(runtime: Runtime) -> None:
    await runtime.start_container(config())
    with pytest.raises(RuntimeCallError):
        await runtime.write(ContainerGroup(UID, "main"), SetCpu(512, 999))


def affinity(runtime: Runtime, view: ContainerView) -> set[int]:
    """What the kernel says of the process itself; what runs in memory has none."""
    if isinstance(runtime, FakeRuntime):
        return set(runtime.read_cpus(ContainerGroup(view.pod_uid, view.name)) or ())
    return os.sched_getaffinity(view.pid)


async def test_a_container_runs_on_the_cpus_it_is_bound_to_and_is_moved_live(
    machine: Machine, runtime: Runtime
) -> None:
    first, *_, last = runtime.cpus()
    group = ContainerGroup(UID, "main")
    view = await runtime.start_container(config(cpus=(last,)))
    assert runtime.read_cpus(group) == (last,)
    assert affinity(runtime, view) == {last}
    for cpus in ((first, last), (first,)):
        await runtime.write(group, SetCpus(cpus))
        assert runtime.read_cpus(group) == cpus
        assert affinity(runtime, view) == set(cpus)
    with pytest.raises(RuntimeCallError):
        await runtime.write(group, SetCpus((4096,)))
    assert runtime.read_cpus(group) == (first,)
    assert runtime.read(group).limits == LIMITS
    again = await machine.restart_agent()
    assert again.read_cpus(group) == (first,)
    assert view_of(again) == view


async def test_a_container_that_was_told_nothing_is_bound_while_it_runs(runtime: Runtime) -> None:
    *_, last = runtime.cpus()
    view = await runtime.start_container(config())
    group = ContainerGroup(UID, "main")
    assert runtime.read_cpus(group) in (None, runtime.cpus())
    await runtime.write(group, SetCpus((last,)))
    assert affinity(runtime, view) == {last}
    with pytest.raises(GoneError):
        runtime.read_cpus(ContainerGroup(UID, "other"))


async def test_a_new_agent_finds_what_runs(machine: Machine, runtime: Runtime) -> None:
    before = await runtime.start_container(config())
    await runtime.write(ContainerGroup(UID, "main"), SetCpu(512, 30_000))
    again = await machine.restart_agent()
    assert view_of(again) == before
    assert again.read(ContainerGroup(UID, "main")).limits.cpu_quota_us == 30_000
    await again.stop_container(UID, "main", 0)
    assert view_of(again).exit_code == 137


async def test_a_new_agent_finds_what_ended(machine: Machine, runtime: Runtime) -> None:
    await runtime.start_container(config(EXITS_7))
    before = await ended(runtime)
    again = await machine.restart_agent()
    assert view_of(again) == before


async def test_create_pod_again_changes_nothing(machine: Machine, runtime: Runtime) -> None:
    await runtime.write(PodGroup(UID), SetMemory(300 * MIB))
    again = await machine.restart_agent()
    await again.create_pod(PodConfig(UID, "default", "db", POD_LIMITS))
    assert again.read(PodGroup(UID)).limits.memory_limit_bytes == 300 * MIB


async def test_starting_the_same_attempt_again_is_harmless(runtime: Runtime) -> None:
    first = await runtime.start_container(config())
    assert await runtime.start_container(config()) == first
    with pytest.raises(RuntimeCallError, match="still runs"):
        await runtime.start_container(config(attempt=1))


async def test_the_next_attempt_is_a_new_container(runtime: Runtime) -> None:
    first = await runtime.start_container(config(EXITS_7))
    await ended(runtime)
    second = await runtime.start_container(config(attempt=1))
    assert second.attempt == 1
    assert second.id != first.id
    assert second.pid != first.pid
    assert view_of(runtime) == second
    assert second.exit_code is None


async def test_what_cannot_be_started_says_why_and_leaves_nothing(runtime: Runtime) -> None:
    with pytest.raises(ImageMissingError, match="example/nowhere:2"):
        await runtime.start_container(config(image="example/nowhere:2"))
    with pytest.raises(RuntimeCallError, match="no-such-program"):
        await runtime.start_container(config(MISSING_PROGRAM))
    with pytest.raises(GoneError, match="no-such-pod"):
        await runtime.start_container(config(pod_uid="no-such-pod"))
    with pytest.raises(RuntimeCallError):
        await runtime.start_container(config(name="../escape"))
    pod = runtime.pod(UID)
    assert pod is not None
    assert pod.containers == ()
    with pytest.raises(GoneError):
        runtime.read(ContainerGroup(UID, "main"))


async def test_limits_that_the_pod_forbids_stop_the_start_on_v1(runtime: Runtime) -> None:
    too_wide = KernelLimits(512, 150_000, 64 * MIB)
    if runtime.cgroup_version is CgroupVersion.V2:
        await runtime.start_container(config(limits=too_wide))
        return
    with pytest.raises(RuntimeCallError):
        await runtime.start_container(config(limits=too_wide))
    with pytest.raises(GoneError):
        runtime.read(ContainerGroup(UID, "main"))
    assert (await runtime.start_container(config())).pid > 0


async def test_a_pod_is_removed_whole_and_only_when_stopped(runtime: Runtime) -> None:
    view = await runtime.start_container(config())
    with pytest.raises(RuntimeCallError, match="still runs"):
        await runtime.remove_pod(UID)
    await runtime.stop_container(UID, "main", 0)
    await runtime.remove_pod(UID)
    assert runtime.list_pods() == ()
    assert not Path(view.log_path).exists()
    with pytest.raises(GoneError):
        runtime.read(PodGroup(UID))
    await runtime.remove_pod(UID)


async def test_events_end_when_the_runtime_closes(machine: Machine) -> None:
    events = machine.runtime.events()
    await machine.restart_agent()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


# Logs, and commands beside the first process


async def collected(session: Session) -> tuple[bytes, int]:
    """What it writes until its end, and how it ends."""
    try:
        async with asyncio.timeout(20):
            written = b"".join([piece.data async for piece in session.output()])
            return written, await session.exit_code()
    finally:
        await session.close()


async def log_of(runtime: Runtime, **query: object) -> bytes:
    asked = LogQuery(UID, "main", **query)  # type: ignore[arg-type]
    lines = [line async for several in runtime.read_log(asked) for line in several]
    assert all(line.time_ns > 1_700_000_000 * 10**9 for line in lines)
    return b"".join(line.data for line in lines)


async def test_a_log_is_read_and_followed_to_the_end_of_the_container(runtime: Runtime) -> None:
    with pytest.raises(GoneError):
        await log_of(runtime)
    await runtime.start_container(config())
    while not await log_of(runtime):
        await asyncio.sleep(0.01)
    assert await log_of(runtime, tail_lines=1) == b"hello\n"
    assert await log_of(runtime, tail_lines=0) == b""
    with pytest.raises(GoneError):
        await log_of(runtime, previous=True)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        following = group.create_task(log_of(runtime, follow=True))
        await asyncio.sleep(0.2)
        assert not following.done()
        await runtime.stop_container(UID, "main", 5)
    assert following.result() == b"hello\n"
    await runtime.start_container(config(attempt=1))
    assert await log_of(runtime, previous=True) == b"hello\n"


async def test_a_command_runs_beside_the_first_process(runtime: Runtime) -> None:
    with pytest.raises(GoneError):
        await runtime.exec(ExecRequest(UID, "main", ("cat",)))
    view = await runtime.start_container(config())
    session = await runtime.exec(ExecRequest(UID, "main", ("cat",), stdin=True))
    await session.write(b"typed\n")
    await session.end_input()
    assert await collected(session) == (b"typed\n", 0)
    assert (await collected(await runtime.exec(ExecRequest(UID, "main", EXITS_7))))[1] == 7
    pod = runtime.pod(UID)
    assert pod is not None
    assert pod.containers[0].pid == view.pid


async def test_what_is_attached_reads_and_writes(runtime: Runtime) -> None:
    await runtime.start_container(config(TALKS_BACK, stdin=True))
    session = await runtime.attach(AttachRequest(UID, "main", stdin=True))
    try:
        async with asyncio.timeout(20):
            output = session.output()
            first = asyncio.ensure_future(anext(output))
            await asyncio.sleep(0.3)  # what comes before it is attached is not shown
            await session.write(b"there\n")
            assert (await first).data == b"hello there\n"
    finally:
        await session.close()
    pod = runtime.pod(UID)
    assert pod is not None
    assert pod.containers[0].phase is ContainerPhase.RUNNING


async def test_a_command_that_cannot_be_run_says_so(runtime: Runtime) -> None:
    await runtime.start_container(config())
    with pytest.raises(RuntimeCallError, match="no-such-program"):
        await collected(await runtime.exec(ExecRequest(UID, "main", MISSING_PROGRAM)))
    await runtime.stop_container(UID, "main", 0)
    for opening in (
        runtime.exec(ExecRequest(UID, "main", EXITS_7)),
        runtime.attach(AttachRequest(UID, "main")),
    ):
        with pytest.raises(NotRunningError):
            await opening


async def test_nothing_listens_on_that_port(runtime: Runtime) -> None:
    await runtime.start_container(config())
    with pytest.raises(RuntimeCallError, match="cannot connect to port 9"):
        await runtime.connect(UID, 9)


async def test_a_short_command_is_run_to_its_end(runtime: Runtime) -> None:
    """With the container's variables and some besides; how it ended and what it said is told."""
    await runtime.start_container(config())
    pid = view_of(runtime).pid
    env = (("SIZE", "large"),)
    result = await runtime.run_command(UID, "main", TELLS, env=env, timeout_seconds=10)
    assert result.exit_code == 3
    assert result.output == "colour blue size large\nbadly\n"
    with pytest.raises(RuntimeCallError, match="no-such-program"):
        await runtime.run_command(UID, "main", MISSING_PROGRAM, env=(), timeout_seconds=10)
    with pytest.raises(CommandTimeoutError, match=r"sleep did not end within 0.2 s"):
        await runtime.run_command(UID, "main", NEVER_ENDS, env=(), timeout_seconds=0.2)
    assert view_of(runtime).pid == pid
    with pytest.raises(GoneError):
        await runtime.run_command(UID, "none", TELLS, env=(), timeout_seconds=1)
