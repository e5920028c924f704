"""To measure or to remove millions of files takes long; nobody who starts waits for it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from livesize.runtime.volumes import folders
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import EmptyFolder


async def test_measuring_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    volumes = FolderVolumes(tmp_path, FakeMounts())
    monkeypatch.setattr(folders, "_used_bytes", lambda _: over.wait(10))
    monkeypatch.setattr(folders, "remove_tree", lambda *_: over.wait(10))
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            await volumes.prepare(f"u{number}", EmptyFolder("cache"))
            tasks.create_task(volumes.used_bytes(f"u{number}", "cache"))
            tasks.create_task(volumes.remove(f"u{number}"))
        await asyncio.sleep(0.05)
        try:
            async with asyncio.timeout(2):
                await volumes.prepare("starts", EmptyFolder("cache"))
        finally:
            over.set()
