"""At every step boundary of a real run, on the fake machine: containers stay within the pod."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.agent.observation import observe_pod
from livesize.agent.resize.apply import group_steps
from livesize.agent.resize.plan import plan_resize
from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits, pod_kernel
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.steps import CrashPoints, StepFailedError, run_steps
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    Group,
    PodConfig,
    PodGroup,
    RuntimeCallError,
)
from unit.agent.test_resize_plan import is_safe

MIB = 1024 * 1024
limits = st.builds(
    KernelLimits,
    st.integers(2, 1000),
    st.none() | st.integers(1000, 50_000),
    st.none() | st.integers(2, 64).map(lambda mib: mib * MIB),
)
pairs = st.dictionaries(st.sampled_from("abc"), st.tuples(limits, limits), min_size=1)


class Watching(CrashPoints):
    """Looks at the machine before and after every step."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__()
        self._runtime = runtime

    def reach(self, name: str) -> None:
        groups = observe_pod(self._runtime, "u").groups
        assert groups is not None
        assert is_safe(groups.pod, groups.containers), name


async def start(runtime: FakeRuntime, sizes: dict[str, KernelLimits]) -> None:
    pod = pod_kernel(sizes.values(), runtime.cgroup_version)
    await runtime.create_pod(PodConfig("u", "default", "db", pod))
    for name, size in sizes.items():
        config = ContainerConfig("u", name, FAKE_IMAGE, (), (), (), "", "db", size)
        await runtime.start_container(config)


async def resize(runtime: FakeRuntime, wanted: dict[str, KernelLimits]) -> Exception | None:
    groups = observe_pod(runtime, "u").groups
    assert groups is not None
    plan = plan_resize(groups, wanted, pod_kernel(wanted.values(), runtime.cgroup_version))
    outcome = await run_steps(
        "resize",
        group_steps(runtime, "u", plan),
        clock=SystemClock(),
        points=Watching(runtime),
        errors=(RuntimeCallError, StepFailedError),
    )
    return outcome.failure


@pytest.mark.parametrize("version", list(CgroupVersion))
@given(pod_pairs=pairs, failing=st.integers(0, 8))
@settings(max_examples=50, deadline=None)
def test_containers_stay_within_the_pod_at_every_step_even_when_one_fails(
    version: CgroupVersion,
    pod_pairs: dict[str, tuple[KernelLimits, KernelLimits]],
    failing: int,
) -> None:
    asyncio.run(_check(version, pod_pairs, failing))


async def _check(
    version: CgroupVersion, pod_pairs: dict[str, tuple[KernelLimits, KernelLimits]], failing: int
) -> None:
    context = system_context()
    machine = FakeMachine(context, version=version)
    runtime = FakeRuntime(context=context, machine=machine)
    wanted = {name: after for name, (_, after) in pod_pairs.items()}
    await start(runtime, {name: before for name, (before, _) in pod_pairs.items()})
    groups: list[Group] = [PodGroup("u"), *(ContainerGroup("u", name) for name in wanted)]
    machine.fail_next_write(groups[failing % len(groups)], RuntimeCallError("not now"))
    if await resize(runtime, wanted) is not None:
        assert await resize(runtime, wanted) is None, "from where it stopped, it goes on"
    after = observe_pod(runtime, "u").groups
    assert after is not None
    assert after.containers == wanted


async def test_a_step_is_done_only_when_the_machine_says_so() -> None:
    context = system_context()
    before = {"a": KernelLimits(100, 1000, 64 * MIB)}
    runtime = _Deaf(context=context)
    await start(runtime, before)
    failure = await resize(runtime, {"a": KernelLimits(100, 2000, 64 * MIB)})
    assert isinstance(failure, StepFailedError)
    assert "the machine says" in str(failure)


class _Deaf(FakeRuntime):
    async def write(self, group: Group, change: GroupChange) -> None:
        """Says yes, and does nothing."""
