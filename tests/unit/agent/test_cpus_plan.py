"""Who gets which CPUs, and in which order they move."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.cpus.plan import (
    Assigned,
    Bind,
    Cpus,
    CpuSupply,
    NarrowPool,
    TooFew,
    cpus_of,
    exclusive_counts,
    make_supply,
    not_whole,
    plan_binding,
    plan_exclusive,
    plan_pins,
    settle_loaded,
    shared_pool,
    start_cpus,
)
from livesize.api.objects import Object
from livesize.api.vm_pins import VmPins

SUPPLY = CpuSupply((0, 1, 2, 3, 4, 5), (0,))


def container(name: str, cpu: str, request: str = "") -> Object:
    limits = {"cpu": cpu, "memory": "1Gi"}
    requests = {**limits, "cpu": request or cpu}
    return {"name": name, "resources": {"limits": limits, "requests": requests}}


def size(cpu: str, name: str = "app") -> Object:
    return {"name": name, "requests": {"cpu": cpu}, "limits": {"cpu": cpu}}


def entry(cpus: Mapping[str, Cpus], uid: str = "u", **held: Cpus) -> Allocation:
    return Allocation(uid, "default", uid, 1, (), (), cpus=dict(cpus), held_cpus=held)


@pytest.mark.parametrize(
    ("containers", "counts"),
    [
        pytest.param([container("a", "2")], {"a": 2}, id="whole"),
        pytest.param([container("a", "2000m")], {"a": 2}, id="whole, spelled otherwise"),
        pytest.param([container("a", "1500m")], {}, id="not whole: shares"),
        pytest.param([container("a", "500m")], {}, id="less than one: shares"),
        pytest.param(
            [container("a", "2"), container("b", "500m")], {"a": 2}, id="each container by itself"
        ),
        pytest.param([container("a", "2", "1")], {}, id="Burstable: shares"),
        pytest.param(
            [container("a", "2"), {"name": "b"}], {}, id="one container makes the pod Burstable"
        ),
    ],
)
def test_who_has_cpus_alone(containers: list[Object], counts: dict[str, int]) -> None:
    pod = {"spec": {"containers": containers}}
    sizes = [{"name": one["name"], **one.get("resources", {})} for one in containers]
    assert exclusive_counts(pod, sizes) == counts


@pytest.mark.parametrize(
    ("requested", "counts"),
    [
        pytest.param("2", {"vm": 2}, id="Guaranteed: alone"),
        pytest.param("1", {}, id="Burstable: shares"),
    ],
)
def test_a_virtual_machine_has_cpus_alone_like_a_container(
    requested: str, counts: dict[str, int]
) -> None:
    vm = container("vm", "2", requested)
    pod = {"spec": {"virtualMachine": vm}}
    assert exclusive_counts(pod, [{"name": "vm", **vm["resources"]}]) == counts


@pytest.mark.parametrize(
    ("cpus", "vcpus", "alone", "pins"),
    [
        pytest.param((0, 3), 2, False, ((0, 3), (0, 3)), id="one that shares: all alike"),
        pytest.param((3, 1), 2, True, ((3,), (1,)), id="alone: each has one, the oldest first"),
        pytest.param((3, 1), 1, True, ((3,),), id="the next one is not plugged in yet"),
        pytest.param((3, 1), 3, True, ((3,), (1,), (1, 3)), id="one that is switched off"),
    ],
)
def test_to_which_cpus_the_threads_of_a_vm_are_pinned(
    cpus: tuple[int, ...], vcpus: int, *, alone: bool, pins: tuple[tuple[int, ...], ...]
) -> None:
    assert plan_pins(cpus, vcpus, alone=alone) == VmPins(pins, tuple(sorted(cpus)))


@pytest.mark.parametrize(
    ("counts", "before", "held", "others", "after"),
    [
        pytest.param({"a": 1}, {}, {}, set(), {"a": (1,)}, id="not a reserved one"),
        pytest.param({"a": 3}, {"a": (4,)}, {}, set(), {"a": (4, 1, 2)}, id="grows: keeps, adds"),
        pytest.param({"a": 2}, {"a": (4, 1, 2)}, {}, set(), {"a": (4, 1)}, id="shrinks: oldest"),
        pytest.param({}, {"a": (4, 1)}, {}, set(), {}, id="shares again"),
        pytest.param({"a": 2}, {"a": (1,)}, {}, {2, 3}, {"a": (1, 4)}, id="not those of others"),
        pytest.param(
            {"a": 2},
            {"a": (1,)},
            {"a": (1, 5)},
            set(),
            {"a": (1, 5)},
            id="what it still has comes first",
        ),
        pytest.param(
            {"a": 1, "b": 2},
            {"a": (1, 2), "b": (3,)},
            {},
            {4, 5},
            {"a": (1,), "b": (3, 2)},
            id="from one container to the other, on a full node",
        ),
        pytest.param(
            {"a": 2, "b": 2},
            {},
            {"b": (1, 2)},
            set(),
            {"a": (3, 4), "b": (1, 2)},
            id="each what it still has, whoever is asked first",
        ),
        pytest.param(
            {"a": 2}, {"a": (0, 5)}, {}, set(), {"a": (5, 1)}, id="what is reserved now is left"
        ),
    ],
)
def test_plan_exclusive(
    counts: dict[str, int],
    before: dict[str, Cpus],
    held: dict[str, Cpus],
    others: set[int],
    after: dict[str, Cpus],
) -> None:
    assert plan_exclusive(counts, before, held, others, SUPPLY) == Assigned(after)


@pytest.mark.parametrize(
    ("count", "others", "refusal"),
    [
        pytest.param(3, {2, 3, 4}, TooFew(3, 2, 5), id="not now"),
        pytest.param(6, set(), TooFew(6, 5, 5), id="never: the pool would be empty"),
    ],
)
def test_too_few(count: int, others: set[int], refusal: TooFew) -> None:
    assert plan_exclusive({"a": count}, {"a": (1,)}, {}, others, SUPPLY) == refusal
    assert refusal.ever_fits == (count <= 5)
    assert f"requested: {count}" in refusal.sentence()


@pytest.mark.parametrize(
    ("usable", "reserved", "supply"),
    [
        ((2, 0, 1), (), CpuSupply((0, 1, 2), (0,))),
        ((0, 1, 2), (1, 2), CpuSupply((0, 1, 2), (1, 2))),
        ((0, 1), (3,), "this machine has the CPUs 0-1, and not 3"),
        ((0, 1), (0, 1), "none would be left"),
        ((0,), (), "none would be left"),
    ],
)
def test_supply(usable: Cpus, reserved: Cpus, supply: CpuSupply | str) -> None:
    if isinstance(supply, CpuSupply):
        assert make_supply(usable, reserved) == supply
    else:
        with pytest.raises(ValueError, match=supply):
            make_supply(usable, reserved)


@pytest.mark.parametrize(
    ("desired", "refused"),
    [
        pytest.param([size("3")], False, id="whole"),
        pytest.param([size("2500m")], True, id="request and limit not whole"),
        pytest.param([{**size("3"), "requests": {"cpu": "100m"}}], True, id="request not whole"),
        pytest.param([{**size("1500m"), "requests": {"cpu": "1"}}], True, id="limit not whole"),
        pytest.param([size("500m")], False, id="as it was: CPU is not resized"),
        pytest.param([size("0.5")], False, id="as it was, spelled otherwise"),
        pytest.param([size("1500m")], False, id="back to what it has"),
        pytest.param([{"name": "app"}], False, id="nothing asked"),
    ],
)
def test_only_whole_cpus(desired: list[Object], refused: bool) -> None:
    why = not_whole(desired, ([size("500m")], [size("1500m")]))
    assert bool(why) == refused
    assert not refused or "is not whole" in why


@pytest.mark.parametrize(
    ("observed", "wanted", "steps"),
    [
        pytest.param({"a": (1, 2)}, {"a": (2, 1)}, (), id="in step"),
        pytest.param(
            {"a": (1,)}, {"a": (1, 3)}, (NarrowPool(), Bind("a", (1, 3))), id="pool first"
        ),
        pytest.param({"a": (1, 2)}, {"a": (2,)}, (Bind("a", (2,)), NarrowPool()), id="gives up"),
        pytest.param(
            {"a": (1, 2), "b": (3,)},
            {"a": (1,), "b": (3, 2)},
            (Bind("a", (1,)), NarrowPool(), Bind("b", (2, 3))),
            id="given up before it is taken",
        ),
        pytest.param(
            {"a": (0, 1, 2)}, {"a": (2,)}, (Bind("a", (2,)), NarrowPool()), id="shared before"
        ),
        pytest.param({"a": None}, {"a": (2,)}, (NarrowPool(), Bind("a", (2,))), id="never told"),
        pytest.param(
            {"a": (1, 4)},
            {"a": (1, 3)},
            (Bind("a", (1,)), NarrowPool(), Bind("a", (1, 3))),
            id="changed by hand",
        ),
        pytest.param(
            {"a": (5,), "b": (1, 2)},
            {"a": (1, 2), "b": (3,)},
            (NarrowPool(), Bind("b", (3,)), Bind("a", (1, 2))),
            id="whoever is in nobody's way goes first",
        ),
        pytest.param(
            {"a": (1,), "b": (2,)},
            {"a": (2,), "b": (1,)},
            (NarrowPool(), Bind("a", (0,)), Bind("b", (1,)), Bind("a", (2,))),
            id="where all wait for each other, one shares for a moment",
        ),
        pytest.param({}, {"a": (1,)}, (), id="does not run"),
    ],
)
def test_plan_binding(
    observed: dict[str, Cpus | None], wanted: dict[str, Cpus], steps: tuple[object, ...]
) -> None:
    assert plan_binding(observed, wanted, (0,)) == steps


def test_a_start_in_the_middle_does_not_take_what_another_has_still() -> None:
    moving = entry({"a": (1,), "b": (3, 2)}, a=(1, 2), b=(3,))
    observed = {"a": (1, 2), "b": (3,), "d": None}
    assert (start_cpus(moving, "a", observed), start_cpus(moving, "b", observed)) == ((1,), (3,))
    assert start_cpus(moving, "b", {"a": (1,)}) == (3, 2), "given up already"
    assert start_cpus(moving, "c", observed) == (), "it shares"


def test_another_policy_finds_what_the_last_one_promised() -> None:
    found = entry({"a": (1, 2), "b": (3,)}, a=(4,))
    assert settle_loaded(found, SUPPLY) == found
    assert settle_loaded(found, None) == entry({})
    assert settle_loaded(found, CpuSupply((0, 1, 2, 3, 4), (2, 3, 4))) == entry({"a": (1,)})


class Node:
    """Pods of two containers that come, go, grow and shrink; some only after a while."""

    def __init__(self) -> None:
        self.entries: dict[str, Allocation] = {}
        self.bound: dict[str, dict[str, set[int]]] = {}

    def ask(self, uid: str, counts: dict[str, int]) -> None:
        old = self.entries.get(uid, entry({}, uid))
        others = {c for name, one in self.entries.items() if name != uid for c in cpus_of(one)}
        assigned = plan_exclusive(counts, old.cpus, old.held_cpus, others, SUPPLY)
        if isinstance(assigned, TooFew):
            whole = sum(counts.values())
            assert whole > 5 or len(others) + whole > 5, "what fits is not refused"
            return
        for name, cpus in assigned.cpus.items():
            kept = old.cpus.get(name, ())[: counts[name]]
            assert cpus[: len(kept)] == kept, "CPUs it has are kept, oldest first"
            assert len(cpus) == counts[name]
        self.entries[uid] = old.accepted((), old.generation + 1, assigned.cpus)
        self.check()

    def apply(self, uid: str, upto: int | None) -> None:
        """All steps, or only the first few: then the next one begins from what it finds."""
        promised = self.entries.get(uid)
        if promised is None:
            return
        bound = self.bound.setdefault(uid, {})
        observed = {name: tuple(bound.get(name, ())) or None for name in promised.cpus}
        pool = shared_pool(SUPPLY, self.entries.values())
        for step in plan_binding(observed, promised.cpus, pool)[:upto]:
            if isinstance(step, Bind):
                bound[step.container] = set(step.cpus).difference(pool)
            else:  # who shares now has nothing alone any more
                bound = {name: bound[name] for name in bound if name in promised.cpus}
                self.bound[uid] = bound
            self.check()
        if upto is None:
            self.bound[uid] = {name: set(cpus) for name, cpus in promised.cpus.items()}
            self.entries[uid] = msgspec.structs.replace(promised, held_cpus={})
            self.check()

    def leave(self, uid: str) -> None:
        self.bound.pop(uid, None)
        self.entries.pop(uid, None)
        self.check()

    def check(self) -> None:
        promised = [
            cpu for one in self.entries.values() for cpus in one.cpus.values() for cpu in cpus
        ]
        assert len(promised) == len(set(promised)), "no CPU is promised twice"
        on_machine = [cpu for pod in self.bound.values() for cpus in pod.values() for cpu in cpus]
        assert len(on_machine) == len(set(on_machine)), "no CPU is used by two"
        pool = shared_pool(SUPPLY, self.entries.values())
        assert pool, "the pool is never empty"
        assert not set(pool).intersection(promised, ()), "what is promised is not shared"
        assert not set(pool).intersection(on_machine), "what somebody still has is not shared"


resizes = st.tuples(
    st.sampled_from("xyz"),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 4)),
    st.sampled_from([None, None, 0, 1, 2, 3]),
)


@settings(max_examples=60)
@given(st.lists(resizes | st.sampled_from("xyz"), min_size=3, max_size=20))
def test_cpus_are_never_in_two_hands_and_the_pool_is_never_empty(
    operations: list[str | tuple[str, dict[str, int], int | None]],
) -> None:
    node = Node()
    for operation in operations:
        if isinstance(operation, str):
            node.leave(operation)
            continue
        uid, counts, upto = operation
        node.ask(uid, counts)
        node.apply(uid, upto)
