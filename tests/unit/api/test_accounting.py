"""What pods count for on a node, in a fit and in a quota (design 5.2, decisions 7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.accounting import (
    Fits,
    FitVerdict,
    NeverFits,
    NoRoomNow,
    charge,
    fits,
    footprint,
    pod_overhead,
    requests_of,
)
from livesize.api.objects import Object
from livesize.api.resources import Amounts, ResourceName, Resources

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
MI = 2**20


def sides(text: str) -> Object:
    """ "cpu memory" as requests and as limits."""
    cpu, memory = text.split()
    return {side: {"cpu": cpu, "memory": memory} for side in ("requests", "limits")}


def pod(
    desired: str, allocated: str = "", actual: str = "", phase: str = "None", **spec: object
) -> Object:
    status: Object = {"phase": "Running"}
    if allocated:
        state = {"phase": phase, "allocated": [{"name": "a", **sides(allocated)}]}
        status["resizeState"] = state
    if actual:
        status["containerStatuses"] = [{"name": "a", "resources": sides(actual)}]
    containers = [{"name": "a", "resources": sides(desired)}]
    return {"spec": {"containers": containers, **spec}, "status": status}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod("1 64Mi"), Amounts(1000, 64 * MI), id="not admitted: its requests"),
        pytest.param(
            pod("9 9Gi", "1 64Mi", "1 64Mi", "Deferred"),
            Amounts(1000, 64 * MI),
            id="a deferred giant blocks nobody",
        ),
        pytest.param(
            pod("2 64Mi", "2 64Mi", "1 64Mi", "InProgress"),
            Amounts(2000, 64 * MI),
            id="a growing pod counts as allocated",
        ),
        pytest.param(
            pod("1 32Mi", "1 32Mi", "2 64Mi", "InProgress"),
            Amounts(2000, 64 * MI),
            id="a shrinking pod counts as actual until it is done",
        ),
        pytest.param(
            pod("1 32Mi", "1 32Mi", "2 64Mi", "Done"), Amounts(1000, 32 * MI), id="then allocated"
        ),
        pytest.param(
            pod("1 64Mi", "1 64Mi", overhead={"cpu": "250m", "memory": "1Mi"}),
            Amounts(1250, 65 * MI),
            id="overhead is added",
        ),
        pytest.param(
            {**pod("1 64Mi", "1 64Mi"), "status": {"phase": "Succeeded"}},
            Amounts(0, 0),
            id="an ended pod counts nothing",
        ),
        pytest.param({"spec": {"containers": [{"name": "a"}]}}, Amounts(0, 0), id="BestEffort"),
    ],
)
def test_footprint(given: Object, expected: Amounts) -> None:
    assert footprint(given) == expected


INIT = {"name": "i", "resources": sides("3 16Mi")}
SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": sides("500m 8Mi")}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        pytest.param([INIT], Amounts(3000, 64 * MI), id="the larger, of each resource"),
        pytest.param([SIDECAR], Amounts(1500, 72 * MI), id="a sidecar runs beside the containers"),
        pytest.param(
            [SIDECAR, INIT], Amounts(3500, 72 * MI), id="an init container beside earlier sidecars"
        ),
        pytest.param(
            [INIT, SIDECAR], Amounts(3000, 72 * MI), id="a later sidecar does not run beside it"
        ),
    ],
)
def test_init_containers_count_as_kubernetes_counts(init: list[Object], expected: Amounts) -> None:
    assert requests_of(pod("1 64Mi", initContainers=init)) == expected


def sidecar_pod(allocated: str, actual: str, phase: str) -> Object:
    """A sidecar that asks for 500m, beside a container that is not resized."""
    made = pod("1 64Mi", "1 64Mi", "1 64Mi", phase, initContainers=[SIDECAR])
    made["status"]["resizeState"]["allocated"].append({"name": "s", **sides(allocated)})
    made["status"]["initContainerStatuses"] = [{"name": "s", "resources": sides(actual)}]
    return made


@pytest.mark.parametrize(
    ("allocated", "actual", "phase", "kept", "charged"),
    [
        pytest.param("250m 8Mi", "250m 8Mi", "Requested", 1250, 1500, id="asked to grow"),
        pytest.param("500m 8Mi", "750m 8Mi", "InProgress", 1750, 1750, id="a shrink unfinished"),
        pytest.param("250m 8Mi", "250m 8Mi", "Infeasible", 1250, 1250, id="refused"),
        pytest.param("500m 8Mi", "500m 8Mi", "Done", 1500, 1500, id="done"),
    ],
)
def test_a_sidecar_that_is_resized_counts_like_a_container(
    allocated: str, actual: str, phase: str, kept: int, charged: int
) -> None:
    made = sidecar_pod(allocated, actual, phase)
    assert footprint(made).cpu_milli == kept
    assert charge(made).requests.cpu_milli == charge(made).limits.cpu_milli == charged


NODE = Amounts(2000, 4 * 2**30)


@pytest.mark.parametrize(
    ("others", "desired", "verdict"),
    [
        pytest.param([], Amounts(2000, 0), Fits(), id="exactly full"),
        pytest.param(
            [Amounts(2500, 0)], Amounts(0, 1), Fits(), id="what is not asked need not fit"
        ),
        pytest.param(
            [Amounts(1000)], Amounts(1001), NoRoomNow(CPU, 1001, 1000, 2000), id="no room"
        ),
        pytest.param([], Amounts(2001), NeverFits(CPU, 2001, 2000), id="never"),
        pytest.param(
            [Amounts(2000)],
            Amounts(1, 5 * 2**30),
            NeverFits(MEMORY, 5 * 2**30, 4 * 2**30),
            id="never outweighs not now",
        ),
    ],
)
def test_fits(others: list[Amounts], desired: Amounts, verdict: FitVerdict) -> None:
    assert fits(others, desired, NODE) == verdict


def test_refusals_speak_like_kubernetes() -> None:
    deferred = NoRoomNow(MEMORY, 4718592000, 2147483648, 4294967296)
    assert deferred.sentence() == (
        "Node didn't have enough resource: memory, requested: 4718592000, used: 2147483648,"
        " capacity: 4294967296"
    )
    assert NeverFits(CPU, 5000, 2000).sentence() == (
        "Node didn't have enough capacity: cpu, requested: 5000, capacity: 2000"
    )


amounts = st.builds(Amounts, st.integers(0, 3000), st.integers(0, 5000))


@given(st.lists(amounts, max_size=5), amounts, amounts)
def test_what_fits_never_overfills(others: list[Amounts], desired: Amounts, node: Amounts) -> None:
    if not isinstance(fits(others, desired, node), Fits):
        return
    for resource in ResourceName:
        asked = desired.amount(resource) or 0
        used = sum(one.amount(resource) or 0 for one in others)
        assert asked == 0 or used + asked <= (node.amount(resource) or 0)


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        pytest.param(
            pod("3 64Mi", "1 64Mi", "2 64Mi", "Deferred"), 3000, 3000, id="desired is the largest"
        ),
        pytest.param(
            pod("3 64Mi", "1 64Mi", "1 64Mi", "Infeasible"), 1000, 1000, id="refused: given back"
        ),
        pytest.param(
            pod("1 64Mi", "1 64Mi", "2 64Mi", "InProgress"), 2000, 2000, id="not yet given back"
        ),
    ],
)
def test_charge(given: Object, requests: int, limits: int) -> None:
    memory = 64 * MI
    assert charge(given) == Resources(Amounts(requests, memory), Amounts(limits, memory))


def test_overhead_is_charged_to_limits_only_where_there_are_any() -> None:
    spec = {
        "overhead": {"cpu": "100m", "memory": "1Mi"},
        "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}],
    }
    charged = charge({"spec": spec})
    assert charged == Resources(Amounts(1100, MI), Amounts(1100, None))
    assert pod_overhead({"spec": spec}) == Amounts(100, MI)
