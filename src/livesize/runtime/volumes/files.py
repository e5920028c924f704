"""Files that change all at once, for whoever reads them while they do.

    ..2f1c09/KEY …    the files themselves, never written again
    ..data            a link to that folder; replaced by a rename, which is the instant of change
    KEY               a link to ..data/KEY

As Kubernetes lays out such volumes: programs that watch ``..data`` go on working.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from livesize.runtime.volumes.interface import VolumeFile

_CURRENT = "..data"
_NEXT = "..data_tmp"


def write_files(folder: Path, files: tuple[VolumeFile, ...], group: int | None = None) -> None:
    """Have exactly these files in ``folder``; nothing is touched where they are there. A ``group``
    may read them."""
    name = f"..{_digest(files, group)}"
    if _current(folder) == name:
        return
    fresh = folder / name
    shutil.rmtree(fresh, ignore_errors=True)  # of one who was killed while he wrote it
    fresh.mkdir()
    fresh.chmod(0o755)
    for file in files:
        path = fresh / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode if group is None else file.mode | 0o440)
        if group is not None:
            os.chown(path, -1, group)
    (folder / _NEXT).unlink(missing_ok=True)
    (folder / _NEXT).symlink_to(name)
    (folder / _NEXT).rename(folder / _CURRENT)
    _link_names(folder, {Path(file.path).parts[0] for file in files})
    _drop_old(folder, keep=name)


def _current(folder: Path) -> str:
    try:
        return str((folder / _CURRENT).readlink())
    except OSError:
        return ""


def _link_names(folder: Path, names: set[str]) -> None:
    present = {path.name for path in folder.iterdir() if not path.name.startswith("..")}
    for name in sorted(present - names):
        (folder / name).unlink()
    for name in sorted(names - present):
        (folder / name).symlink_to(f"{_CURRENT}/{name}")


def _drop_old(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if path.name.startswith("..") and path.name not in (keep, _CURRENT):
            shutil.rmtree(path, ignore_errors=True)


def _digest(files: tuple[VolumeFile, ...], group: int | None) -> str:
    digest = hashlib.sha256(repr(group).encode())
    for file in sorted(files, key=lambda one: one.path):
        digest.update(repr((file.path, file.mode, file.content)).encode())
    return digest.hexdigest()[:16]
