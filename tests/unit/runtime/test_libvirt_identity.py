"""A VM's domain is found by its UUID, and touched only where it is this pod's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from livesize.runtime.interface import GoneError, RuntimeCallError
from livesize.runtime.libvirt import domain as driver
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.guest_bounds import GuestLimits
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import DomainKernel, DomainModel, parse, render
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_config import VmConfig
from virtual_time import CLOCK

MIB = 1024 * 1024
OURS = DomainIdentity("vm-one", "pod-b")
VM = VmConfig(1, 4, 512 * MIB, 512 * MIB, 512 * MIB, kernel="k")
MODEL = compose_domain(OURS, VM, DomainKernel("k"), "log", Accelerator.TCG)


class LibvirtError(Exception):
    def get_error_message(self) -> str:
        return "no domain"

    def get_error_code(self) -> int:
        return 42


LIBVIRT = SimpleNamespace(
    libvirtError=LibvirtError,
    VIR_ERR_NO_DOMAIN=42,
    VIR_ERR_OPERATION_INVALID=55,
    VIR_DOMAIN_UNDEFINE_MANAGED_SAVE=1,
    VIR_DOMAIN_UNDEFINE_NVRAM=4,
    VIR_DOMAIN_START_PAUSED=1,
)


class KnownDomain:
    """As much of libvirt's domain as a start and an end need."""

    def __init__(self, connection: Connection, model: DomainModel, *, active: bool) -> None:
        self.model = model
        self.active = active
        self._connection = connection

    def UUIDString(self) -> str:  # noqa: N802 — libvirt's own name
        return self.model.uuid

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 — libvirt's own name
        return render(self.model)

    def name(self) -> str:
        return self.model.name

    def isActive(self) -> bool:  # noqa: N802 — libvirt's own name
        return self.active

    def destroy(self) -> None:
        self.active = False

    def createWithFlags(self, _flags: int) -> None:  # noqa: N802 — libvirt's own name
        self.active = True

    def undefineFlags(self, _flags: int) -> None:  # noqa: N802 — libvirt's own name
        self._connection.domains.remove(self)


class Connection:
    """A libvirtd that refuses a second name for a UUID, as the real one does."""

    def __init__(self) -> None:
        self.domains: list[KnownDomain] = []

    def add(self, model: DomainModel, *, active: bool) -> None:
        self.domains.append(KnownDomain(self, model, active=active))

    def isAlive(self) -> int:  # noqa: N802 — libvirt's own name
        return 1

    def listAllDomains(self) -> list[KnownDomain]:  # noqa: N802 — libvirt's own name
        return list(self.domains)

    def lookupByUUIDString(self, uuid: str) -> KnownDomain:  # noqa: N802 — libvirt's own name
        for domain in self.domains:
            if domain.UUIDString() == uuid:
                return domain
        raise LibvirtError

    def defineXML(self, xml: str) -> None:  # noqa: N802 — libvirt's own name
        model = parse(xml)
        known = [one for one in self.domains if one.UUIDString() == model.uuid]
        if any(one.name() != model.name for one in known):
            raise LibvirtError
        for one in known:
            one.model = model
        if not known:
            self.add(model, active=False)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setattr(driver, "load_libvirt", lambda: LIBVIRT)
    return Connection()


def domain_of(connection: Connection) -> Domain:
    link: Any = SimpleNamespace(connection=lambda: connection)
    return Domain(link, OURS, GuestLimits(4, 512 * MIB), CLOCK)


def earlier() -> DomainModel:
    """As versions before this one made it for a pod with the VM's uid."""
    return msgspec.structs.replace(MODEL, name=f"pod-{OURS.pod_uid}", pod_uid="")


@pytest.mark.parametrize("active", [True, False])
def test_a_vm_of_an_earlier_version_is_found_and_started_by_its_own_name(
    connection: Connection, *, active: bool
) -> None:
    connection.add(earlier(), active=active)
    domain_of(connection).start_paused(MODEL)
    (known,) = connection.domains
    assert (known.name(), known.active) == ("vm-vm-one", True)
    domain_of(connection).forget()
    assert connection.domains == []


def test_another_pods_definition_is_replaced(connection: Connection) -> None:
    """What a migration has left behind when the VM comes back."""
    connection.add(msgspec.structs.replace(MODEL, pod_uid="pod-a"), active=False)
    domain_of(connection).start_paused(MODEL)
    (known,) = connection.domains
    assert (known.model.pod_uid, known.active) == ("pod-b", True)


def test_another_pods_guest_is_neither_ended_nor_doubled(connection: Connection) -> None:
    connection.add(msgspec.structs.replace(MODEL, pod_uid="pod-a"), active=True)
    domain = domain_of(connection)
    domain.destroy()
    domain.forget()
    with pytest.raises(GoneError, match="pod pod-a runs it now"):
        domain.plugged_vcpus()
    with pytest.raises(RuntimeCallError, match="runs on this machine already, as pod pod-a's"):
        domain.start_paused(MODEL)
    (known,) = connection.domains
    assert (known.model.pod_uid, known.active) == ("pod-a", True)
