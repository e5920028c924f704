"""The order of a VM's resize: table by rule, then the properties of every prefix."""

from __future__ import annotations

from typing import Any, TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from livesize.agent.cpus.plan import Bind, BindingStep, NarrowPool
from livesize.agent.resize.plan import PodObservation, SetGroup
from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.virtio_mem import ALIAS
from livesize.agent.vm.plan import (
    ConfirmMemory,
    ConfirmVcpus,
    MarkSafe,
    VmFacts,
    VmStep,
    VmTarget,
    plan_roll_back,
    plan_vm_resize,
)
from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.api.vm_changes import (
    Definition,
    DeviceKind,
    OnlineVcpus,
    PersistVcpus,
    PlugVcpus,
    SetRequested,
    UnplugVcpus,
    VmDevice,
    WriteNote,
)
from livesize.api.vm_pins import VmPins

MIB = 1024 * 1024
OVERHEAD = 200 * MIB


def limits(vcpus: int, memory: int) -> KernelLimits:
    return KernelLimits(1024 * vcpus, vcpus * CPU_PERIOD_US, memory * MIB + OVERHEAD)


def target(vcpus: int, memory: int) -> VmTarget:
    return VmTarget(vcpus, memory * MIB, OVERHEAD, limits(vcpus, memory))


def facts(vcpus: int, memory: int, used: int = 100, **more: Any) -> VmFacts:
    """A VM that is in step at this size; sizes in MiB."""
    cpu = {key: more.pop(key) for key in tuple(more) if key in VmFacts.__struct_fields__}
    size, boot = memory * MIB, more.pop("boot_bytes", 0)
    requested = more.pop("requested_bytes", size) - boot
    persistent = more.pop("persistent_bytes", size) - boot
    device = VmDevice(ALIAS, DeviceKind.VIRTIO_MEM, 0, 2**40, requested, size - boot)
    known = {"seen_bytes": (memory - 40) * MIB, "available_bytes": (memory - used) * MIB}
    view = VmFacts(
        unplugs_vcpus=False,
        plugged_vcpus=vcpus,
        persistent_vcpus=vcpus,
        online_vcpus=vcpus,
        memory=MemoryFacts(
            boot_bytes=boot,
            devices=(device,),
            persistent_devices=(replace(device, requested_bytes=persistent, current_bytes=0),),
            **{**known, **more},
        ),
    )
    return replace(view, **cpu)


def groups(pod: KernelLimits, vm: KernelLimits | None = None) -> PodObservation:
    return PodObservation(pod, {"vm": pod if vm is None else vm})


def names(view: VmFacts, size: tuple[int, int], wanted: tuple[int, int]) -> list[str]:
    return [
        step.name for step in plan_vm_resize(view, groups(limits(*size)), target(*wanted)).steps
    ]


GROW_VCPUS = [
    *("pod:cpu", "container:vm:cpu", "vm:vcpus:safe"),
    *("vm:vcpus:plug", "vm:vcpus:guest", "vm:vcpus:persist"),
]
SHRINK_VCPUS = [
    *("vm:vcpus:safe", "vm:vcpus:online", "vm:vcpus:guest", "vm:vcpus:persist"),
    *("container:vm:cpu", "pod:cpu"),
]
CHANGE_MEMORY = [
    *("vm:memory:safe", "vm:memory:note", "vm:memory:request", "vm:memory:guest"),
    *("vm:memory:persist", "vm:memory:clear"),
]
GROW_MEMORY = ["pod:memory", "container:vm:memory", *CHANGE_MEMORY]
SHRINK_MEMORY = [*CHANGE_MEMORY, "container:vm:memory", "pod:memory"]


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        pytest.param((1, 512), (1, 512), [], id="nothing to do"),
        pytest.param((1, 512), (3, 512), GROW_VCPUS, id="more vCPUs: the groups first"),
        pytest.param((3, 512), (1, 512), SHRINK_VCPUS, id="fewer vCPUs: the groups last"),
        pytest.param((1, 512), (1, 1024), GROW_MEMORY, id="more memory: the groups first"),
        pytest.param((1, 1024), (1, 512), SHRINK_MEMORY, id="less memory: the groups last"),
        pytest.param(
            (1, 1024), (3, 512), [*GROW_VCPUS, *SHRINK_MEMORY], id="each resource by itself"
        ),
        pytest.param((3, 512), (1, 1024), [*SHRINK_VCPUS, *GROW_MEMORY], id="CPU first"),
    ],
)
def test_the_order(before: tuple[int, int], after: tuple[int, int], steps: list[str]) -> None:
    assert names(facts(*before), before, after) == steps


