"""Makes this process root of a user namespace, in which mounts can be made without being root.

Inside, the user is root and nobody else exists; outside, all of it is the user's. The namespaces
belong to no agent: a holder, a process that only sleeps, holds them while agents come and go, so
that the next one finds the memory volumes of its pods mounted and may enter their containers.

    no holder, or it has died   new namespaces, a new holder
    a holder                    we join it, as its user may

A holder that died takes nothing from pods that run; only what needs their namespaces, commands and
ports, cannot be had of them until they are started again.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import msgspec

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.processes import (
    open_process,
    read_start_ticks,
    signal_process,
    started_at_ticks,
)
from livesize.runtime.process.records import write_whole

_CLONE_NEWNS, _CLONE_NEWUSER = 1 << 17, 1 << 28
_WHY_NOT = (
    "this machine gives ordinary users no user namespaces ({failure}); as root:"
    " sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, and where AppArmor"
    " forbids it kernel.apparmor_restrict_unprivileged_userns=0"
)


class NamespaceHolder(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int


def enter_namespaces(folder: Path) -> None:
    """Be root of the namespaces of ``folder``. First thing in a process: it may have only one
    thread, and no other user's rights."""
    note = folder / "namespaces.json"
    holder = _load(note)
    descriptor = None if holder is None else _open(holder)
    if descriptor is None:
        _make(os.geteuid(), os.getegid())
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(note, msgspec.json.encode(_spawn_holder()))
        return
    try:
        _call("setns", descriptor, _CLONE_NEWUSER | _CLONE_NEWNS)
    except OSError as failure:
        raise RuntimeCallError(f"cannot join the namespaces of {note}: {failure}") from failure
    finally:
        os.close(descriptor)


def end_namespaces(folder: Path) -> None:
    """No pod needs them any more: end their holder."""
    note = folder / "namespaces.json"
    holder = _load(note)
    if holder is not None:
        signal_process(holder.pid, started_at_ticks(holder.start_ticks), signal.SIGKILL)
        note.unlink(missing_ok=True)


def _make(user: int, group: int) -> None:
    try:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        # Without it a process could leave groups that keep it from files; the kernel insists.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as failure:
        raise RuntimeCallError(_WHY_NOT.format(failure=failure.strerror or failure)) from failure


def _spawn_holder() -> NamespaceHolder:
    """Our child, but in a session of its own and with nothing of ours open."""
    closed = [(os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_RDWR, 0) for one in (0, 1, 2)]
    pid = os.posix_spawnp(
        "sleep", ("sleep", "infinity"), {"PATH": _path()}, file_actions=closed, setsid=True
    )
    start_ticks = read_start_ticks(pid)
    if start_ticks is None:
        raise RuntimeCallError("the process that keeps the user's namespaces ended at once")
    return NamespaceHolder(pid, start_ticks)


def _load(note: Path) -> NamespaceHolder | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=NamespaceHolder)
    except (OSError, msgspec.DecodeError):
        return None


def _open(holder: NamespaceHolder) -> int | None:
    """A descriptor of the holder; None: it has ended, or the machine was started anew and its
    number is somebody else's."""
    descriptor = open_process(holder.pid, started_at_ticks(holder.start_ticks))
    if descriptor is None:
        return None
    try:
        inside = (
            Path(f"/proc/{holder.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
        )
    except OSError:
        inside = False
    if inside:
        return descriptor
    os.close(descriptor)
    return None


def _path() -> str:
    return os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
