"""The guest agent: which packages it needs, and which of their files go into the guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.guest_agent import agent_entries, find_packages
from livesize.guest_images.kernel import parse_fields

SHOWN = {
    "qemu-guest-agent": (
        "Version: 1:7.2\nDepends: libc6 (>= 2.34), libglib2.0-0, default-x | x, virtual-y\n"
        "SHA256: aa\n"
    ),
    "libc6": "Version: 2.36\nDepends: libgcc-s1\nSHA256: bb\n",
    "libgcc-s1": "Version: 12\nDepends: gcc-12-base:amd64 (= 12), libc6\nSHA256: cc\n",
    "gcc-12-base": "Version: 12\nSHA256: dd\n",
    "libglib2.0-0": "Version: 2.74\nDepends: libc6\nSHA256: ee\n",
    "default-x": "Version: 1\nSHA256: ff\n",
}


def test_everything_it_depends_on_is_found_once() -> None:
    found = find_packages(
        "qemu-guest-agent", lambda name: parse_fields(SHOWN[name]) if name in SHOWN else None
    )
    assert [package.name for package in found] == sorted(SHOWN)
    assert found[-1].sha256 == "aa"


def test_an_apt_that_does_not_know_it_names_none() -> None:
    assert find_packages("qemu-guest-agent", lambda name: None) == ()


def test_a_folder_without_the_agent_is_said(tmp_path: Path) -> None:
    with pytest.raises(GuestImageError, match="holds no usr/sbin/qemu-ga"):
        agent_entries(tmp_path)


def test_a_program_for_another_machine_is_said(tmp_path: Path) -> None:
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/qemu-ga").write_bytes(b"\x7fELF")
    with pytest.raises(GuestImageError, match="not a program for x86_64"):
        agent_entries(tmp_path)
