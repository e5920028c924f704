"""Sizes in kernel units: the numbers of Kubernetes, and what is reported as actual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kernel_units import (
    CgroupVersion,
    KernelLimits,
    from_kernel,
    pod_kernel,
    pod_limits,
    report_actual,
    to_kernel,
)
from livesize.api.resources import Amounts, Resources, parse_resources

V1, V2 = CgroupVersion.V1, CgroupVersion.V2
MI = 2**20


def size(requests: str = "", limits: str = "") -> Resources:
    """Written as "cpu memory"; a dash leaves one out."""
    written = {"requests": _side(requests), "limits": _side(limits)}
    return parse_resources(written)


def _side(text: str) -> dict[str, str]:
    pairs = zip(("cpu", "memory"), text.split(), strict=False)
    return {name: value for name, value in pairs if value != "-"}


@pytest.mark.parametrize(
    ("resources", "version", "limits"),
    [
        pytest.param(size(), V1, KernelLimits(2, None, None), id="nothing asked: 2 shares"),
        pytest.param(size(), V2, KernelLimits(1, None, None), id="nothing asked: weight 1"),
        pytest.param(
            size("500m 64Mi", "1 128Mi"), V1, KernelLimits(512, 100_000, 128 * MI), id="v1"
        ),
        pytest.param(
            size("500m 64Mi", "1 128Mi"), V2, KernelLimits(20, 100_000, 128 * MI), id="v2"
        ),
        pytest.param(size("1"), V2, KernelLimits(39, None, None), id="one CPU has weight 39"),
        pytest.param(
            size("", "250m"), V1, KernelLimits(256, 25_000, None), id="request defaults to limit"
        ),
        pytest.param(
            size("1m", "5m"), V1, KernelLimits(2, 1000, None), id="quota is at least 1 ms"
        ),
        pytest.param(
            size("1000"), V1, KernelLimits(262_144, None, None), id="shares are capped at 262144"
        ),
        pytest.param(
            size("1000"), V2, KernelLimits(10_000, None, None), id="weight is capped at 10000"
        ),
        pytest.param(
            size("", "- 10000"), V1, KernelLimits(2, None, 8192), id="memory in whole pages"
        ),
        pytest.param(
            size("", "- 1"), V1, KernelLimits(2, None, 4096), id="memory is at least one page"
        ),
        pytest.param(
            size("", "0 0"), V1, KernelLimits(2, None, None), id="a limit of zero is no limit"
        ),
    ],
)
def test_to_kernel(resources: Resources, version: CgroupVersion, limits: KernelLimits) -> None:
    assert to_kernel(resources, version) == limits


@pytest.mark.parametrize(
    ("containers", "version", "limits"),
    [
        pytest.param(
            [size("500m", "1 128Mi"), size("250m", "500m 64Mi")],
            V1,
            KernelLimits(768, 150_000, 192 * MI),
            id="the sum",
        ),
        pytest.param(
            [size("500m", "1 128Mi"), size("250m")],
            V1,
            KernelLimits(768, None, None),
            id="one without limits leaves the pod without",
        ),
        pytest.param([size("500m")] * 2, V2, KernelLimits(39, None, None), id="weights of v2"),
        pytest.param([], V1, KernelLimits(2, None, None), id="no containers"),
    ],
)
def test_pod_group(
    containers: list[Resources], version: CgroupVersion, limits: KernelLimits
) -> None:
    assert pod_kernel([to_kernel(one, version) for one in containers], version) == limits


ALLOCATED = {
    "requests": {"cpu": "0.5", "memory": "64Mi", "ephemeral-storage": "1Gi"},
    "limits": {"cpu": "1000m", "memory": "128Mi"},
}


@pytest.mark.parametrize(
    ("allocated", "observed", "actual"),
    [
        pytest.param(
            ALLOCATED,
            KernelLimits(512, 100_000, 128 * MI),
            ALLOCATED,
            id="what the kernel cannot tell apart is reported with allocated's own quantity",
        ),
        pytest.param(
            ALLOCATED,
            KernelLimits(512, 200_000, 100 * MI),
            {**ALLOCATED, "limits": {"cpu": "2", "memory": "100Mi"}},
            id="otherwise what the kernel says",
        ),
        pytest.param(
            ALLOCATED,
            KernelLimits(1024, 100_000, 128 * MI),
            {**ALLOCATED, "requests": {**ALLOCATED["requests"], "cpu": "1"}},
            id="the weight is the actual cpu request",
        ),
        pytest.param(
            ALLOCATED,
            KernelLimits(512, None, None),
            {"requests": ALLOCATED["requests"]},
            id="a limit that is not there is not reported",
        ),
        pytest.param({}, KernelLimits(2, None, None), {}, id="nothing asked, nothing there"),
        pytest.param(
            {},
            KernelLimits(2, 50_000, None),
            {"limits": {"cpu": "500m"}},
            id="a limit nobody asked for is reported",
        ),
    ],
)
def test_report_actual(allocated: dict, observed: KernelLimits, actual: dict) -> None:
    assert report_actual(allocated, observed, V1) == actual


milli = st.none() | st.integers(0, 300_000)
memory = st.none() | st.integers(0, 2**45)
sizes = st.builds(Resources, st.builds(Amounts, milli, memory), st.builds(Amounts, milli, memory))


@given(sizes, st.sampled_from(CgroupVersion))
def test_reading_back_what_was_written_changes_nothing(
    resources: Resources, version: CgroupVersion
) -> None:
    written = to_kernel(resources, version)
    assert to_kernel(from_kernel(written, version), version) == written


@given(st.lists(sizes, min_size=1), st.sampled_from(CgroupVersion))
def test_containers_never_exceed_their_pod(pod: list[Resources], version: CgroupVersion) -> None:
    containers = [to_kernel(one, version) for one in pod]
    group = pod_kernel(containers, version)
    if group.cpu_quota_us is not None:
        assert sum(one.cpu_quota_us or 0 for one in containers) <= group.cpu_quota_us
    if group.memory_limit_bytes is not None:
        assert sum(one.memory_limit_bytes or 0 for one in containers) <= group.memory_limit_bytes


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_cpu_that_moves_between_containers_leaves_the_pod_group_alone(
    version: CgroupVersion,
) -> None:
    """Decisions 9: "No net change of a resource: the pod group is not written"."""

    def size(milli: int) -> Resources:
        return Resources(Amounts(cpu_milli=milli), Amounts(cpu_milli=milli))

    before = pod_limits([size(200), size(200)], version)
    after = pod_limits([size(300), size(100)], version)
    assert before == after
