"""Folders that outlive pods: kept, handed to groups, removed, and nothing outside ever touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import ClaimFolder, VolumeError

UID = "uid-1"


@pytest.fixture
def mounts() -> FakeMounts:
    return FakeMounts()


@pytest.fixture
def volumes(tmp_path: Path, mounts: FakeMounts) -> FolderVolumes:
    return FolderVolumes(tmp_path / "volumes", mounts, tmp_path / "kept")


@pytest.fixture(autouse=True)
def _nothing_deep_is_left(tmp_path: Path) -> Iterator[None]:
    """pytest could not remove what a test that fails leaves."""
    yield
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


async def test_it_stays_when_its_pods_go(volumes: FolderVolumes, tmp_path: Path) -> None:
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-1")))
    assert path == tmp_path / "kept/pvc-1" == Path(volumes.claims_root) / "pvc-1"
    assert path.stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    (path / "file").write_text("kept")
    await volumes.let_go(UID)
    await volumes.remove(UID)
    assert await volumes.prepare("uid-2", ClaimFolder("other", "pvc-1")) == str(path)
    assert (path / "file").read_text() == "kept"
    assert volumes.pods() == ()


async def test_a_group_gets_all_of_it_and_links_stay_as_they_are(
    volumes: FolderVolumes, tmp_path: Path
) -> None:
    group, outside = os.getgid(), tmp_path / "outside"
    outside.write_text("mine")
    outside.chmod(0o600)
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-1")))
    (path / "deep").mkdir(mode=0o700)
    (path / "deep/file").touch(mode=0o600)
    (path / "link").symlink_to(outside)
    os.mkfifo(path / "pipe")
    if os.geteuid() == 0:
        group += 4321
    else:
        path.chmod(0o755)
        os.chown(path, -1, max(os.getgroups()))
    await volumes.prepare(UID, ClaimFolder("data", "pvc-1", group))
    if path.stat().st_mode & 0o2000:  # it was not the group's before
        assert (path / "deep").stat().st_mode & 0o2070 == 0o2070
        assert (path / "deep/file").stat().st_mode & 0o777 == 0o660
        assert (path / "deep/file").stat().st_gid == path.stat().st_gid == group
    assert outside.stat().st_mode & 0o777 == 0o600


async def test_removed_with_all_that_is_in_it_and_nothing_else(
    volumes: FolderVolumes, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-1")))
    (path / "deep").mkdir()
    (path / "deep/link").symlink_to(outside)
    (path / "up").symlink_to("..")
    other = Path(await volumes.prepare(UID, ClaimFolder("other", "pvc-2")))
    await volumes.remove_claim_folder("pvc-1")
    await volumes.remove_claim_folder("pvc-1")
    assert not path.exists()
    assert other.exists()
    assert (outside / "file").read_text() == "mine"
    assert {one.name for one in (tmp_path / "kept").iterdir()} == {"pvc-2"}


async def test_what_was_cut_off_is_finished(volumes: FolderVolumes, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / ".making-pvc-1").mkdir(parents=True)
    (kept / ".going-pvc-2/half").mkdir(parents=True)
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-1")))
    assert path.stat().st_mode & 0o777 == 0o777
    await volumes.remove_claim_folder("pvc-2")
    again = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-2")))
    (kept / ".going-pvc-2/half").mkdir(parents=True)
    await volumes.remove_claim_folder("pvc-2")
    assert not again.exists()
    assert [one.name for one in kept.iterdir()] == ["pvc-1"]


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "../volumes"])
async def test_a_name_is_one_part_of_a_path(volumes: FolderVolumes, name: str) -> None:
    with pytest.raises(RuntimeCallError):
        await volumes.remove_claim_folder(name)
    with pytest.raises(RuntimeCallError):
        await volumes.prepare(UID, ClaimFolder("data", name))


async def test_links_and_mounts_are_refused(
    volumes: FolderVolumes, mounts: FakeMounts, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/pvc-1").symlink_to(outside)
    for call in (
        volumes.remove_claim_folder("pvc-1"),
        volumes.prepare(UID, ClaimFolder("d", "pvc-1")),
    ):
        with pytest.raises(VolumeError, match="is no folder"):
            await call
    assert outside.exists()
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-2")))
    mounts.points[path / "disk"] = 0
    with pytest.raises(VolumeError, match="something is mounted"):
        await volumes.remove_claim_folder("pvc-2")
    assert path.exists()


async def test_folders_too_deep_to_be_walked_are_said_and_removed(volumes: FolderVolumes) -> None:
    path = Path(await volumes.prepare(UID, ClaimFolder("data", "pvc-1")))
    current = os.open(path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    if os.geteuid() == 0:
        with pytest.raises(VolumeError, match="more than 500 deep"):
            await volumes.prepare(UID, ClaimFolder("data", "pvc-1", group=os.getgid() + 432))
    await volumes.remove_claim_folder("pvc-1")
    assert not path.exists()
