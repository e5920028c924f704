"""A node admits a VM with a balloon at its maximum, and gives the rest to others when the guest has
given it back (decisions 46)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.admission.plan import Admit, Reject
from livesize.agent.allocation.ledger import Allocation, Ledger, with_resource
from livesize.agent.judge import Judge
from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve
from livesize.api.quantity import memory_bytes
from livesize.api.resize_state import bind_allocated
from livesize.api.resources import Amounts, ResourceName
from livesize.api.vm_size import MEBIBYTE, Technology

VIRTIO, BALLOON = Technology.VIRTIO_MEM, Technology.BALLOON


def vm_pod(name: str = "vm1", memory: int = 512, **bounds: Any) -> Object:
    size = {"cpu": "1", "memory": f"{memory}Mi"}
    machine = {
        "kernel": {"image": "guest"},
        "resources": {"limits": size},
        "cpu": {"max": "1"},
        "memory": {"max": "2Gi", **bounds},
    }
    metadata = {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
    spec = {"virtualMachine": machine, "nodeName": "n1", "overhead": {"memory": "256Mi"}}
    return bind_allocated(default_object(PODS, {"metadata": metadata, "spec": spec}))


def asks(pod: Object, memory: int, generation: int) -> Object:
    size = {"cpu": "1", "memory": f"{memory}Mi"}
    pod = evolve(pod, ("spec", "virtualMachine", "resources"), {"requests": size, "limits": size})
    state = {**pod["status"]["resizeState"], "phase": "Requested", "generation": generation}
    return evolve(pod, ("status", "resizeState"), state)


def node(mebibytes: int, technology: Technology = VIRTIO) -> tuple[Ledger, Judge]:
    ledger = Ledger(Amounts(16_000, mebibytes * MEBIBYTE))
    return ledger, Judge(ledger, runs_vms=True, technology=technology)


def known(ledger: Ledger, uid: str = "vm1") -> Allocation:
    entry = ledger.get(uid)
    assert entry is not None
    return entry


@pytest.mark.parametrize(
    ("bounds", "default", "needed"),
    [
        pytest.param({"technology": "balloon"}, VIRTIO, 2048, id="its spec says so"),
        pytest.param({}, BALLOON, 2048, id="the node's default"),
        pytest.param({"technology": "virtio-mem"}, BALLOON, 512, id="its spec says otherwise"),
        pytest.param({}, VIRTIO, 512, id="no balloon"),
    ],
)
def test_admitted_at_what_it_boots_with(bounds: Any, default: Technology, needed: int) -> None:
    ledger, judge = node(needed + 256, default)
    assert judge.admit(vm_pod(**bounds), already_runs=False) == Admit()
    assert ledger.used.memory_bytes == (needed + 256) * MEBIBYTE
    assert known(ledger).settled == (needed == 512)
    _, crowded = node(needed + 255, default)
    verdict = crowded.admit(vm_pod(**bounds), already_runs=False)
    assert isinstance(verdict, Reject)
    assert verdict.reason == "OutOfmemory"


def test_others_get_what_the_guest_has_given_back() -> None:
    ledger, judge = node(2560)
    assert judge.admit(vm_pod(technology="balloon"), already_runs=False) == Admit()
    assert isinstance(judge.admit(vm_pod("b"), already_runs=False), Reject)
    ledger.record(known(ledger).applied(known(ledger).allocated))
    assert known(ledger).settled
    assert ledger.used.memory_bytes == (512 + 256) * MEBIBYTE
    assert judge.admit(vm_pod("b", 1024), already_runs=False) == Admit()
    larger = asks(vm_pod(technology="balloon"), 2048, 2)
    assert judge.consider(larger)
    refused = judge.refusal("vm1")
    assert refused is not None, "growing back is judged as any growth"
    assert refused.phase == "Deferred"


def test_growth_within_what_it_still_has_needs_no_room() -> None:
    ledger, judge = node(2304)
    pod = vm_pod(technology="balloon")
    assert judge.admit(pod, already_runs=False) == Admit()
    assert judge.consider(asks(pod, 1024, 2))
    assert judge.refusal("vm1") is None
    assert ledger.used.memory_bytes == 2304 * MEBIBYTE
    ledger.record(known(ledger).applied(known(ledger).allocated))
    assert ledger.used.memory_bytes == (1024 + 256) * MEBIBYTE


words = st.tuples(
    st.sampled_from(["admit", "ask", "apply", "remove"]),
    st.sampled_from("abc"),
    st.integers(256, 1024).map(lambda blocks: 2 * blocks),
    st.sampled_from(["balloon", "virtio-mem", ""]),
)


@given(st.lists(words, max_size=25))
def test_a_node_never_promises_what_a_guest_may_still_have(
    script: list[tuple[str, str, int, str]],
) -> None:
    """``has``: the most that each guest can have of the machine, from its start on."""
    ledger, judge = node(5000, BALLOON)
    pods: dict[str, Object] = {}
    has: dict[str, int] = {}
    for generation, (action, name, memory, technology) in enumerate(script, start=2):
        if action == "admit" and name not in pods:
            bounds = {"technology": technology} if technology else {}
            boot = {} if technology == "balloon" or not technology else {"boot": "512Mi"}
            pod = vm_pod(name, memory, **bounds, **boot)
            if judge.admit(pod, already_runs=False) == Admit():
                pods[name] = pod
                has[name] = memory if technology == "virtio-mem" else 2048
        elif action == "ask" and name in pods:
            pods[name] = asks(pods[name], memory, generation)
            judge.consider(pods[name])
            has[name] = max(has[name], promised(known(ledger, name)))
        elif action == "apply" and name in pods:
            entry = known(ledger, name)
            ledger.record(entry.applied(entry.allocated))
            has[name] = promised(entry)
            judge.retry()
            for other in pods:
                has[other] = max(has[other], promised(known(ledger, other)))
        elif action == "remove" and pods.pop(name, None):
            judge.forget(name)
            ledger.release(name)
            del has[name]
        real = sum(mebibytes + 256 for mebibytes in has.values())
        assert real * MEBIBYTE <= (ledger.used.memory_bytes or 0) <= 5000 * MEBIBYTE


def promised(entry: Allocation) -> int:
    return memory_bytes(entry.size("vm")["limits"]["memory"]) // MEBIBYTE


def test_a_size_has_its_cells() -> None:
    """Cells go with the memory, and count where sizes are compared."""
    numa = {"cells": [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "256Mi"}]}
    pod = vm_pod()
    pod = evolve(pod, ("spec", "virtualMachine", "numa"), numa)
    pod = evolve(pod, ("status",), {})
    ledger, judge = node(4096)
    assert judge.admit(bind_allocated(pod), already_runs=False) == Admit()
    entry = known(ledger)
    (size,) = entry.allocated
    moved = {**size, "cells": [{"id": 0, "memory": "128Mi"}, {"id": 1, "memory": "384Mi"}]}
    changed = entry.accepted([moved], 2)
    assert not changed.settled
    assert changed.applied((moved,)).settled
    other = {**moved, "limits": {"cpu": "2", "memory": "512Mi"}}
    (only_cpu,) = with_resource([size], [other], ResourceName.CPU)
    (only_memory,) = with_resource([size], [other], ResourceName.MEMORY)
    assert (only_cpu["cells"], only_cpu["limits"]["cpu"]) == (size["cells"], "2")
    assert (only_memory["cells"], only_memory["limits"]["cpu"]) == (moved["cells"], "1")
