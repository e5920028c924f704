"""The system calls a workload may not make, as a filter the kernel understands (seccomp(2)).

A modest list, above the dropped capabilities: what opens the kernel to attack without serving
ordinary programs (keys, bpf, io_uring, userfaultfd, new namespaces), and what needs capabilities
that a workload never has. Pure: the result is bytes for the launcher.
"""

from __future__ import annotations

import errno
import struct

_X86_64 = 0xC000003E
_AARCH64 = 0xC00000B7
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

_SINCE_5_0 = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "mount_setattr": 442, "quotactl_fd": 443,
}  # fmt: skip
_DENIED = {
    _X86_64: {
        "syslog": 103, "uselib": 134, "pivot_root": 155, "acct": 163, "settimeofday": 164,
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172,
        "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176,
        "query_module": 178, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212,
        "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
        "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304,
        "setns": 308, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, **_SINCE_5_0,
    },
    _AARCH64: {
        "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "quotactl": 60,
        "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "reboot": 142, "settimeofday": 170, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225,
        "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268, "kcmp": 272,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
        **_SINCE_5_0,
    },
}  # fmt: skip
_CLONE = {_X86_64: 56, _AARCH64: 220}
_CLONE3 = 435
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_FIRST_ARGUMENT = 0, 4, 16


def denied_calls(machine: str) -> dict[str, int]:
    """Name and number of what is refused with EPERM; empty for a machine we have no list for."""
    architecture = _MACHINES.get(machine)
    return {} if architecture is None else dict(_DENIED[architecture])


def build_filter(machine: str) -> bytes:
    """The filter for a machine as platform.machine() names it; empty where we have no list.

    clone3 answers ENOSYS, because a filter cannot see its flags: libraries then fall back to
    clone, whose flags it can.
    """
    architecture = _MACHINES.get(machine)
    if architecture is None:
        return b""
    program = [
        _instruction(_LOAD_WORD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_EQUAL, architecture, 1, 0),
        _refuse(errno.ENOSYS),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    if architecture == _X86_64:
        program += [_instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    for number in sorted(_DENIED[architecture].values()):
        program += [_instruction(_JUMP_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    program += [_instruction(_JUMP_EQUAL, _CLONE3, 0, 1), _refuse(errno.ENOSYS)]
    program += [
        _instruction(_JUMP_EQUAL, _CLONE[architecture], 0, 3),
        _instruction(_LOAD_WORD, _OFFSET_FIRST_ARGUMENT),
        _instruction(_JUMP_SET, _NAMESPACE_FLAGS, 0, 1),
        _refuse(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)
