"""Turns this process, started by root, into an ordinary user's, for good.

Done by the process itself after it has started, not by its parent before: the interpreter and our
own files may lie below a directory only root may enter (a checkout in root's home), and then an
ordinary user could not even start them. Where that is so, the process first gets a mount
namespace of its own, in which such a directory is empty but for the paths it needs; it sees less
than before, never more, and the rest of the machine sees no change.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_PR_SET_NO_NEW_PRIVS = 38


def drop_privileges(user: int, group: int, *, keep: Sequence[Path] = ()) -> None:
    """Become ``user``; ``keep`` are directories it must still reach, besides our own code.

    Call it first thing, while the process has one thread and no open files but the standard ones
    and the lifeline.
    """
    assert user > 0, "dropping privileges to root is a mistake"
    needed = {path.resolve() for path in (*_code_directories(), *keep)}
    closed = {parent for path in needed for parent in path.parents}
    closed = {path for path in closed if not _may_enter(path, user, group)}
    if closed:
        _open_only(closed, needed - closed)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _code_directories() -> Iterable[Path]:
    """Where Python finds modules, ours among them, also when installed from a checkout."""
    names = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path}
    names |= {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    names.add(str(Path(__file__).parents[2]))
    return [Path(name) for name in names if name and Path(name).is_dir()]


def _may_enter(directory: Path, user: int, group: int) -> bool:
    facts = directory.stat()
    if facts.st_uid == user:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == group:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


def _open_only(closed: AbstractSet[Path], needed: AbstractSet[Path]) -> None:
    """Cover each closed directory, for us alone, and put back what is needed below it."""
    _call("unshare", _CLONE_NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    back = {path for path in needed if _nearest(path, closed | needed) in closed}
    # Held open, because after the covering their names lead nowhere.
    handles = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in back}
    mask = os.umask(0o022)
    for path in sorted(closed | back):  # parents first
        path.mkdir(parents=True, exist_ok=True)
        if path in closed:
            _mount("livesize", str(path), "tmpfs", 0, "mode=0755,size=1m")
        if path in back:
            _mount(f"/proc/self/fd/{handles[path]}", str(path), "", _MS_BIND | _MS_REC)
    os.umask(mask)
    for handle in handles.values():
        os.close(handle)


def _nearest(path: Path, places: AbstractSet[Path]) -> Path | None:
    """The innermost of ``places`` that ``path`` lies in."""
    return next((parent for parent in path.parents if parent in places), None)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")
