"""Disks with a stock Debian: where they come from, how they boot, and what is said where one cannot
be made. Building one takes minutes: tests/machine/test_vm_distribution.py boots it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from livesize.guest_images import apt_mirrors, bootstrap, disk_guest
from livesize.guest_images.apt_mirrors import Mirrors, Suite, find_suites, parse_mirrors
from livesize.guest_images.boot_disk import PARTITION_START, SECTOR_BYTES, boot_sectors, make_disk
from livesize.guest_images.bootstrap import BootstrapProgress
from livesize.guest_images.debian import DISTRIBUTIONS, guest_files, recipe_digest
from livesize.guest_images.disk_guest import DiskGuest, build_disk, install_disk
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.tools import run_tool
from livesize.main.commands.guest import guest

BOOKWORM, TRIXIE = DISTRIBUTIONS["debian12"], DISTRIBUTIONS["debian13"]
MIRROR, SECURITY = "http://mirror.example/debian", "http://mirror.example/security"
RELEASE = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nVersion: 12.9\n"
TARGETS = [
    f"Packages\tDebian\tDebian\t{MIRROR}/",
    f"Translations\tDebian\tDebian\t{MIRROR}/",
    f"Packages\tDebian\tDebian-Security\t{SECURITY}/",
    "Packages\tDebian Backports\tDebian Backports\thttp://backports.example/",
    "Packages\tUbuntu\tUbuntu\thttp://ubuntu.example/",
]


def quiet(_sentence: str) -> None:
    """No one listens."""


# Where it comes from


def test_mirrors_are_those_apt_is_set_to() -> None:
    assert parse_mirrors(TARGETS) == Mirrors((MIRROR,), (SECURITY,))
    assert parse_mirrors(TARGETS[3:]) == Mirrors()


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What stands at which address; the test fills it."""
    there: dict[str, str] = {}

    def fetch(mirror: str, suite: str) -> str:
        if (text := there.get(f"{mirror} {suite}")) is None:
            raise GuestImageError(f"{mirror} {suite}: 404")
        return text

    monkeypatch.setattr(apt_mirrors, "_fetch_release", fetch)
    monkeypatch.setattr(apt_mirrors, "find_mirrors", lambda: parse_mirrors(TARGETS))
    return there


def test_updates_are_taken_where_the_mirror_has_them(mirrors: dict[str, str]) -> None:
    mirrors |= {f"{MIRROR} trixie": RELEASE, f"{SECURITY} trixie-security": RELEASE}
    assert [one.line for one in find_suites("trixie", "Debian 13")] == [
        f"deb {MIRROR} trixie main",
        f"deb {SECURITY} trixie-security main",
    ]


def test_a_mirror_without_it_is_named_before_anything_is_built(mirrors: dict[str, str]) -> None:
    mirrors[f"{MIRROR} bookworm"] = RELEASE
    with pytest.raises(GuestImageError, match=r"apt sources have no Debian 13 \(trixie\).*404"):
        find_suites("trixie", "Debian 13")


def test_a_machine_of_another_distribution_is_told_what_to_add(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apt_mirrors, "find_mirrors", Mirrors)
    with pytest.raises(GuestImageError, match="apt sources have no Debian 12: they name no mirror"):
        find_suites("bookworm", "Debian 12")


# What is on it


def test_a_recipe_is_known_by_its_digest() -> None:
    fewer = msgspec.structs.replace(BOOKWORM, packages=BOOKWORM.packages[1:])
    assert len({recipe_digest(one) for one in (BOOKWORM, TRIXIE, fewer)}) == 3
    assert recipe_digest(BOOKWORM) == recipe_digest(BOOKWORM)


def test_the_kernel_gets_no_option_about_memory_or_cpus() -> None:
    files = guest_files("6.1.0-9", "0000-11")
    for name in ("boot/grub/grub.cfg", "etc/default/grub"):
        assert not any(word in files[name] for word in ("memhp", "movable", "maxcpus")), name
    assert "vmlinuz-6.1.0-9 root=UUID=0000-11 ro console=" in files["boot/grub/grub.cfg"]


