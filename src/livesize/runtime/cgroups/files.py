"""Reads and writes the files of a control group, and says what failed, where and why.

Writes go through a raw descriptor: the kernel refuses a value in ``write``, and a buffered file
would only say so when it is closed, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal

from livesize.runtime.interface import GoneError, RuntimeCallError

_READ_BYTES = 65536
_LINKS_WITHOUT_CHILDREN = 2  # its name and its own dot; each child adds its dot-dot
_REASONS = {
    errno.EINVAL: "the kernel refused the value",
    errno.EBUSY: "in use",
    errno.EACCES: "permission denied; the agent must run as root or own this group",
    errno.EPERM: "permission denied; the agent must run as root or own this group",
    errno.EROFS: "mounted read-only",
    errno.ENOSPC: "no space, or cpuset.cpus and cpuset.mems are empty",
}
_GONE = (errno.ENOENT, errno.ENODEV)


def read_text(path: str) -> str:
    """A file of one record, which the kernel hands over in one piece."""
    return _read(path, whole=False).decode().strip()


def read_list(path: str) -> list[str]:
    """A file of many records, such as cgroup.procs, which comes page by page."""
    return _read(path, whole=True).decode().split()


def read_number(path: str) -> int:
    return int(_read(path, whole=False))


def _read(path: str, *, whole: bool) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as failure:
        raise call_failed("read", path, failure) from failure
    try:
        content = chunk = os.read(descriptor, _READ_BYTES)
        while whole and chunk:
            chunk = os.read(descriptor, _READ_BYTES)
            content += chunk
    except OSError as failure:
        raise call_failed("read", path, failure) from failure
    finally:
        os.close(descriptor)
    return content


def read_table(path: str) -> dict[str, int]:
    """A file of ``name number`` lines, such as memory.stat."""
    table = {}
    for line in read_text(path).splitlines():
        name, _, number = line.partition(" ")
        if number.lstrip("-").isdigit():
            table[name] = int(number)
    return table


def write_text(path: str, value: str) -> None:
    try:
        write_raw(path, value)
    except OSError as failure:
        raise call_failed(f"write {value} to", path, failure) from failure


def write_raw(path: str, value: str) -> None:
    """Write and let the OSError out, for callers that know what it means."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103 - plain strings on a hot path
    except OSError as failure:
        raise call_failed("make group", path, failure) from failure


def remove_directory(path: str) -> bool:
    """False: the kernel still counts something in it."""
    try:
        os.rmdir(path)  # noqa: PTH106 - plain strings on a hot path
    except FileNotFoundError:
        return True
    except OSError as failure:
        if failure.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise call_failed("remove group", path, failure) from failure
    return True


def child_directories(path: str) -> tuple[str, ...]:
    try:
        if os.stat(path).st_nlink == _LINKS_WITHOUT_CHILDREN:  # noqa: PTH116
            return ()
        with os.scandir(path) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    except FileNotFoundError:
        return ()


def member_pids(path: str) -> tuple[int, ...]:
    try:
        return tuple(int(line) for line in read_list(path))
    except GoneError:
        return ()


def kill_each(pids: tuple[int, ...]) -> int:
    """SIGKILL to each; one that is gone already counts as killed. 0 is a process of another
    namespace, which is not ours to kill."""
    for pid in pids:
        if pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return len(pids)


def call_failed(what: str, where: str, failure: OSError) -> RuntimeCallError:
    """The one place that turns an errno into a sentence."""
    number = failure.errno or 0
    why = _REASONS.get(number, os.strerror(number))
    sentence = f"cannot {what} {where}: {why} ({errno.errorcode.get(number, number)})"
    return GoneError(sentence) if number in _GONE else RuntimeCallError(sentence)
