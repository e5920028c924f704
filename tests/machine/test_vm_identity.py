"""A VM of an earlier version, whose domain was named by its pod, is found and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from livesize.runtime.libvirt import identity
from livesize.runtime.libvirt import lifecycle as driver
from livesize.runtime.libvirt.model import DomainModel
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from vms.real import BOOT_SECONDS, MIB, UID, check_tools, clear, have, place, pod_config, vm_config
from vms.saved import hears_agent

pytestmark = pytest.mark.vms


def domain_names(runtime: LibvirtRuntime) -> list[str]:
    assert runtime._environment is not None
    return [one.name() for one in runtime._environment.connection.connection().listAllDomains()]


async def test_the_vm_of_an_earlier_version_is_adopted(
    tmp_path: Path, not_run: Callable[[str], NoReturn], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_tools(not_run)
    where = place(tmp_path)
    compose = driver.compose_domain

    def composed(*arguments: Any) -> DomainModel:
        return msgspec.structs.replace(compose(*arguments), pod_uid="")

    runtime = where.runtime()
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(identity, "domain_name", lambda uid: f"pod-{uid}")
            earlier.setattr(driver, "compose_domain", composed)
            await runtime.open()
            await runtime.create_pod(pod_config())
            started = await runtime.start_container(vm_config())
            before = await runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
            assert domain_names(runtime) == [f"pod-{UID}"]
            await runtime.close()
        runtime = where.runtime()
        await runtime.open()
        found = runtime.pod(UID)
        assert found is not None
        assert [one.pid for one in found.containers] == [started.pid]
        await runtime.change_vm(UID, have(768 * MIB))
        view = await runtime.wait_vm(UID, lambda now: now.plugged_memory_bytes == 768 * MIB, 60)
        assert view.plugged_memory_bytes == 768 * MIB
        assert before.guest is not None
        assert view.guest is not None
        assert view.guest.boot_id == before.guest.boot_id
        await runtime.stop_container(UID, "vm", 0)
        await runtime.start_container(vm_config(attempt=1))
        assert domain_names(runtime) == [f"vm-{UID}"]
    finally:
        await clear(runtime)
