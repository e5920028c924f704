"""A VM belongs to its node's uid: it says so, and goes with what its dead data directory left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from leaks import processes_of
from livesize.runtime.process.processes import read_start_ticks
from system.up import LIVESIZE
from system.vm import running_vm

pytestmark = [pytest.mark.vms, pytest.mark.matrix]


def clean(*words: str) -> str:
    done = subprocess.run(
        [LIVESIZE, "clean", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_vm_of_a_dead_directory_is_cleaned_away_and_starts_again_with_it(tmp_path: Path) -> None:
    with running_vm(tmp_path, "1", "512Mi") as vm:
        uid = json.loads((vm.up.directory / "agent/node.json").read_text())["uid"]
        assert vm.xml().findtext("title") == f"livesize node {uid}"
        qemu = int(vm.status["pid"])
        vm.up.kill()
        shown = clean("--node-name", vm.up.node)
        assert f"  process        {qemu} " in shown
        assert "libvirtd" in shown
        assert read_start_ticks(qemu) is not None
        clean("--node-name", vm.up.node, "--yes")
        assert read_start_ticks(qemu) is None
        left = [vm.up.node]
        vm.up.wait_until(
            lambda: not processes_of(vm.up.directory, left), "the control plane has ended too"
        )
        assert not list(Path("/sys/fs/cgroup").glob(f"*/livesize/{vm.up.node}.*"))
        vm.up.start()
        vm.wait_ready(restarts=1)
