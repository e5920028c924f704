"""What is in a guest: files of this machine with their links and libraries, composed and cached."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from guest.host_files import host_entries, program_entries, shared_libraries
from livesize.guest_images.cpio import CpioFile, CpioLink, Entry, HostFile
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.image import (
    MODULES_FOLDER,
    GuestRecipe,
    build_image,
    compose,
    merge_usr,
)
from livesize.guest_images.kernel import GuestKernel


@pytest.fixture
def kernel(tmp_path: Path) -> GuestKernel:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "virtio.ko").write_bytes(b"\0depends=\0")
    return GuestKernel("6.1", tmp_path / "vmlinuz", modules)


def test_a_file_is_taken_with_every_link_that_leads_to_it(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "real/deep").mkdir(parents=True)
    (folder / "real/file").write_text("x")
    (folder / "real/deep/up").symlink_to("../file")
    (folder / "folder").symlink_to("real/deep")
    (folder / "start").symlink_to(folder / "folder/up")
    entries = host_entries([folder / "start"])
    inside = {
        Path("/", name).relative_to(folder): entry
        for name, entry in entries.items()
        if Path("/", name).is_relative_to(folder)
    }
    assert inside == {
        Path("start"): CpioLink(str(folder / "folder/up")),
        Path("folder"): CpioLink("real/deep"),
        Path("real/deep/up"): CpioLink("../file"),
        Path("real/file"): HostFile(folder / "real/file"),
    }


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(GuestImageError, match="too many symbolic links"):
        host_entries([tmp_path / "a"])


def test_a_program_comes_with_its_libraries_and_its_loader() -> None:
    libraries = [path.name for path in shared_libraries([Path(sys.executable)])]
    assert any(name.startswith("libc.so") for name in libraries)
    assert any(name.startswith("ld-linux") for name in libraries)
    entries = program_entries(["sh"])
    names = {name.rpartition("/")[2] for name in entries}
    assert "sh" in names
    assert any(name.startswith("libc.so") for name in names)


def test_a_program_that_is_not_here_is_named() -> None:
    with pytest.raises(GuestImageError, match="no-such-program"):
        program_entries(["no-such-program"])


def test_old_places_of_programs_are_those_below_usr() -> None:
    shell, other = CpioFile(b"sh"), CpioFile(b"x")
    entries: dict[str, Entry] = {"bin": CpioLink("usr/bin"), "bin/sh": shell, "binary/x": other}
    assert merge_usr(entries) == {"usr/bin/sh": shell, "binary/x": other}


def test_a_guest_has_an_init_busybox_and_its_modules(kernel: GuestKernel) -> None:
    recipe = GuestRecipe("test", "echo hello\n", ("virtio",), {"bin/sh": CpioFile(b"own shell")})
    entries = compose(recipe, kernel)
    init = entries["init"]
    assert isinstance(init, CpioFile)
    assert init.mode == 0o755
    assert init.content.decode().splitlines()[-2:] == ["echo hello", "poweroff -f"]
    assert entries["usr/bin/mount"] == CpioLink("busybox")
    assert entries["usr/bin/sh"] == CpioFile(b"own shell")  # what the recipe names wins
    assert entries["bin"] == CpioLink("usr/bin")
    assert entries[f"{MODULES_FOLDER}/000-virtio.ko"] == CpioFile(b"\0depends=\0")


def test_an_image_is_written_once_for_each_content(kernel: GuestKernel, tmp_path: Path) -> None:
    first = build_image(GuestRecipe("test", "true"), kernel, tmp_path)
    written = first.stat().st_ino
    assert build_image(GuestRecipe("test", "true"), kernel, tmp_path) == first
    assert first.stat().st_ino == written
    assert build_image(GuestRecipe("test", "false"), kernel, tmp_path) != first


def test_the_images_used_last_are_kept(kernel: GuestKernel, tmp_path: Path) -> None:
    paths = []
    for number in range(5):
        paths.append(build_image(GuestRecipe("test", f"exit {number}"), kernel, tmp_path))
        os.utime(paths[-1], (number, number))
    assert [path.exists() for path in paths] == [False, False, True, True, True]


def test_an_image_that_cannot_be_made_leaves_nothing(kernel: GuestKernel, tmp_path: Path) -> None:
    recipe = GuestRecipe("test", "true", (), {"x": HostFile(tmp_path / "missing")})
    with pytest.raises(FileNotFoundError):
        build_image(recipe, kernel, tmp_path)
    assert list(tmp_path.rglob("new-*")) == []
