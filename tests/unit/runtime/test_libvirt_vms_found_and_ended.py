"""VMs that an agent finds when it starts, or ends, whatever became of them meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import PodConfig
from livesize.runtime.libvirt import runtime as driver
from livesize.runtime.libvirt.lifecycle import VmLifecycle
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import VmFolders

POD = PodConfig("uid-1", "default", "db", KernelLimits(512, None, None), vm=True)


@pytest.mark.parametrize("left", [b"", b'{"uid": 19', b"\0\0"])
def test_a_file_that_the_power_cut_off_counts_as_not_written(tmp_path: Path, left: bytes) -> None:
    """It kept the agent from starting, with all its other pods."""
    folders = VmFolders(tmp_path)
    folder = folders.of("uid-1")
    folder.save_owner(VmOwner(7, 7))
    folder.save_pod(POD)
    assert (folder.pod(), folders.owners()) == (POD, [VmOwner(7, 7)])
    for name in ("pod.json", "owner.json", "record.json", "started.json", "outcome.json"):
        (folder.path / name).write_bytes(left)
    assert (folder.pod(), folder.owner(), folders.owners()) == (None, None, [])
    assert (folder.record(), folder.started(), folder.outcome()) == (None, None, None)


def test_a_domain_that_goes_while_it_is_looked_at_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class LibvirtError(Exception):
        pass

    class Vanished:
        def UUIDString(self) -> str:  # noqa: N802 - libvirt's word
            return "of another"

        def XMLDesc(self) -> str:  # noqa: N802 - libvirt's word
            raise LibvirtError

    monkeypatch.setattr(driver, "load_libvirt", lambda: SimpleNamespace(libvirtError=LibvirtError))
    connection = SimpleNamespace(listAllDomains=lambda: [Vanished()])
    runtime = object.__new__(driver.LibvirtRuntime)
    opened = SimpleNamespace(connection=lambda: connection)
    environment = SimpleNamespace(connection=opened)
    monkeypatch.setattr(runtime, "_environment", environment, raising=False)
    monkeypatch.setattr(runtime, "_pods", {}, raising=False)
    runtime._forget_strange_domains()


async def test_a_vm_whose_agent_hangs_is_ended_when_its_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question to its agent holds up all others to this VM, for longer than a grace may be."""
    vm = object.__new__(VmLifecycle)
    vm.ended = asyncio.Event()
    removed: list[object] = []

    async def hang(_: VmLifecycle) -> None:
        await asyncio.Event().wait()

    async def remove(group: object) -> None:
        removed.append(group)

    monkeypatch.setattr(VmLifecycle, "is_running", property(lambda self: not self.ended.is_set()))
    monkeypatch.setattr(VmLifecycle, "_shut_down", hang)
    monkeypatch.setattr(VmLifecycle, "_kill", lambda self: self.ended.set())
    environment = SimpleNamespace(groups=SimpleNamespace(remove=remove))
    monkeypatch.setattr(vm, "_environment", environment, raising=False)
    monkeypatch.setattr(vm, "group", "its group", raising=False)
    await vm.stop(0.01)
    assert removed == ["its group"]