SHARED = VmPins(((0, 3),), (0, 3))


@pytest.mark.parametrize(
    ("view", "vcpus", "binding", "target_cpus", "steps"),
    [
        pytest.param(
            facts(1, 512, pins=VmPins(((1,),), (1,)), persistent_pins=VmPins(((1,),), (1,))),
            2,
            (NarrowPool(), Bind("vm", (1, 2))),
            {"cpus": (1, 2), "alone": True},
            ["node:shared-cpus", "container:vm:cpuset", *GROW_VCPUS, "vm:vcpus:pin"],
            id="CPUs are gained before the vCPUs come",
        ),
        pytest.param(
            facts(2, 512),
            1,
            (Bind("vm", (1,)), NarrowPool()),
            {"cpus": (1,), "alone": True},
            [*SHRINK_VCPUS, "container:vm:cpuset", "node:shared-cpus", "vm:vcpus:pin"],
            id="CPUs are left when the vCPUs have gone",
        ),
        pytest.param(
            facts(1, 512, pins=SHARED, persistent_pins=SHARED),
            1,
            (),
            {"cpus": (0, 3)},
            [],
            id="in step",
        ),
        pytest.param(
            facts(1, 512, pins=SHARED), 1, (), {"cpus": (0, 3)}, ["vm:vcpus:pin"], id="persistent"
        ),
        pytest.param(
            facts(1, 512, pins=SHARED, persistent_pins=SHARED),
            1,
            (),
            {"cpus": (0,)},
            ["vm:vcpus:pin"],
            id="the pool has moved",
        ),
    ],
)
def test_the_order_of_cpus(
    view: VmFacts,
    vcpus: int,
    binding: tuple[BindingStep, ...],
    target_cpus: dict[str, object],
    steps: list[str],
) -> None:
    wanted = replace(target(vcpus, 512), **target_cpus)
    size = groups(limits(view.plugged_vcpus, 512))
    plan = plan_vm_resize(view, size, wanted, binding=binding)
    assert [step.name for step in plan.steps] == steps


def test_cpu_that_failed_the_last_time_does_not_hold_up_memory() -> None:
    plan = plan_vm_resize(facts(1, 512), groups(limits(1, 512)), target(2, 1024), memory_first=True)
    assert [step.name for step in plan.steps] == [*GROW_MEMORY, *GROW_VCPUS]


def vcpu_changes(view: VmFacts, count: int) -> list[tuple[str, int]]:
    plan = plan_vm_resize(view, groups(limits(count, 512)), target(count, 512))
    return [
        (one.name.removeprefix("vm:vcpus:"), one.count)
        for one in plan.steps
        if isinstance(one, PlugVcpus | UnplugVcpus | OnlineVcpus | PersistVcpus)
    ]


