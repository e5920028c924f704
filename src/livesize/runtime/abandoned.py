"""What a node whose agent is dead has left on this machine: found by looking, removed on demand.

Groups are known by the node's uid in their name, processes by the group they are in, daemons by the
data directory in their command line, mounts by standing below it. Nothing else is touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from livesize.runtime.cgroups.files import child_directories, member_pids, remove_directory
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.processes import open_process
from livesize.runtime.volumes.mounts import KernelMounts

_POLL_SECONDS = 0.02
_REMOVE_SECONDS = 10.0
_SHOWN_COMMAND = 80


class NodePaths(msgspec.Struct, frozen=True):
    """Where to look. ``hierarchies``: mounts of control groups; ``roots``: paths below them;
    ``words``: what the command line of a daemon of that node holds as one argument; ``folders``:
    where its mounts stand."""

    hierarchies: tuple[str, ...]
    roots: tuple[str, ...]
    words: tuple[str, ...]
    folders: tuple[str, ...]


class ProcessLeft(msgspec.Struct, frozen=True):
    pid: int
    command: str


class Abandoned(msgspec.Struct, frozen=True):
    groups: tuple[str, ...] = ()  # with all above and below, outermost first, in each hierarchy
    processes: tuple[ProcessLeft, ...] = ()
    mounts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.processes or self.mounts)


def observe_abandoned(paths: NodePaths) -> Abandoned:
    groups = [
        group
        for hierarchy in paths.hierarchies
        for root in paths.roots
        for group in _tree(f"{hierarchy}/{root}")
    ]
    inside = {pid for group in groups for pid in member_pids(f"{group}/cgroup.procs")}
    pids = sorted(inside | set(_daemons(paths.words)))
    mounts = [
        str(mount) for folder in paths.folders for mount in KernelMounts().below(Path(folder))
    ]
    processes = tuple(ProcessLeft(pid, _command(pid)) for pid in pids if pid > 0)
    return Abandoned(tuple(groups), processes, tuple(dict.fromkeys(mounts)))


def remove_abandoned(paths: NodePaths) -> None:
    """All of it. Raises RuntimeCallError with what could not be removed."""
    for _ in _polls(_REMOVE_SECONDS):
        left = observe_abandoned(paths)
        if not left:
            return
        _remove_once(left, paths)
    left = observe_abandoned(paths)
    if left:
        first = [f"process {one.pid} ({one.command})" for one in left.processes[:3]]
        rest = ", ".join([*first, *left.mounts[:3], *left.groups[:3]])
        raise RuntimeCallError(f"this could not be removed: {rest}; try again, or as root")


def _remove_once(left: Abandoned, paths: NodePaths) -> None:
    _kill_all([process.pid for process in left.processes], lambda pid: _belongs(pid, paths))
    for mount in reversed(left.mounts):
        with contextlib.suppress(OSError):
            KernelMounts().unmount(Path(mount))
    for group in reversed(left.groups):
        with contextlib.suppress(RuntimeCallError):
            remove_directory(group)


def _tree(group: str) -> Iterator[str]:
    """The group and all below, those above first."""
    if Path(group).is_dir():
        waiting = [group]
        while waiting:
            here = waiting.pop()
            yield here
            waiting += (f"{here}/{name}" for name in child_directories(here))


def _daemons(words: tuple[str, ...]) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            if _is_daemon(pid, words):
                yield pid
                yield from _children(pid)


def _is_daemon(pid: int, words: tuple[str, ...]) -> bool:
    """Nothing of ours has a terminal: an editor or a shell that names our files is a person's."""
    try:
        terminal = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4])
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return terminal == 0 and any(word.encode() in arguments for word in words)


def _children(pid: int) -> tuple[int, ...]:
    """libvirtd has nothing of ours in its command line; it is a child of one that has."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return ()
    return tuple(int(word) for word in words)


def _belongs(pid: int, paths: NodePaths) -> bool:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    inside = any(f"/{root}/" in f"{line}/" for line in lines for root in paths.roots)
    return inside or any(_is_daemon(one, paths.words) for one in (pid, parent))


def _kill_all(pids: list[int], is_same: Callable[[int], bool]) -> None:
    """Each is looked at before any is killed: a child is known by its parent."""
    with contextlib.ExitStack() as opened:
        descriptors = []
        for pid in pids:
            descriptor = open_process(pid, is_same)
            if descriptor is not None:
                opened.callback(os.close, descriptor)
                descriptors.append(descriptor)
        for descriptor in descriptors:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended meanwhile"
    shown = words.decode(errors="replace").strip() or name
    return "".join(letter if letter.isprintable() else "?" for letter in shown)[:_SHOWN_COMMAND]


def _polls(seconds: float) -> Iterator[None]:
    pause = threading.Event()  # never set: waiting on it is sleeping
    for _ in range(int(seconds / _POLL_SECONDS)):
        yield
        pause.wait(_POLL_SECONDS)
