"""Stock Debian guests: a disk that a VM boots from, built here in minutes, and kept by content.

A disk is named by the packages on it and by the recipe (debian.py). Where one was built for the
release that the mirror has now, it is taken from the cache: a point release or a new recipe makes
a new one, and so does asking for one. Updates in between are the guest's own affair, as on any
machine.

Nothing that counts is half made: a disk gets its name when it is whole. One build runs at a time;
the next one removes what a killed one left.

VMs keep what they change in files of their own above the image, which refer to it by name. So an
image that was put in place is never replaced: the name that pods use is a link to the newest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from livesize.guest_images.apt_mirrors import Suite, find_suites
from livesize.guest_images.boot_disk import convert_to_qcow2, make_disk
from livesize.guest_images.bootstrap import Report, bootstrap, find_mmdebstrap
from livesize.guest_images.debian import (
    DISK_BYTES,
    GRUB_MODULES,
    GRUB_PREFIX,
    LEFT_BEHIND,
    Distribution,
    guest_files,
    recipe_digest,
)
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import open_kernel
from livesize.guest_images.tools import run_tool

NEEDED_BYTES = 3 * 1024**3
"""While it is built: the files, the disk made of them, and the image made of that."""
_MOST_CACHED = 2
_PACKAGE_LISTS = Path("/var/lib/apt/lists")
_GRUB = "usr/lib/grub/i386-pc"


class DiskGuest(msgspec.Struct, frozen=True):
    disk: Path
    release: str  # of its kernel
    is_new: bool
    note: str = ""


class _Built(msgspec.Struct, frozen=True):
    """The newest disk of a distribution: for which recipe and release, how old apt's lists were
    when that was looked up, and which kernel is on it."""

    disk: str
    recipe: str
    release: str
    lists_changed_ns: int
    kernel: str


def build_disk(
    distribution: Distribution,
    cache_dir: Path,
    report: Report,
    *,
    fresh: bool = False,
    package_lists: Path = _PACKAGE_LISTS,
) -> DiskGuest:
    """From the cache, or built. ``fresh``: with the newest packages, whatever is in the cache."""
    disks = cache_dir / "disks" / distribution.name
    changed_ns = package_lists.stat().st_mtime_ns if package_lists.is_dir() else 0
    recipe = recipe_digest(distribution)
    known = _known(disks, recipe)
    if known and not fresh and known.lists_changed_ns == changed_ns:
        return DiskGuest(disks / known.disk, known.kernel, is_new=False)
    report(f"looks for {distribution.title} where this machine's apt gets its packages from")
    try:
        suites = find_suites(distribution.codename, distribution.title)
    except GuestImageError as failure:
        if known is None or fresh:
            raise
        return DiskGuest(disks / known.disk, known.kernel, is_new=False, note=str(failure))
    release = hashlib.sha256(suites[0].release.encode()).hexdigest()
    if known and not fresh and known.release == release:
        _save(disks, msgspec.structs.replace(known, lists_changed_ns=changed_ns))
        return DiskGuest(disks / known.disk, known.kernel, is_new=False)
    with _one_at_a_time(disks, report) as lock:
        since = _known(disks, recipe)
        if since is None or since == known or since.release != release:
            since = _build(distribution, suites, disks, report, lock)
            since = msgspec.structs.replace(
                since, recipe=recipe, release=release, lists_changed_ns=changed_ns
            )
            _save(disks, since)
            _forget_old(disks, keep=since.disk)
    return DiskGuest(disks / since.disk, since.kernel, is_new=True)


def install_disk(guest: DiskGuest, distribution: Distribution, images_dir: Path) -> Path:
    """Put it where pods find it by its distribution's name."""
    images_dir.mkdir(parents=True, exist_ok=True)
    image = images_dir / f"{distribution.name}-{guest.disk.name}"
    if not image.exists():
        fresh = images_dir / f".new-{os.getpid()}-{image.name}"
        fresh.unlink(missing_ok=True)
        try:
            os.link(guest.disk, fresh)  # the same file: neither space nor time
        except OSError:
            shutil.copyfile(guest.disk, fresh)
            fresh.chmod(0o444)
        fresh.rename(image)
    name = images_dir / f"{distribution.name}.qcow2"
    link = images_dir / f".new-{os.getpid()}-{name.name}"
    link.unlink(missing_ok=True)
    link.symlink_to(image.name)
    link.rename(name)
    return name


