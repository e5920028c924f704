"""Takes programs of this machine into a guest, at the same paths, with what they are linked to.

The guest then has the very same files: a program finds its libraries, and a Python its packages,
as it does here. Symbolic links on the way to a file are taken along.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from livesize.guest_images.cpio import CpioLink, Entry, HostFile
from livesize.guest_images.errors import GuestImageError

_LIBRARY = re.compile(r"(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MOST_LINKS = 40
_AT_ONCE = 200  # files in one call of ldd


def program_entries(names: Iterable[str]) -> dict[str, Entry]:
    """Programs of the PATH and the libraries they need."""
    paths = [_find(name) for name in names]
    return host_entries([*paths, *shared_libraries(paths)])


def host_entries(paths: Iterable[Path]) -> dict[str, Entry]:
    """Files at their own absolute paths, and every link that leads to them."""
    entries: dict[str, Entry] = {}
    for path in paths:
        _follow(path, entries)
    return entries


def shared_libraries(paths: Iterable[Path]) -> tuple[Path, ...]:
    """What the programs and libraries at ``paths`` are linked to, the loader included.

    What this machine cannot find is left out: it does without, and so will the guest.
    """
    files = [str(path) for path in paths]
    found: set[str] = set()
    for start in range(0, len(files), _AT_ONCE):
        command = ["ldd", *files[start : start + _AT_ONCE]]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        found.update(_LIBRARY.findall(told.stdout))
    return tuple(Path(name) for name in sorted(found))


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise GuestImageError(f"the guest needs the program {name}, which is not on the PATH")
    return Path(found)


def _follow(path: Path, entries: dict[str, Entry]) -> None:
    """Walk from the root, and start again at the target of each link."""
    for _ in range(_MOST_LINKS):
        link = _first_link(path)
        if link is None:
            entries[_inside(path)] = HostFile(path)
            return
        target = link.readlink()
        entries[_inside(link)] = CpioLink(str(target))
        path = _tidy(link.parent / target / path.relative_to(link))
    raise GuestImageError(f"{path}: too many symbolic links")


def _first_link(path: Path) -> Path | None:
    steps = [*reversed(path.parents), path]
    return next((step for step in steps if step.is_symlink()), None)


def _tidy(path: Path) -> Path:
    """Without "..": nothing before it is a link any more, so that removing it is right."""
    parts: list[str] = []
    for part in path.parts:
        if part != "..":
            parts.append(part)
        elif len(parts) > 1:
            parts.pop()
    return Path(*parts)


def _inside(path: Path) -> str:
    return str(path).lstrip("/")
