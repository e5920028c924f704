"""The order of a resize: table by rule, then the property that every prefix is safe."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.resize.plan import PodObservation, SetGroup, plan_resize
from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits, pod_kernel

V1 = CgroupVersion.V1


def sized(cpu: int | None = 10_000, memory: int | None = 4096, weight: int = 100) -> KernelLimits:
    return KernelLimits(weight, cpu, memory)


def plan(before: Mapping[str, KernelLimits], after: Mapping[str, KernelLimits]) -> list[str]:
    observed = PodObservation(pod_kernel(before.values(), V1), before)
    return [
        step.name for step in plan_resize(observed, after, pod_kernel(after.values(), V1)).steps
    ]


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        pytest.param({"a": sized()}, {"a": sized()}, [], id="nothing to do"),
        pytest.param(
            {"a": sized(cpu=1000)},
            {"a": sized(cpu=2000)},
            ["pod:cpu", "container:a:cpu"],
            id="net increase: the pod group first",
        ),
        pytest.param(
            {"a": sized(cpu=2000)},
            {"a": sized(cpu=1000)},
            ["container:a:cpu", "pod:cpu"],
            id="net decrease: the pod group last",
        ),
        pytest.param(
            {"a": sized(cpu=1000), "b": sized(cpu=3000)},
            {"a": sized(cpu=3000), "b": sized(cpu=1000)},
            ["container:b:cpu", "container:a:cpu"],
            id="no net change: the pod group is not written, decreases before increases",
        ),
        pytest.param(
            {"a": sized(cpu=1000, memory=8192)},
            {"a": sized(cpu=2000, memory=4096)},
            ["pod:cpu", "container:a:cpu", "container:a:memory", "pod:memory"],
            id="cpu and memory apart, cpu first",
        ),
        pytest.param(
            {"a": sized(memory=4096)},
            {"a": sized(memory=None)},
            ["pod:memory", "container:a:memory"],
            id="lifting a limit is growth",
        ),
        pytest.param(
            {"a": sized(memory=None)},
            {"a": sized(memory=4096)},
            ["container:a:memory", "pod:memory"],
            id="setting a first limit is a shrink",
        ),
        pytest.param(
            {"a": sized(weight=100)},
            {"a": sized(weight=200)},
            ["pod:cpu", "container:a:cpu"],
            id="more weight alone is growth",
        ),
        pytest.param(
            {"a": sized(weight=200)},
            {"a": sized(weight=100)},
            ["container:a:cpu", "pod:cpu"],
            id="less weight alone is a shrink",
        ),
        pytest.param(
            {"a": sized(memory=None), "b": sized(memory=4096)},
            {"a": sized(memory=None), "b": sized(memory=8192)},
            ["container:b:memory"],
            id="beside a container without limit the pod group has none to write",
        ),
    ],
)
def test_order(
    before: dict[str, KernelLimits], after: dict[str, KernelLimits], steps: list[str]
) -> None:
    assert plan(before, after) == steps


def test_a_container_without_a_group_is_left_out_and_the_pod_still_sized_for_all() -> None:
    observed = PodObservation(sized(cpu=2000), {"a": sized(cpu=1000)})
    after = {"a": sized(cpu=1000), "gone": sized(cpu=5000)}
    steps = plan_resize(observed, after, pod_kernel(after.values(), V1)).steps
    assert [(step.name, step.after) for step in steps] == [
        ("pod:cpu", SetCpu(200, 6000)),
        ("pod:memory", SetMemory(8192)),
    ]


limits = st.builds(
    KernelLimits,
    st.integers(2, 1000),
    st.none() | st.integers(1000, 5000),
    st.none() | st.integers(1, 5).map(lambda pages: pages * 4096),
)
pairs = st.dictionaries(st.sampled_from("abcd"), st.tuples(limits, limits), min_size=1)


def within(pod: int | None, containers: list[int | None]) -> bool:
    """The container limits together do not exceed the pod's; no limit exceeds any."""
    if pod is None:
        return True
    return (
        all(one is not None for one in containers)
        and sum(one for one in containers if one is not None) <= pod
    )


def is_safe(pod: KernelLimits, containers: Mapping[str, KernelLimits]) -> bool:
    return within(pod.cpu_quota_us, [one.cpu_quota_us for one in containers.values()]) and within(
        pod.memory_limit_bytes, [one.memory_limit_bytes for one in containers.values()]
    )


def written(limits: KernelLimits, step: SetGroup) -> KernelLimits:
    match step.after:
        case SetCpu(weight=weight, quota_us=quota_us):
            return KernelLimits(weight, quota_us, limits.memory_limit_bytes)
        case SetMemory(limit_bytes=limit_bytes):
            return KernelLimits(limits.cpu_weight, limits.cpu_quota_us, limit_bytes)


@given(pairs)
def test_every_prefix_is_safe_and_planning_again_gives_the_rest(
    pod_pairs: dict[str, tuple[KernelLimits, KernelLimits]],
) -> None:
    containers = {name: before for name, (before, _) in pod_pairs.items()}
    wanted = {name: after for name, (_, after) in pod_pairs.items()}
    pod, pod_wanted = pod_kernel(containers.values(), V1), pod_kernel(wanted.values(), V1)
    steps = plan_resize(PodObservation(pod, containers), wanted, pod_wanted).steps
    for index, step in enumerate(steps):
        if step.container is None:
            assert step.before != step.after
            pod = written(pod, step)
        else:
            containers[step.container] = written(containers[step.container], step)
        assert is_safe(pod, containers)
        rest = plan_resize(PodObservation(pod, dict(containers)), wanted, pod_wanted).steps
        assert rest == steps[index + 1 :]
    assert containers == wanted
    assert pod == pod_wanted