def _build(
    distribution: Distribution, suites: tuple[Suite, ...], disks: Path, report: Report, lock: int
) -> _Built:
    _check_machine(disks)
    tool = find_mmdebstrap(disks.parent.parent)
    with _scratch(disks) as folder:
        tree, raw, disk = folder / "tree", folder / "disk.raw", folder / "disk.qcow2"
        bootstrap(tool, distribution, suites, tree, report, lock)
        packages = (tree / "var/lib/dpkg/status").read_bytes()
        digest = hashlib.sha256(recipe_digest(distribution).encode() + packages).hexdigest()
        report("makes a disk of it")
        kernel, boot_image, core_image = _prepare(tree, digest)
        with raw.open("wb") as file:
            file.truncate(DISK_BYTES)
        make_disk(tree, boot_image, core_image, _file_system_uuid(digest), raw)
        _remove_tree(tree)
        convert_to_qcow2(raw, disk)
        raw.unlink()
        disk.chmod(0o444)
        name = f"{digest[:24]}.qcow2"
        if not (disks / name).exists():
            disk.rename(disks / name)
    return _Built(name, "", "", 0, kernel)


def _prepare(tree: Path, digest: str) -> tuple[str, bytes, bytes]:
    """What is left to do once all packages are there; its kernel, and GRUB's two parts."""
    kernel = open_kernel(tree).release
    for name in LEFT_BEHIND:
        path = tree / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    # As grub-install would leave them, so that the guest's own tools find them.
    grub = tree / "boot/grub/i386-pc"
    shutil.copytree(tree / _GRUB, grub, dirs_exist_ok=True)
    for name, text in guest_files(kernel, _file_system_uuid(digest)).items():
        (tree / name).unlink(missing_ok=True)
        (tree / name).write_text(text)
    core = "boot/grub/i386-pc/core.img"
    command = ["chroot", str(tree), "grub-mkimage", "-O", "i386-pc", "-p", GRUB_PREFIX]
    run_tool([*command, "-o", f"/{core}", *GRUB_MODULES], tree)
    return kernel, (grub / "boot.img").read_bytes(), (tree / core).read_bytes()


def _check_machine(disks: Path) -> None:
    if os.geteuid() != 0:
        raise GuestImageError(
            "a Debian guest can be built by root only: its files are root's; try sudo"
        )
    free_bytes = shutil.disk_usage(disks).free
    if free_bytes < NEEDED_BYTES:
        raise GuestImageError(
            f"a Debian guest takes {NEEDED_BYTES >> 20} MiB of disk while it is built, and {disks}"
            f" has {free_bytes >> 20} MiB left; free some, or name another --cache-dir"
        )


@contextlib.contextmanager
def _one_at_a_time(disks: Path, report: Report) -> Iterator[int]:
    """The lock's descriptor; the next one waits until everything that has it open has ended."""
    disks.mkdir(parents=True, exist_ok=True)
    with (disks / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waits until another build of the same has ended")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


@contextlib.contextmanager
def _scratch(disks: Path) -> Iterator[Path]:
    """A folder to build in, where nobody else is: what was left by a killed build goes first."""
    for left in disks.glob("new-*"):
        _remove_tree(left)
    folder = disks / f"new-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """Never through a mount: the machine's own devices might be behind it."""
    below = f"{folder.resolve()}/"
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if inside := [path for path in mounted if path.startswith(below)]:
        raise GuestImageError(f"{inside[0]} is mounted below what is to be removed; umount it")
    shutil.rmtree(folder)


def _file_system_uuid(digest: str) -> str:
    return str(uuid.UUID(digest[:32], version=4))


def _known(disks: Path, recipe: str) -> _Built | None:
    try:
        found = msgspec.json.decode((disks / "newest.json").read_bytes(), type=_Built)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.recipe == recipe and (disks / found.disk).is_file() else None


def _save(disks: Path, built: _Built) -> None:
    fresh = disks / f".newest-{os.getpid()}"
    fresh.write_bytes(msgspec.json.encode(built))
    fresh.rename(disks / "newest.json")


def _forget_old(disks: Path, keep: str) -> None:
    """Images that were put in place are links to the same files, or copies: they stay."""
    ours = sorted(disks.glob("*.qcow2"), key=lambda path: path.stat().st_mtime_ns)
    for path in ours[:-_MOST_CACHED]:
        if path.name != keep:
            path.unlink(missing_ok=True)
