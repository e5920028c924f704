"""Folders that outlive pods: the volumes of claims, each a folder of its own in one folder of ours.

    NAME            a volume
    .making-NAME    one that is not ready yet; renamed when it is
    .going-NAME     one that is removed; renamed first, so that half of one is never taken for whole

Nothing outside is ever touched: a name is one part of a path, links are not followed, and what is
mounted is not walked into. Calls may take long, and raise OSError or VolumeError.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.removal import remove_tree
from livesize.runtime.volumes.interface import VolumeError
from livesize.runtime.volumes.mounts import Mounts

_MODE = 0o777
_DEEPEST = 500  # each level is a descriptor
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GROUP_MODE = 0o2777  # what is made in there is the group's too


class ClaimFolders:
    def __init__(self, root: Path, mounts: Mounts) -> None:
        self.root = root.absolute()
        self._mounts = mounts

    def make(self, name: str, group: int | None) -> Path:
        """The folder, with all that is in it; made where it is missing. ``group``: whose it is."""
        path = self.root / safe_name(name)
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        if not os.path.lexists(path):
            making = self.root / f".making-{name}"
            making.mkdir(exist_ok=True)
            making.chmod(_MODE)
            making.rename(path)
        _refuse_other_than_folder(path)
        if group is not None and path.stat().st_gid != group:
            _give_to_group(path, group)
        return path

    def remove(self, name: str) -> None:
        path, going = self.root / safe_name(name), self.root / f".going-{name}"
        if os.path.lexists(path):
            _refuse_other_than_folder(path)
            if self._mounts.below(path):
                raise VolumeError(f"volume {name}: something is mounted in {path}; unmount it")
            remove_tree(going)
            path.rename(going)
        remove_tree(going)


def _refuse_other_than_folder(path: Path) -> None:
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise VolumeError(f"volume {path.name}: {path} is no folder; move it away")


def _give_to_group(top: Path, group: int) -> None:
    """The top comes last: it says that all below is done. Whoever removes files meanwhile does no
    harm, and links stay as they are."""
    waiting = [_Folder(os.open(top, _FOLDER))]
    try:
        while waiting:
            here = waiting[-1]
            if not here.names:
                os.close(waiting.pop().descriptor)
                continue
            inner = _give_entry(here.names.pop(), here.descriptor, group)
            if inner is not None:
                waiting.append(_Folder(inner))
            if len(waiting) > _DEEPEST:
                raise VolumeError(
                    f"volume {top.name}: its folders are more than {_DEEPEST} deep, too deep to be"
                    f" given to group {group}; remove those, or the pod's fsGroup"
                )
    finally:
        for one in waiting:
            os.close(one.descriptor)
    os.chown(top, -1, group)
    top.chmod(_GROUP_MODE)


class _Folder:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.names = os.listdir(descriptor)


def _give_entry(name: str, folder: int, group: int) -> int | None:
    """The entry, opened, if it is a folder: what is in it is still to be given."""
    with suppress(FileNotFoundError, NotADirectoryError):
        facts = os.lstat(name, dir_fd=folder)
        if _is_plain(facts):
            _give_one(name, folder, group)
        if stat.S_ISDIR(facts.st_mode):
            return os.open(name, _FOLDER, dir_fd=folder)
    return None


def _give_one(name: str, folder: int, group: int) -> None:
    """A workload may put a link in the place of a file at any moment: what was opened counts."""
    try:
        descriptor = os.open(name, _OPENED, dir_fd=folder)
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return
        raise
    try:
        facts = os.fstat(descriptor)
        if _is_plain(facts):
            added = 0o2070 if stat.S_ISDIR(facts.st_mode) else 0o060
            os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, stat.S_IMODE(facts.st_mode) | added)
    finally:
        os.close(descriptor)


def _is_plain(facts: os.stat_result) -> bool:
    return stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)
