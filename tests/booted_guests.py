"""Pytest plugin: one guest for each memory technology, booted once and shared by all tests.

``booted`` is a `livesize up` whose setting names the technology, with one VM whose manifest does
not; tests that use it run once for each. ``guest`` is that VM at its smallest, as a witness, and
another one where a test before has broken it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # they need libvirt
    from system.vm import Vm
    from system.vm_witness import Witness

TECHNOLOGIES = ("virtio-mem", "dimm", "balloon")
# No boot size: that is the technology's own affair (F75).
MEMORY = {"max": "1280Mi"}
C, X = 1, 512


def only(*technologies: str) -> pytest.MarkDecorator:
    """Those in each run, the others in long ones."""
    marks = {one: [] if one in technologies else [pytest.mark.matrix] for one in TECHNOLOGIES}
    params = [pytest.param(one, marks=marks[one]) for one in TECHNOLOGIES]
    return pytest.mark.parametrize("technology", params, indirect=True)


@pytest.fixture(scope="session", params=TECHNOLOGIES)
def technology(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def booted(technology: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    from system.vm import Vm, running_up_for_vms

    setting = ("--vm-memory-technology", technology)
    with running_up_for_vms(tmp_path_factory.mktemp("up"), *setting) as up:
        yield Vm(up)


@pytest.fixture
def guest(booted: Vm) -> Witness:
    from system.vm_witness import Witness

    if not (booted.pod.get("spec") and is_well(booted)):
        booted.delete()
        booted.create(str(C), f"{X}Mi", memory=MEMORY)
    booted.resize(cpu=str(C), memory=f"{X}Mi")
    return Witness(booted, X)


def is_well(vm: Any) -> bool:
    """It runs, and its agent answers."""
    import libvirt

    try:
        return bool(vm.status.get("state") == "Running" and vm.boot_id())
    except libvirt.libvirtError:
        return False
