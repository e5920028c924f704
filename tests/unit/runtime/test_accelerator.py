"""KVM is believed only when it works as fast as KVM does."""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.runtime import accelerator
from livesize.runtime.accelerator import (
    FoundAccelerator,
    LoopRun,
    find_accelerator,
    judge,
    observe_accelerator,
)
from livesize.runtime.vm import Accelerator

DEVICE = Path("/dev/kvm")


@pytest.mark.parametrize(
    ("rule", "run", "expected"),
    [
        ("real: 1,000,000 steps in 0.8 ms", LoopRun(seconds=0.0008), Accelerator.KVM),
        ("real", LoopRun(seconds=0.020), Accelerator.KVM),
        ("emulates by itself", LoopRun(seconds=0.0201), Accelerator.TCG),
        ("575.0 ms is too slow", LoopRun(seconds=0.575), Accelerator.TCG),
        ("does not work: no such ioctl", LoopRun(error="no such ioctl"), Accelerator.TCG),
    ],
)
def test_the_time_of_the_loop_decides(rule: str, run: LoopRun, expected: Accelerator) -> None:
    found = judge(DEVICE, run)
    assert found.accelerator is expected
    assert rule in found.why


def test_no_device_is_emulation(tmp_path: Path) -> None:
    found = observe_accelerator(tmp_path / "kvm")
    assert found == FoundAccelerator(Accelerator.TCG, f"there is no {tmp_path / 'kvm'}")


def test_a_device_that_is_no_kvm_is_emulation() -> None:
    found = observe_accelerator(Path("/dev/null"))
    assert found.accelerator is Accelerator.TCG
    assert "does not work: Inappropriate ioctl" in found.why


def test_it_is_found_out_once_for_each_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "kvm"
    first = find_accelerator(tmp_path / "cache", device)
    device.write_text("now it is there")
    assert find_accelerator(tmp_path / "cache", device) == first
    monkeypatch.setattr(accelerator, "boot_id", lambda: "another boot")
    assert find_accelerator(tmp_path / "cache", device) != first


def test_a_spoilt_cache_is_found_out_anew(tmp_path: Path) -> None:
    (tmp_path / "accelerator.json").write_text("{")
    assert find_accelerator(tmp_path, tmp_path / "kvm").accelerator is Accelerator.TCG
