"""A VM with a balloon counts with all that its guest has not given back (decisions 46)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.accounting import charge, footprint, requests_of
from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, lookup
from livesize.api.quantity import format_memory
from livesize.api.resize_state import bind_allocated
from livesize.api.vm_size import MEBIBYTE
from livesize.scheduler.snapshot import pod_view


def vm_pod(memory: int = 512, *, told: str | None = None, **bounds: Any) -> Object:
    size = {"cpu": "1", "memory": f"{memory}Mi"}
    vm = {
        "kernel": {"image": "guest"},
        "resources": {"limits": size},
        "memory": {"max": "2Gi", **bounds},
    }
    pod = default_object(PODS, {"metadata": {"name": "vm1"}, "spec": {"virtualMachine": vm}})
    status = {"memory": {"technology": told}} if told else {}
    return evolve(pod, ("status", "virtualMachineStatus"), status)


def with_plugged(pod: Object, mebibytes: int) -> Object:
    path = ("status", "virtualMachineStatus", "guest", "memoryPlugged")
    return evolve(pod, path, f"{mebibytes}Mi")


def kept(pod: Object) -> int:
    overhead = lookup(pod, "spec", "overhead", "memory")
    return (footprint(pod).memory_bytes or 0) // MEBIBYTE - int(overhead.removesuffix("Mi"))


def charged(pod: Object) -> tuple[int, int]:
    overhead = int(lookup(pod, "spec", "overhead", "memory").removesuffix("Mi"))
    sides = charge(pod)
    amounts = (sides.requests.memory_bytes or 0, sides.limits.memory_bytes or 0)
    return amounts[0] // MEBIBYTE - overhead, amounts[1] // MEBIBYTE - overhead


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(vm_pod(technology="balloon"), 2048, id="before anything is known"),
        pytest.param(with_plugged(vm_pod(technology="balloon"), 2048), 2048, id="it has booted"),
        pytest.param(with_plugged(vm_pod(technology="balloon"), 900), 900, id="on its way down"),
        pytest.param(with_plugged(vm_pod(technology="balloon"), 512), 512, id="fallen"),
        pytest.param(with_plugged(vm_pod(technology="balloon"), 500), 512, id="never below it"),
        pytest.param(with_plugged(vm_pod(told="balloon"), 1024), 1024, id="its node says so"),
        pytest.param(vm_pod(technology="virtio-mem"), 512, id="not where memory is plugged"),
        pytest.param(vm_pod(technology="auto"), 512, id="auto boots with its boot memory"),
        pytest.param(vm_pod(), 512, id="not where nobody says it"),
    ],
)
def test_what_a_node_keeps(pod: Object, expected: int) -> None:
    assert kept(pod) == kept(bind_allocated(pod)) == expected
    assert charged(pod) == (expected, expected)


def test_the_scheduler_looks_for_room_for_the_maximum() -> None:
    pod = vm_pod(technology="balloon")
    assert pod_view(pod).requests == footprint(pod)
    assert (footprint(pod).memory_bytes or 0) - (requests_of(pod).memory_bytes or 0) == (
        (2048 - 512) * MEBIBYTE
    )


def test_one_that_has_ended_counts_nothing() -> None:
    pod = evolve(vm_pod(technology="balloon"), ("status", "phase"), "Failed")
    assert footprint(pod).memory_bytes == 0
    assert charge(pod).requests.memory_bytes == 0


sizes = st.integers(256, 1024).map(lambda blocks: 2 * blocks)


@given(
    desired=sizes,
    allocated=sizes,
    plugged=st.none() | st.integers(0, 2048),
    phase=st.sampled_from(["None", "Requested", "Deferred", "InProgress", "Done"]),
)
def test_never_less_than_promised_nor_than_the_guest_has(
    desired: int, allocated: int, plugged: int | None, phase: str
) -> None:
    pod = vm_pod(desired, technology="balloon")
    size = {"cpu": "1", "memory": format_memory(allocated * MEBIBYTE)}
    state = {"phase": phase, "allocated": [{"name": "vm", "requests": size, "limits": size}]}
    pod = evolve(pod, ("status", "resizeState"), state)
    if plugged is not None:
        pod = with_plugged(pod, plugged)
    held = max(allocated, 2048 if plugged is None else plugged)
    assert kept(pod) == held
    limit = max(held, desired) if held > allocated else desired
    assert charged(pod) == (max(held, desired), limit), "of limits a promise is no part"