@pytest.mark.parametrize(
    ("view", "count", "changes"),
    [
        pytest.param(
            facts(2, 512, plugged_vcpus=4),
            4,
            [("online", 4), ("persist", 4)],
            id="what is plugged already is only brought online",
        ),
        pytest.param(
            facts(2, 512, plugged_vcpus=4),
            6,
            [("online", 4), ("plug", 6), ("persist", 6)],
            id="and beyond it more are plugged",
        ),
        pytest.param(
            facts(4, 512, unplugs_vcpus=True),
            2,
            [("unplug", 2), ("persist", 2)],
            id="KVM: down is a real unplug",
        ),
        pytest.param(
            facts(2, 512, unplugs_vcpus=True, plugged_vcpus=4, online_vcpus=1),
            2,
            [("unplug", 2), ("online", 2)],
            id="KVM: what is left is brought online",
        ),
        pytest.param(
            facts(2, 512, online_vcpus=None), 2, [], id="a guest not heard is only waited for"
        ),
        pytest.param(
            facts(2, 512, plugged_vcpus=4, online_vcpus=4),
            2,
            [("online", 2)],
            id="after a guest's reboot its vCPUs go offline again",
        ),
        pytest.param(facts(2, 512, persistent_vcpus=1), 2, [("persist", 2)], id="only persistent"),
    ],
)
def test_vcpus(view: VmFacts, count: int, changes: list[tuple[str, int]]) -> None:
    assert vcpu_changes(view, count) == changes


def is_request(step: VmStep) -> TypeGuard[SetRequested]:
    return isinstance(step, SetRequested) and step.definition is Definition.LIVE