def test_the_boot_loader_stands_before_the_partition() -> None:
    boot, core = b"\xeb" + bytes(511), b"core" * 300
    sectors = boot_sectors(boot, core, 8192)
    assert sectors[510:512] == b"\x55\xaa"
    active, kind, start, count = struct.unpack("<B3xB3xII", sectors[446:462])
    assert (active, kind, start, count) == (0x80, 0x83, PARTITION_START, 8192 - PARTITION_START)
    assert sectors[SECTOR_BYTES:] == core
    with pytest.raises(GuestImageError, match="of 1048064"):
        boot_sectors(boot, bytes(PARTITION_START * SECTOR_BYTES), 8192)
    with pytest.raises(GuestImageError, match=r"boot\.img has 3 bytes"):
        boot_sectors(b"abc", core, 8192)


def test_a_disk_has_the_tree_in_its_partition(tmp_path: Path) -> None:
    tree, disk = tmp_path / "tree", tmp_path / "disk"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/hostname").write_text("debian\n")
    with disk.open("wb") as file:
        file.truncate(32 * 1024**2)
    make_disk(tree, bytes(512), b"core", "5a0f3b1c-0000-4000-8000-000000000001", disk)
    partition = tmp_path / "partition"
    partition.write_bytes(disk.read_bytes()[PARTITION_START * SECTOR_BYTES :])
    told = run_tool(["debugfs", "-R", "cat /etc/hostname", str(partition)], tmp_path)
    assert told == "debian\n"
    assert disk.read_bytes()[SECTOR_BYTES:][:4] == b"core"


# How far it is


def test_progress_counts_packages() -> None:
    progress = BootstrapProgress()
    lines = [
        "Get:1 http://mirror.example InRelease [1 kB]\n",
        "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n",
        "Get:1 http://mirror.example a [1 kB]\n",
        "Get:2 http://mirror.example b [1 kB]\n",
        "Unpacking a (1) ...\n",
        "Setting up a (1) ...\n",
        "0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded.\n",
    ]
    news = [progress.sentence for line in lines if progress.heard(line)]
    assert news == [
        "apt fetches the lists of packages",
        "0 packages fetched and 0 set up, of 2 known by now",
        "1 packages fetched and 0 set up, of 2 known by now",
        "2 packages fetched and 0 set up, of 2 known by now",
        "2 packages fetched and 1 set up, of 2 known by now",
        "2 packages fetched and 1 set up, of 5 known by now",
    ]


def run_bootstrap(script: str, tmp_path: Path) -> None:
    keyring = tmp_path / "keyring"
    keyring.touch()
    with pytest.MonkeyPatch.context() as patch, (tmp_path / "lock").open("w") as lock:
        patch.setattr(bootstrap, "_KEYRING", keyring)
        patch.setattr(bootstrap, "_proxies", dict)
        suites = (Suite(MIRROR, "bookworm", RELEASE),)
        tool = ["sh", "-c", script]
        bootstrap.bootstrap(tool, BOOKWORM, suites, tmp_path / "tree", quiet, lock.fileno())


def test_a_failed_installation_says_what_apt_said(tmp_path: Path) -> None:
    script = "cat >/dev/null; echo I: x; echo 'E: You do not have enough free space'; exit 25"
    with pytest.raises(GuestImageError, match="ended with 25: E: You do not have enough free"):
        run_bootstrap(script, tmp_path)


def test_an_installation_that_takes_too_long_ends_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "BOOTSTRAP_SECONDS", 0.2)
    with pytest.raises(GuestImageError, match="took longer than"):
        run_bootstrap(f"echo $$ >{tmp_path}/pid; sleep 100 & wait", tmp_path)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what ran has let go of it


# Kept by content, whole or not at all


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, mirrors: dict[str, str]) -> list[str]:
    """Grows with each build, which only writes a file; its content is the number of it."""
    mirrors |= {f"{MIRROR} bookworm": RELEASE, f"{SECURITY} bookworm-security": RELEASE}
    done: list[str] = []

    def build(_: object, suites: tuple[Suite, ...], disks: Path, *_rest: object) -> object:
        done.append(" ".join(suite.name for suite in suites))
        name = f"{len(done):024}.qcow2"
        (disks / name).write_text(str(len(done)))
        return disk_guest._Built(name, "", "", 0, "6.1.0-9")

    monkeypatch.setattr(disk_guest, "_build", build)
    return done


def test_a_second_build_takes_what_is_there_and_asks_no_one(
    tmp_path: Path, builds: list[str], mirrors: dict[str, str]
) -> None:
    lists = tmp_path / "lists"
    first = build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists)
    mirrors.clear()
    again = build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists)
    assert (again.disk, again.is_new, again.note) == (first.disk, False, "")
    assert builds == ["bookworm bookworm-security"]


