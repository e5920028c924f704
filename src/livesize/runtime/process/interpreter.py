"""The Python that becomes containers and enters them, run through a mount that is read-only.

A process in a container can reach the file it was started from (/proc/PID/exe), and a container
could begin as /proc/self/exe itself: it would then hold the machine's own interpreter, and could
write to it as soon as nobody runs it. Through this mount it cannot be written to, nor its mode or
owner changed; the mount stands in no folder, so that nobody can change it back (ADR 0071).
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from pathlib import Path

from livesize.runtime.interface import RuntimeCallError

_SYS_OPEN_TREE, _SYS_MOUNT_SETATTR = 428, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, 0o2000000
_READ_ONLY_NOSUID_NODEV = 1 | 2 | 4


class _MountAttributes(ctypes.Structure):
    """struct mount_attr (mount_setattr(2))."""

    _fields_ = (
        ("to_set", ctypes.c_uint64),
        ("to_clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


class Interpreter:
    """Open from ``open`` to ``close``; what it started goes on afterwards."""

    def __init__(self) -> None:
        self.descriptor = -1
        home = {"PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"}
        shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
        library = {"LD_LIBRARY_PATH": f"{sys.base_exec_prefix}/lib"} if shared else {}
        # A program that was started by a descriptor does not know where it stands.
        self.environment = {**home, **library}

    def open(self) -> None:
        self.close()
        path = str(Path(sys.executable).resolve())
        try:
            self.descriptor = _copy_mount(path)
            _make_read_only(self.descriptor)
        except OSError as failure:
            self.close()
            raise RuntimeCallError(
                f"cannot mount {path} read-only for containers: {failure.strerror}; this takes"
                " root, or a user namespace, and Linux 5.12 or newer"
            ) from failure

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def command(self, descriptor: int, script: Path) -> tuple[str, ...]:
        """Run the compiled ``script`` by an interpreter that is open as ``descriptor``: nothing
        of a user's, no site packages, and nothing from the folder it happens to stand in."""
        return (f"/proc/self/fd/{descriptor}", "-s", "-P", "-S", "-B", str(script))


def _copy_mount(path: str) -> int:
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)
    return _system_call(_SYS_OPEN_TREE, _AT_FDCWD, path.encode(), flags)


def _make_read_only(mount: int) -> None:
    wanted = _MountAttributes(to_set=_READ_ONLY_NOSUID_NODEV)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    empty = ctypes.c_uint(_AT_EMPTY_PATH)
    _system_call(_SYS_MOUNT_SETATTR, mount, b"", empty, ctypes.byref(wanted), size)


def _system_call(number: int, *arguments: object) -> int:
    answer = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
