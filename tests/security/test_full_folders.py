"""A workload that fills its folders neither keeps its pod from going nor the agent from working."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.runtime.interface import Mount
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import EmptyFolder
from livesize.runtime.volumes.mounts import KernelMounts
from system.process_pod import UID, config, process_pod, seen

pytestmark = pytest.mark.security

DEPTH = 1500


@pytest.fixture(autouse=True)
def _nothing_deep_is_left(tmp_path: Path) -> Iterator[None]:
    """pytest could not remove what a test that fails leaves."""
    yield
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def nest(folder: Path) -> None:
    """As a workload does it that keeps no path: folder in folder, each with a file."""
    current = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("three", dir_fd=current)
        below = os.open("three", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)


async def test_folders_of_any_depth_go_with_their_pod(tmp_path: Path, root_group: str) -> None:
    volumes = FolderVolumes(tmp_path / "volumes", KernelMounts())
    source = await volumes.prepare(UID, EmptyFolder("scratch"))
    async with process_pod(tmp_path, root_group) as runtime:
        mounts = (Mount(source, "/scratch"),)
        await runtime.start_container(config("sleep 100", mounts=mounts))
        root = Path(f"/proc/{seen(runtime).pid}/root")
        nest(root / "scratch")
        nest(root / "tmp")
    await volumes.remove(UID)
    assert not (tmp_path / "volumes" / UID).exists()
    state = tmp_path / "state"
    assert list((state / "pods").iterdir()) == []
    async with process_pod(tmp_path, root_group):  # what was left in the trash
        async with asyncio.timeout(60):
            while any((state / "trash").iterdir()):
                await asyncio.sleep(0.05)
