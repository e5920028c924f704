"""Fetches QEMU's guest agent from the distribution, with the libraries it is linked to.

As with the kernel, packages are downloaded by apt, which checks their signatures, unpacked below
the cache and never installed. The folder is named by the digests of the packages, so that the
same packages are unpacked once. apt is asked again only when its package lists have changed.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from livesize.guest_images.cpio import CpioFile, CpioLink, Entry
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import Package, show_package, unpack_into

AGENT_PACKAGE = "qemu-guest-agent"
AGENT_PATH = "usr/sbin/qemu-ga"
_LISTED = re.compile(r"=> (/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_LOADER = re.compile(rb"/lib64/ld-linux[\w.-]+")
_LIBRARY_FOLDERS = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib64")
_PACKAGE_LISTS = Path("/var/lib/apt/lists")

Show: TypeAlias = Callable[[str], Mapping[str, str] | None]


class _Answer(msgspec.Struct, frozen=True):
    """Which folder apt's answer led to, and how old its package lists were then."""

    lists_changed_ns: int
    key: str


def fetch_agent(cache_dir: Path, package_lists: Path = _PACKAGE_LISTS) -> Path:
    """A folder in which the agent's packages are unpacked, from the cache or downloaded."""
    agents = cache_dir / "agents"
    changed_ns = package_lists.stat().st_mtime_ns if package_lists.is_dir() else 0
    known = _load_answer(agents / "newest.json")
    if known and known.lists_changed_ns == changed_ns and (agents / known.key).is_dir():
        return agents / known.key
    packages = find_packages(AGENT_PACKAGE, show_package)
    if not packages:
        return _newest_cached(agents)
    digests = "\n".join(package.sha256 for package in packages)
    folder = agents / hashlib.sha256(digests.encode()).hexdigest()[:24]
    if not folder.is_dir():
        agents.mkdir(parents=True, exist_ok=True)
        unpack_into(folder, packages, agent_entries)
    _save_answer(agents / "newest.json", _Answer(changed_ns, folder.name))
    return folder


def find_packages(name: str, show: Show) -> tuple[Package, ...]:
    """The package and all it depends on, by name; none where apt does not know it.

    Of alternatives the first one apt has is taken; what apt does not have at all (a virtual
    package) holds no library.
    """
    found: dict[str, Package] = {}
    waiting = [name]
    while waiting:
        wanted = waiting.pop()
        fields = None if wanted in found else show(wanted)
        if fields is None:
            continue
        found[wanted] = Package(wanted, fields["Version"], fields["SHA256"])
        waiting += [
            needed for needed in _first_choices(fields.get("Depends", "")) if needed not in found
        ]
    return tuple(found[name] for name in sorted(found))


def agent_entries(folder: Path) -> dict[str, Entry]:
    """The agent, its loader and its libraries, as files of a guest."""
    program = folder / AGENT_PATH
    if not program.is_file():
        raise GuestImageError(f"{folder} holds no {AGENT_PATH}; remove it and try again")
    content = program.read_bytes()
    named = _LOADER.search(content)
    if named is None:
        raise GuestImageError(f"{program} names no loader: it is not a program for x86_64")
    loader = _inside(folder, folder / named[0].decode().lstrip("/"))
    libraries = _libraries(folder, loader, program)
    entries: dict[str, Entry] = {AGENT_PATH: CpioFile(content, 0o755)}
    for library in libraries:
        path = str(library.relative_to(folder))
        entries[path] = CpioFile(_inside(folder, library).read_bytes(), 0o755)
    entries[named[0].decode().lstrip("/")] = CpioLink(f"/{loader.relative_to(folder)}")
    entries[str(loader.relative_to(folder))] = CpioFile(loader.read_bytes(), 0o755)
    return entries


def _libraries(folder: Path, loader: Path, program: Path) -> list[Path]:
    """The loader itself says which libraries it would take."""
    paths = ":".join(str(folder / name) for name in _LIBRARY_FOLDERS)
    command = [str(loader), "--library-path", paths, "--list", str(program)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [Path(name) for name in _LISTED.findall(told.stdout)]
    strange = [str(path) for path in found if not path.is_relative_to(folder)]
    if told.returncode != 0 or "not found" in told.stdout or strange:
        said = (told.stderr or told.stdout).strip()
        raise GuestImageError(f"{program.name} lacks libraries among its packages: {said}")
    return sorted(path for path in found if path.name != loader.name)


def _inside(folder: Path, path: Path) -> Path:
    """The file that a link means where ``folder`` is the root."""
    for _ in range(10):
        if not path.is_symlink():
            return path
        target = path.readlink()
        path = folder / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    raise GuestImageError(f"{path}: too many symbolic links")


def _first_choices(depends: str) -> list[str]:
    parts = (one.partition("|")[0].partition("(")[0].strip() for one in depends.split(","))
    return [part.partition(":")[0] for part in parts if part]


def _newest_cached(agents: Path) -> Path:
    folders = [path for path in agents.glob("*/") if not path.name.startswith("new-")]
    if not folders:
        raise GuestImageError(
            f"no guest agent: apt does not know {AGENT_PACKAGE}; as root, run apt-get update"
        )
    return max(folders, key=lambda path: path.stat().st_mtime_ns)


def _load_answer(path: Path) -> _Answer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Answer)
    except (OSError, msgspec.DecodeError):
        return None


def _save_answer(path: Path, answer: _Answer) -> None:
    fresh = path.with_name(f"new-{answer.key}.json")
    fresh.write_bytes(msgspec.json.encode(answer))
    fresh.rename(path)
