"""CPU and memory as integers: reading, writing, and sums in which "not set" stays honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.quantity import QuantityError
from livesize.api.resources import (
    NOTHING,
    Amounts,
    Resources,
    add,
    container_resources,
    format_amounts,
    maximum,
    parse_resources,
    same_quantities,
    size_of,
    total,
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, Resources(), id="absent"),
        pytest.param(
            {"limits": {"cpu": "1", "memory": "1Gi"}},
            Resources(Amounts(1000, 2**30), Amounts(1000, 2**30)),
            id="a request that is absent is its limit",
        ),
        pytest.param(
            {"requests": {"cpu": 0}, "limits": {"cpu": 2}},
            Resources(Amounts(0), Amounts(2000)),
            id="zero is not absent; numbers are quantities",
        ),
        pytest.param(
            {"requests": {"cpu": "0.1m", "nvidia.com/gpu": "1"}},
            Resources(Amounts(1)),
            id="rounded up; other names are not ours",
        ),
    ],
)
def test_reading(written: dict | None, read: Resources) -> None:
    assert parse_resources(written) == read


def test_a_bad_quantity_raises() -> None:
    with pytest.raises(QuantityError):
        parse_resources({"requests": {"cpu": "much"}})


def test_containers_come_in_spec_order() -> None:
    pod = {
        "spec": {"containers": [{"name": "b"}, {"name": "a"}], "initContainers": [{"name": "i"}]}
    }
    assert list(container_resources(pod)) == ["b", "a"]


def test_a_size_has_no_empty_sides() -> None:
    assert size_of({"name": "a", "resources": {"requests": {}, "claims": []}}) == {"name": "a"}


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"cpu": "1000m"}, {"cpu": 1}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({}, None, True),
        ({"cpu": "1"}, {"cpu": "2"}, False),
        ({"cpu": "1"}, {}, False),
        ({"cpu": "much"}, {"cpu": "1"}, False),
    ],
)
def test_same_quantities(left: dict, right: dict | None, same: bool) -> None:
    assert same_quantities(left, right) is same


amount = st.none() | st.integers(0, 2**50)
amounts = st.builds(Amounts, amount, amount)


@given(amounts, amounts, amounts)
def test_sums_do_not_depend_on_the_order(one: Amounts, two: Amounts, three: Amounts) -> None:
    assert total([one, two, three]) == total([three, one, two]) == add(one, add(two, three))
    assert add(one, NOTHING) == one
    assert maximum(one, two) == maximum(two, one)


@given(amounts, amounts)
def test_what_is_written_is_read_back(requests: Amounts, limits: Amounts) -> None:
    written = {"requests": format_amounts(requests), "limits": format_amounts(limits)}
    read = parse_resources(written)
    assert read.limits == limits
    for name in ("cpu_milli", "memory_bytes"):
        asked = getattr(requests, name)
        assert getattr(read.requests, name) == (getattr(limits, name) if asked is None else asked)
