"""Volumes in a folder: what is kept, what is replaced at once, and what no link leads out of."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import (
    EmptyFolder,
    FileTree,
    HostPath,
    MemoryFolder,
    VolumeError,
    VolumeFile,
)

UID = "uid-1"
MIB = 1024 * 1024


@pytest.fixture
def volumes(tmp_path: Path) -> FolderVolumes:
    return FolderVolumes(tmp_path / "volumes", FakeMounts())


def tree(**files: str) -> FileTree:
    made = (VolumeFile(path, text.encode(), 0o640) for path, text in files.items())
    return FileTree("config", tuple(made))


async def test_an_empty_folder_keeps_what_is_in_it_until_the_pod_is_gone(
    volumes: FolderVolumes,
) -> None:
    path = Path(await volumes.prepare(UID, EmptyFolder("scratch")))
    assert path.stat().st_mode & 0o777 == 0o777
    (path / "file").write_text("kept")
    assert await volumes.prepare(UID, EmptyFolder("scratch")) == str(path)
    await volumes.let_go(UID)
    assert (path / "file").read_text() == "kept"
    assert volumes.pods() == (UID,)
    await volumes.remove(UID)
    assert not path.exists()
    assert volumes.pods() == ()


async def test_files_change_at_one_instant_and_old_ones_go(volumes: FolderVolumes) -> None:
    path = Path(await volumes.prepare(UID, tree(a="1", b="1")))
    assert (path / "a").read_text() == "1"
    assert (path / "a").stat().st_mode & 0o777 == 0o640
    await volumes.prepare(UID, tree(a="2", c="2"))
    names = {one.name for one in path.iterdir()}
    assert {name for name in names if not name.startswith("..")} == {"a", "c"}
    assert {(path / name).read_text() for name in "ac"} == {"2"}
    assert len(names) == 4  # and ..data, and what it leads to


async def test_what_is_secret_lies_in_memory(tmp_path: Path) -> None:
    mounts = FakeMounts()
    volumes = FolderVolumes(tmp_path / "volumes", mounts)
    secret = msgspec.structs.replace(tree(pin="42"), secret=True)
    path = Path(await volumes.prepare(UID, secret))
    assert path in mounts.points
    assert await volumes.prepare(UID, secret) == str(path)
    assert (path / "pin").read_text() == "42"
    await volumes.remove(UID)
    assert not mounts.points
    plain = Path(await volumes.prepare(UID, tree(a="1")))
    assert plain not in mounts.points


async def test_files_that_are_there_are_not_touched(volumes: FolderVolumes) -> None:
    path = Path(await volumes.prepare(UID, tree(a="1")))
    first = (path / "a").stat()
    await volumes.prepare(UID, tree(a="1"))
    assert (path / "a").stat() == first


async def test_memory_keeps_its_size_and_refuses_to_hold_less_than_it_does(
    volumes: FolderVolumes,
) -> None:
    path = Path(await volumes.prepare(UID, MemoryFolder("cache", 8 * MIB)))
    await volumes.prepare(UID, MemoryFolder("cache", 16 * MIB))
    found = volumes.memory(UID, "cache")
    assert found is not None
    assert found.size_bytes == 8 * MIB
    (path / "held").write_bytes(bytes(2 * MIB))
    with pytest.raises(VolumeError, match=r"below what it holds \(2097152\), 1048576 bytes to go"):
        await volumes.resize(UID, "cache", MIB)
    await volumes.clear(UID, "cache")
    await volumes.resize(UID, "cache", MIB)
    await volumes.let_go(UID)
    assert volumes.memory(UID, "cache") is None


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("", "does not exist"), ("Directory", "does not exist"), ("File", "does not exist")],
)
async def test_a_path_of_the_machine_has_to_be_there(
    volumes: FolderVolumes, tmp_path: Path, kind: str, problem: str
) -> None:
    with pytest.raises(VolumeError, match=problem):
        await volumes.prepare(UID, HostPath("host", str(tmp_path / "none"), kind))


async def test_a_path_of_the_machine_is_made_where_asked_and_never_removed(
    volumes: FolderVolumes, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    await volumes.prepare(UID, HostPath("host", str(folder), "DirectoryOrCreate"))
    assert folder.is_dir()
    with pytest.raises(VolumeError, match="is no File"):
        await volumes.prepare(UID, HostPath("host", str(folder), "File"))
    await volumes.remove(UID)
    assert folder.is_dir()


async def test_no_link_in_a_volume_leads_out_of_it(volumes: FolderVolumes, tmp_path: Path) -> None:
    path = Path(await volumes.prepare(UID, EmptyFolder("scratch")))
    (path / "out").symlink_to(tmp_path)
    (path / "file").touch()
    for inside in ("out", "out/deeper", "file/deeper"):
        with pytest.raises(VolumeError, match="leads over a link or a file"):
            await volumes.prepare_part(UID, "app-0", str(path), inside)
    part = await volumes.prepare_part(UID, "app-0", str(path), "new/folder")
    assert (path / "new" / "folder").is_dir()
    assert part.endswith("/parts/app-0")


async def test_a_file_is_changed_in_place(volumes: FolderVolumes) -> None:
    """A running container has the very file."""
    path = Path(await volumes.prepare_file(UID, "etc-hosts", b"a longer text", 0o644))
    with path.open("rb") as seen:
        await volumes.prepare_file(UID, "etc-hosts", b"shorter", 0o644)
        assert seen.read() == b"shorter"
    assert path.stat().st_mode & 0o777 == 0o644


async def test_a_file_that_a_container_has_blown_up_is_written_anew_without_being_read(
    volumes: FolderVolumes,
) -> None:
    """Its root may write to its own /etc/hosts: a terabyte of nothing once went through the agent's
    memory at the next start."""
    path = Path(await volumes.prepare_file(UID, "etc-hosts", b"127.0.0.1 localhost\n", 0o644))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    await volumes.prepare_file(UID, "etc-hosts", b"127.0.0.1 localhost\n", 0o644)
    assert path.stat().st_size == len(b"127.0.0.1 localhost\n")
    assert path.read_bytes() == b"127.0.0.1 localhost\n"
