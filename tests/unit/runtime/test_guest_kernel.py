"""The kernel for guests: found through apt, unpacked once, kept by content."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import (
    Package,
    default_cache_dir,
    fetch_kernel,
    find_packages,
    parse_fields,
)

RELEASE = "6.1.0-9-cloud-amd64"
DEBIAN = {
    "linux-image-cloud-amd64": "Depends: linux-image-6.1.0-9-cloud-amd64 (= 6.1.9-1)\n",
    "linux-image-6.1.0-9-cloud-amd64": (
        "Version: 6.1.9-1\nDepends: kmod, linux-base (>= 4.3~) | other\nSHA256: aa\n"
    ),
}
UBUNTU = {
    "linux-image-virtual": "Depends: linux-image-6.8.0-9-generic, amd64-microcode | x\n",
    "linux-image-6.8.0-9-generic": (
        "Version: 6.8.0-9.9\nDepends: kmod, linux-modules-6.8.0-9-generic\nSHA256: bb\n"
    ),
    "linux-modules-6.8.0-9-generic": ("Version: 6.8.0-9.9\nDepends: wireless-regdb\nSHA256: cc\n"),
}


def packages_of(shown: dict[str, str]) -> tuple[Package, ...]:
    return find_packages(lambda name: parse_fields(shown[name]) if name in shown else None)


def test_debian_has_kernel_and_modules_in_one_package() -> None:
    assert packages_of(DEBIAN) == (Package("linux-image-6.1.0-9-cloud-amd64", "6.1.9-1", "aa"),)


def test_ubuntu_has_the_modules_in_a_package_of_their_own() -> None:
    assert [package.sha256 for package in packages_of(UBUNTU)] == ["bb", "cc"]


def test_an_apt_without_kernels_names_none() -> None:
    assert packages_of({}) == ()


def test_a_package_apt_names_but_does_not_have_is_an_error() -> None:
    shown = {name: text for name, text in UBUNTU.items() if "modules" not in name}
    with pytest.raises(GuestImageError, match="linux-modules-6"):
        packages_of(shown)


def test_only_the_first_paragraph_and_whole_lines_count() -> None:
    text = "Package: a\nDescription: b\n more: words\nVersion: 1:2\n\nPackage: c\n"
    assert parse_fields(text) == {"Package": "a", "Description": "b", "Version": "1:2"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/var/tmp/c", "/var/tmp/c/livesize/guest"), ("relative", None), ("", None)],
)
def test_the_cache_is_the_users(given: str, expected: str | None) -> None:
    fallback = Path.home() / ".cache/livesize/guest"
    found = default_cache_dir({"XDG_CACHE_HOME": given})
    assert found == (Path(expected) if expected else fallback)


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH whose apt knows one kernel; calls are noted in the file "calls"."""
    folder = tmp_path / "bin"
    folder.mkdir()
    archive = make_archive(tmp_path)
    for name, text in DEBIAN.items():
        (folder / f"{name}.txt").write_text(text)
    write_program(folder / "apt-cache", f'echo "$@" >>{folder}/calls; cat "{folder}/$3.txt"')
    write_program(folder / "apt-get", f'echo "$@" >>{folder}/calls; cp {archive} .')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def make_archive(tmp_path: Path) -> Path:
    content = tmp_path / "content"
    for name in ("DEBIAN/control", f"boot/vmlinuz-{RELEASE}", f"lib/modules/{RELEASE}/a.ko"):
        (content / name).parent.mkdir(parents=True)
        (content / name).write_text(name)
    (content / "DEBIAN/control").write_text(
        "Package: kernel\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: d\n"
    )
    archive = tmp_path / "kernel.deb"
    command = ["dpkg-deb", "--build", "-Znone", str(content), str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    return archive


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_kernel_is_downloaded_once_and_apt_asked_again_only_after_an_update(
    apt: Path, tmp_path: Path
) -> None:
    cache, lists = tmp_path / "cache", tmp_path / "lists"
    lists.mkdir()
    kernel = fetch_kernel(cache, lists)
    assert kernel.release == RELEASE
    assert kernel.image.read_text() == f"boot/vmlinuz-{RELEASE}"
    assert (kernel.modules / "a.ko").exists()
    calls = (apt / "calls").read_text()
    assert f"download -qq linux-image-{RELEASE}=6.1.9-1" in calls
    assert fetch_kernel(cache, lists) == kernel
    assert (apt / "calls").read_text() == calls
    os.utime(lists, (1, 1))
    assert fetch_kernel(cache, lists) == kernel
    asked = (apt / "calls").read_text().removeprefix(calls)
    assert "show" in asked
    assert "download" not in asked


def test_a_failed_download_says_so_and_leaves_nothing(apt: Path, tmp_path: Path) -> None:
    write_program(apt / "apt-get", "echo 'no network today' >&2; exit 100")
    with pytest.raises(GuestImageError, match="no network today"):
        fetch_kernel(tmp_path / "cache", tmp_path)
    assert list((tmp_path / "cache/kernels").iterdir()) == []


def test_without_apt_the_newest_kernel_of_the_cache_is_taken(
    apt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    kernel = fetch_kernel(tmp_path / "cache", lists)
    os.utime(lists, (1, 1))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch_kernel(tmp_path / "cache", lists) == kernel
    with pytest.raises(GuestImageError, match="apt-get update"):
        fetch_kernel(tmp_path / "empty", lists)
