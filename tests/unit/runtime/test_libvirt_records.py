"""What an agent finds of its VMs when it starts, whatever became of it meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import PodConfig
from livesize.runtime.libvirt import runtime as driver
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import Folders

POD = PodConfig("uid-1", "default", "db", KernelLimits(512, None, None), vm=True)


@pytest.mark.parametrize("left", [b"", b'{"uid": 19', b"\0\0"])
def test_a_file_that_the_power_cut_off_counts_as_not_written(tmp_path: Path, left: bytes) -> None:
    """It kept the agent from starting, with all its other pods."""
    folders = Folders(tmp_path)
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
        def name(self) -> str:
            return "livesize-other"

        def XMLDesc(self) -> str:  # noqa: N802 - libvirt's word
            raise LibvirtError

    monkeypatch.setattr(driver, "load_libvirt", lambda: SimpleNamespace(libvirtError=LibvirtError))
    connection = SimpleNamespace(listAllDomains=lambda: [Vanished()])
    runtime = object.__new__(driver.LibvirtRuntime)
    link = SimpleNamespace(connection=lambda: connection)
    monkeypatch.setattr(runtime, "_surroundings", SimpleNamespace(link=link), raising=False)
    monkeypatch.setattr(runtime, "_pods", {}, raising=False)
    runtime._forget_strange_domains()
