"""Finds the distribution's kernel for virtual machines, and keeps it unpacked in a cache.

The package is downloaded by apt, which checks its signature, and unpacked, never installed: this
needs no root. A kernel's folder in the cache is named by the digests of its packages, made under
another name and renamed, so that a killed download leaves nothing that counts. Where apt knows no
kernel (no package lists, no network), the newest one in the cache is taken. apt takes seconds to
answer: it is asked again only when its package lists have changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.tools import run_tool

# Debian's, then Ubuntu's: packages that depend on the newest kernel made for virtual machines.
KERNEL_PACKAGES = ("linux-image-cloud-amd64", "linux-image-virtual")
_PARTS = re.compile(r"linux-(?:image|modules)-\d")
_PACKAGE_LISTS = Path("/var/lib/apt/lists")

Fields: TypeAlias = Mapping[str, str]


class Package(msgspec.Struct, frozen=True):
    name: str
    version: str
    sha256: str


class GuestKernel(msgspec.Struct, frozen=True):
    release: str  # for instance 6.1.0-54-cloud-amd64
    image: Path
    modules: Path


def default_cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where kernels and images are kept: the user's cache (XDG base directories)."""
    given = environment.get("XDG_CACHE_HOME", "")
    caches = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return caches / "livesize" / "guest"


def fetch_kernel(cache_dir: Path, package_lists: Path = _PACKAGE_LISTS) -> GuestKernel:
    """The newest kernel apt knows, from the cache or downloaded into it."""
    kernels = cache_dir / "kernels"
    answered = _AptAnswer(kernels / "newest", package_lists)
    key = answered.load()
    if key and (kernels / key).is_dir():
        return open_kernel(kernels / key)
    packages = find_packages(show_package)
    if not packages:
        return _newest_cached(kernels)
    folder = kernels / _key(packages)
    if not folder.is_dir():
        kernels.mkdir(parents=True, exist_ok=True)
        unpack_into(folder, packages, open_kernel)
    answered.save(folder.name)
    return open_kernel(folder)


def open_kernel(folder: Path) -> GuestKernel:
    """The kernel in a folder into which its packages were unpacked."""
    for image in sorted((folder / "boot").glob("vmlinuz-*")):
        release = image.name.removeprefix("vmlinuz-")
        for modules in (folder / "lib/modules" / release, folder / "usr/lib/modules" / release):
            if modules.is_dir():
                return GuestKernel(release, image, modules)
    raise GuestImageError(f"{folder} holds no kernel with its modules; remove it and try again")


def find_packages(show: Callable[[str], Fields | None]) -> tuple[Package, ...]:
    """The packages that hold the kernel and its modules; none where apt knows no kernel.

    ``show`` gives the fields of a package's newest version.
    """
    for name in KERNEL_PACKAGES:
        fields = show(name)
        if fields is not None:
            found: dict[str, Package] = {}
            _collect(fields, show, found)
            return tuple(found[name] for name in sorted(found))
    return ()


def parse_fields(text: str) -> dict[str, str]:
    """The first paragraph of what ``apt-cache show`` prints; continued lines are left out."""
    paragraph = text.strip().partition("\n\n")[0]
    pairs = (line.partition(":") for line in paragraph.splitlines() if line[:1].isalpha())
    return {name: value.strip() for name, _, value in pairs}


class _AptAnswer:
    """Which kernel apt named last, as long as it would name the same again."""

    def __init__(self, path: Path, package_lists: Path) -> None:
        self._path = path
        self._lists = package_lists

    def load(self) -> str:
        try:
            changed, key = self._path.read_text().split()
        except (OSError, ValueError):
            return ""
        return key if changed == self._changed() else ""

    def save(self, key: str) -> None:
        fresh = self._path.with_name(f"new-{key}.txt")
        fresh.write_text(f"{self._changed()} {key}\n")
        fresh.rename(self._path)

    def _changed(self) -> str:
        return str(self._lists.stat().st_mtime_ns) if self._lists.is_dir() else "never"


def _collect(
    fields: Fields, show: Callable[[str], Fields | None], found: dict[str, Package]
) -> None:
    for alternatives in fields.get("Depends", "").split(","):
        name = alternatives.partition("|")[0].partition("(")[0].strip()
        if name in found or not _PARTS.match(name):
            continue
        part = show(name)
        if part is None:
            raise GuestImageError(f"apt names the kernel package {name} but does not have it")
        found[name] = Package(name, part["Version"], part["SHA256"])
        _collect(part, show, found)


def _key(packages: tuple[Package, ...]) -> str:
    return hashlib.sha256("\n".join(one.sha256 for one in packages).encode()).hexdigest()[:24]


def _newest_cached(kernels: Path) -> GuestKernel:
    folders = [path for path in kernels.glob("*/") if not path.name.startswith("new-")]
    if not folders:
        raise GuestImageError(
            f"no kernel for guests: apt knows none of {', '.join(KERNEL_PACKAGES)};"
            " as root, run apt-get update"
        )
    return open_kernel(max(folders, key=lambda path: path.stat().st_mtime_ns))


def unpack_into(
    folder: Path, packages: tuple[Package, ...], check: Callable[[Path], object]
) -> None:
    """The packages' files, which ``check`` refuses by raising; whole, or not there at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as scratch:
        wanted = [f"{package.name}={package.version}" for package in packages]
        run_tool(["apt-get", "download", "-qq", *wanted], Path(scratch))
        root = Path(scratch, "root")
        for archive in sorted(Path(scratch).glob("*.deb")):
            run_tool(["dpkg-deb", "-x", str(archive), str(root)], Path(scratch))
        check(root)
        if not folder.is_dir():  # somebody else may have been faster
            root.rename(folder)


def show_package(name: str) -> Fields | None:
    command = ["apt-cache", "show", "--no-all-versions", name]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    fields = parse_fields(shown.stdout)
    return fields if shown.returncode == 0 and fields else None