def asked(view: VmFacts, wanted: int) -> list[int]:
    """The totals in MiB that the guest is asked for."""
    plan = plan_vm_resize(view, groups(limits(1, 4096)), target(1, wanted))
    return [one.requested_bytes // MIB for one in plan.steps if is_request(one)]


@pytest.mark.parametrize(
    ("view", "wanted", "totals"),
    [
        pytest.param(facts(1, 2048, used=100), 512, [512], id="what is free can be taken"),
        pytest.param(facts(1, 2048, used=1000), 512, [1064], id="down to what it uses and 64 MiB"),
        pytest.param(facts(1, 2048, used=1999), 512, [], id="nothing to spare: not asked at all"),
        pytest.param(
            facts(1, 1064, used=1044), 512, [1108], id="a guest that needs more gets it back"
        ),
        pytest.param(facts(1, 4096, used=4090), 512, [], id="but never more than its groups hold"),
        pytest.param(facts(1, 4096, used=2000), 2000, [2100], id="of a larger size 5 % are kept"),
        pytest.param(
            facts(1, 2048, available_bytes=None, seen_bytes=None, online_vcpus=None),
            512,
            [],
            id="a guest that is not heard is not asked",
        ),
        pytest.param(
            facts(1, 2048, used=1000, requested_bytes=512 * MIB),
            512,
            [1064],
            id="a guest that needs more than it did is asked for less",
        ),
        pytest.param(
            facts(1, 1024, requested_bytes=512 * MIB), 768, [768], id="a newer target on the way"
        ),
        pytest.param(
            facts(1, 512, requested_bytes=1024 * MIB), 512, [512], id="back before it has grown"
        ),
    ],
)
def test_a_guest_is_never_asked_for_what_it_cannot_spare(
    view: VmFacts, wanted: int, totals: list[int]
) -> None:
    assert asked(view, wanted) == totals


def test_a_note_left_over_is_cleared() -> None:
    view = facts(1, 512, noted_bytes=1024 * MIB)
    assert names(view, (1, 512), (1, 512)) == ["vm:memory:clear"]


def test_waiting_for_the_guest_changes_nothing() -> None:
    plan = plan_vm_resize(facts(1, 512, online_vcpus=None), groups(limits(1, 512)), target(1, 512))
    assert plan.steps == (ConfirmVcpus(1),)
    assert plan.changing == ()


@pytest.mark.parametrize(
    ("view", "kept"),
    [
        pytest.param(facts(1, 512), 512, id="all of it"),
        pytest.param(facts(1, 512, requested_bytes=768 * MIB), 768, id="to what was asked"),
        pytest.param(facts(1, 1024), None, id="nothing where the domain has it all"),
    ],
)
def test_a_refusing_domain_narrows_the_groups_to_what_it_holds(
    view: VmFacts, kept: int | None
) -> None:
    before, after = (SetMemory(size * MIB + OVERHEAD) for size in (512, 1024))
    grown = [SetGroup(name, after, before) for name in (None, "vm")]
    undone = plan_roll_back(grown, view, OVERHEAD)
    if kept is None:
        assert undone == ()
        return
    assert [change.container for change in undone] == ["vm", None]
    assert {change.after for change in undone} == {SetMemory(kept * MIB + OVERHEAD)}


def test_a_refused_plug_narrows_the_quota() -> None:
    before, after = SetCpu(1024, CPU_PERIOD_US), SetCpu(3072, 3 * CPU_PERIOD_US)
    (undone,) = plan_roll_back([SetGroup(None, after, before)], facts(1, 512), OVERHEAD)
    assert undone.after == before


# Properties

SIZES = st.tuples(st.integers(1, 6), st.integers(128, 1024).map(lambda block: 2 * block))


@st.composite
def states(draw: st.DrawFn) -> tuple[VmFacts, PodObservation]:
    """A VM somewhere on its way from one size to another, its groups covering it."""
    (vcpus, memory), (online, requested) = draw(SIZES), draw(SIZES)
    plugged_vcpus = max(vcpus, online)
    unplugs = draw(st.booleans())
    heard = draw(st.booleans())
    used = draw(st.integers(50, 4000))
    view = facts(
        plugged_vcpus,
        memory,
        used=min(used, memory),
        unplugs_vcpus=unplugs,
        online_vcpus=online if heard else None,
        requested_bytes=requested * MIB,
        persistent_vcpus=draw(st.integers(1, 6)),
        persistent_bytes=draw(SIZES)[1] * MIB,
        noted_bytes=draw(st.none() | SIZES.map(lambda size: size[1] * MIB)),
    )
    if not heard:
        unheard = replace(view.memory, seen_bytes=None, available_bytes=None)
        view = replace(view, memory=unheard)
    inner = limits(plugged_vcpus, max(memory, requested))
    outer = draw(st.sampled_from([inner, limits(6, 2048)]))
    return view, groups(outer, inner)


def after(view: VmFacts, found: PodObservation, step: VmStep) -> tuple[VmFacts, PodObservation]:
    """The machine after one step, the guest doing as it is asked."""
    match step:
        case SetGroup(container=name, after=SetCpu(weight=weight, quota_us=quota)):
            return view, _regrouped(found, name, cpu_weight=weight, cpu_quota_us=quota)
        case SetGroup(container=name, after=SetMemory(limit_bytes=limit)):
            return view, _regrouped(found, name, memory_limit_bytes=limit)
        case MarkSafe(quota_us=quota, limit_bytes=limit):
            assert holds(found, quota, limit), "the mark would be refused"
            return view, found
        case ConfirmMemory(requested_bytes=requested_bytes):
            return _moved(view, requested_bytes), found
        case SetRequested() | WriteNote():
            return replace(view, memory=_changed_memory(view.memory, step)), found
        case PlugVcpus() | UnplugVcpus() | OnlineVcpus() | PersistVcpus() | ConfirmVcpus():
            return replace(view, **_changed(view, step)), found
    raise AssertionError(step)


def holds(found: PodObservation, quota: int | None, limit: int | None) -> bool:
    groups = (found.pod, found.containers["vm"])
    return all(
        (quota is None or (one.cpu_quota_us or quota) >= quota)
        and (limit is None or (one.memory_limit_bytes or limit) >= limit)
        for one in groups
    )


def _changed(view: VmFacts, step: VmStep) -> dict[str, int | None]:
    online = view.online_vcpus
    match step:
        case PlugVcpus(count=count):
            grown = None if online is None else online + count - view.plugged_vcpus
            changed = {"plugged_vcpus": count, "online_vcpus": grown}
        case UnplugVcpus(count=count):
            left = None if online is None else min(online, count)
            changed = {"plugged_vcpus": count, "online_vcpus": left}
        case PersistVcpus(count=count):
            changed = {"persistent_vcpus": count}
        case OnlineVcpus(count=count) | ConfirmVcpus(count=count):
            changed = {"online_vcpus": count}
        case _:
            raise AssertionError(step)
    return changed


def _changed_memory(memory: MemoryFacts, step: SetRequested | WriteNote) -> MemoryFacts:
    match step:
        case SetRequested(requested_bytes=requested, definition=definition):
            field = "devices" if definition is Definition.LIVE else "persistent_devices"
            (device,) = getattr(memory, field)
            return replace(memory, **{field: (replace(device, requested_bytes=requested),)})
        case WriteNote(note=note):
            return replace(memory, noted_bytes=note.memory_bytes_being_updated)


def _regrouped(found: PodObservation, name: str | None, **new: int | None) -> PodObservation:
    if name is None:
        return PodObservation(replace(found.pod, **new), found.containers)
    inner = replace(found.containers["vm"], **new)
    return PodObservation(found.pod, {"vm": inner})


def _moved(view: VmFacts, plugged: int) -> VmFacts:
    memory = view.memory
    by = plugged - memory.plugged_bytes
    guest: dict[str, int] = {}
    if memory.available_bytes is not None and memory.seen_bytes is not None:
        guest["available_bytes"] = max(0, memory.available_bytes + by)
        guest["seen_bytes"] = memory.seen_bytes + by
    (device,) = memory.devices
    devices = (replace(device, current_bytes=plugged - memory.boot_bytes),)
    return replace(view, memory=replace(memory, devices=devices, **guest))


def covered(view: VmFacts, found: PodObservation) -> bool:
    """The groups, the inner within the outer, hold what the domain may use."""
    inner, outer = found.containers["vm"], found.pod
    memory = max(view.memory.requested_bytes, view.memory.plugged_bytes) + OVERHEAD
    quota = (view.online_vcpus or 0) * CPU_PERIOD_US
    assert inner.memory_limit_bytes is not None
    assert outer.memory_limit_bytes is not None
    assert inner.cpu_quota_us is not None
    assert outer.cpu_quota_us is not None
    return (
        memory <= inner.memory_limit_bytes <= outer.memory_limit_bytes
        and quota <= inner.cpu_quota_us <= outer.cpu_quota_us
    )


@given(states(), SIZES, st.booleans())
def test_every_prefix_is_safe_and_the_rest_is_what_is_planned_again(
    state: tuple[VmFacts, PodObservation], wanted: tuple[int, int], memory_first: bool
) -> None:
    view, found = state
    assert covered(view, found)
    plan = plan_vm_resize(view, found, target(*wanted), memory_first=memory_first)
    for done, step in enumerate(plan.steps):
        if isinstance(step, ConfirmMemory) and step.requested_bytes != step.wanted_bytes:
            return  # the guest cannot give more, and here it ends
        if isinstance(step, ConfirmVcpus) and view.online_vcpus != step.count:
            assert view.online_vcpus is None, "a guest that is heard was told what to do"
        view, found = after(view, found, step)
        assert covered(view, found), f"not covered after {step.name}"
        if view.online_vcpus is None:
            continue  # once it is heard, its vCPUs are planned for
        again = plan_vm_resize(view, found, target(*wanted), memory_first=memory_first)
        rest = [one for one in plan.steps[done + 1 :] if one in plan.changing]
        assert [one.name for one in again.changing] == [one.name for one in rest]
    assert not plan_vm_resize(view, found, target(*wanted)).changing


@given(states(), SIZES)
def test_no_more_is_asked_back_than_the_guest_can_spare(
    state: tuple[VmFacts, PodObservation], wanted: tuple[int, int]
) -> None:
    view, found = state
    plan = plan_vm_resize(view, found, target(*wanted))
    memory = view.memory
    for step in plan.steps:
        if is_request(step):
            spared = memory.plugged_bytes - step.requested_bytes
            if memory.available_bytes is None:
                assert spared <= max(0, memory.plugged_bytes - memory.requested_bytes)
            else:
                assert spared <= max(0, memory.available_bytes - 64 * MIB)