def test_a_new_point_release_is_built_and_an_unreachable_mirror_is_not_waited_for(
    tmp_path: Path, builds: list[str], mirrors: dict[str, str]
) -> None:
    lists = tmp_path / "lists"
    first = build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists)
    lists.mkdir()
    assert build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists).disk == first.disk
    os.utime(lists, ns=(1, 1))
    there = dict(mirrors)
    mirrors.clear()
    kept = build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists)
    assert kept.disk == first.disk
    assert "cannot be reached" in kept.note
    mirrors |= there | {f"{MIRROR} bookworm": RELEASE.replace("12.9", "12.10")}
    assert build_disk(BOOKWORM, tmp_path, quiet, package_lists=lists).disk != first.disk
    assert len(builds) == 2


def test_a_fresh_one_is_built_whatever_is_there(tmp_path: Path, builds: list[str]) -> None:
    for _ in range(2):
        assert build_disk(BOOKWORM, tmp_path, quiet, fresh=True, package_lists=tmp_path).is_new
    assert len(builds) == 2


def test_an_image_in_place_is_never_replaced(tmp_path: Path, builds: list[str]) -> None:
    """The disks of VMs refer to it by name."""
    images = tmp_path / "images"
    for _ in range(2):
        built = build_disk(BOOKWORM, tmp_path, quiet, fresh=True, package_lists=tmp_path)
        named = install_disk(built, BOOKWORM, images)
    assert named.name == "debian12.qcow2"
    assert named.read_text() == "2"
    found = {path.name: path.read_text() for path in images.glob("debian12-*")}
    assert sorted(found.values()) == ["1", "2"]
    assert named.readlink().name in found


def test_a_disk_on_another_file_system_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    disk = tmp_path / "abc.qcow2"
    disk.write_text("x")
    named = install_disk(DiskGuest(disk, "6.1", is_new=True), BOOKWORM, tmp_path / "images")
    assert named.read_text() == "x"
    assert sorted(path.name for path in named.parent.iterdir()) == [
        "debian12-abc.qcow2",
        "debian12.qcow2",
    ]


def test_what_a_killed_build_left_goes_first(tmp_path: Path) -> None:
    (tmp_path / "new-1/tree/dev").mkdir(parents=True)
    with disk_guest._scratch(tmp_path) as folder:
        assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert list(tmp_path.iterdir()) == []


# What the machine lacks


@contextlib.contextmanager
def refused(tmp_path: Path, words: str, *, root: bool = True) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        yield patch
        with pytest.raises(GuestImageError, match=words):
            build_disk(BOOKWORM, tmp_path, quiet, package_lists=tmp_path)
    assert not list(tmp_path.glob("disks/debian12/*.qcow2"))


@pytest.mark.usefixtures("mirrors")
def test_what_is_missing_is_said(tmp_path: Path, mirrors: dict[str, str]) -> None:
    mirrors[f"{MIRROR} bookworm"] = RELEASE
    with refused(tmp_path, "by root only", root=False):
        pass
    with refused(tmp_path, "takes 3072 MiB of disk while it is built") as patch:
        patch.setattr(disk_guest, "NEEDED_BYTES", 3 * 1024**3)
        usage = type("Usage", (), {"free": 1024**3})
        patch.setattr(disk_guest.shutil, "disk_usage", lambda _: usage)
    with refused(tmp_path, "Debian guests need mmdebstrap, and apt does not know it") as patch:
        patch.setattr(bootstrap.shutil, "which", lambda *_, **__: None)
        patch.setattr(bootstrap, "show_package", lambda _: None)


def test_the_command_says_what_to_write_into_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "abc.qcow2"
    disk.touch()

    def build(*_: object, **__: object) -> DiskGuest:
        return DiskGuest(disk, "6.1.0-9", is_new=True)

    monkeypatch.setattr(disk_guest, "build_disk", build)
    arguments = ["build", "--distribution", "debian12", "--images-dir", str(tmp_path / "images")]
    told = CliRunner().invoke(guest, arguments)
    assert told.exit_code == 0, told.output
    assert "Debian 12 with Linux 6.1.0-9, built" in told.output
    assert "spec.virtualMachine.disk: {image: debian12.qcow2}" in told.output
    refusal = CliRunner().invoke(guest, ["build", "--fresh"])
    assert refusal.exit_code == 2
    assert "--fresh goes with --distribution" in refusal.output
