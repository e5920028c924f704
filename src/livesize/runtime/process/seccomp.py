"""The system calls a workload may make, as a filter the kernel understands (seccomp(2)).

The same calls as under containerd's default profile (ADR 0079): every one that we know of, but
those below.
What opens the kernel to attack without serving ordinary programs is refused to all; what goes with
a capability is refused without it, so that a hole in its check is out of reach too. A call that is
newer than our table answers "no such call", and libraries use an older one. Pure: the result is
bytes for the launcher.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Iterable

from livesize.runtime.process.system_calls import NEWEST, SYSTEM_CALLS

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_VSOCK = 40  # the host of this machine, where it is a virtual one
# As it is; with 4 GiB or all addresses; without random addresses, alone and with the former; ask.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_REFUSED = (
    "add_key keyctl request_key "  # keys of the kernel, which know no containers
    "io_uring_enter io_uring_register io_uring_setup userfaultfd "  # the usual ways to attack it
    "kexec_file_load kexec_load pivot_root swapoff swapon "
    "migrate_pages move_pages "
    "listmount statmount lsm_get_self_attr lsm_list_modules lsm_set_self_attr "
    # No longer in the kernel, or never were.
    "_sysctl afs_syscall create_module get_kernel_syms getpmsg nfsservctl putpmsg query_module "
    "security sysfs tuxcall uselib ustat vserver"
)
_WITH_CAPABILITY = {
    "BPF": "bpf",
    "DAC_READ_SEARCH": "open_by_handle_at",
    "PERFMON": "perf_event_open",
    "SYSLOG": "syslog",
    "SYS_ADMIN": (
        "bpf clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount"
        " mount_setattr move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname"
        " sethostname setns syslog umount2 unshare"
    ),
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module finit_module init_module",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "SYS_RAWIO": "ioperm iopl",
    "SYS_TIME": "clock_settime settimeofday",
    "SYS_TTY_CONFIG": "vhangup",
}

_LOAD_WORD, _RETURN = 0x20, 0x06
_JUMP_EQUAL, _JUMP_ABOVE, _JUMP_AT_LEAST, _JUMP_SET = 0x15, 0x25, 0x35, 0x45
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_FIRST_ARGUMENT = 0, 4, 16


def allowed_calls(machine: str, capabilities: frozenset[str]) -> dict[str, int]:
    """Name and number of what is not refused whatever it is asked with."""
    given = {name for one in capabilities for name in _WITH_CAPABILITY.get(one, "").split()}
    held = {name for names in _WITH_CAPABILITY.values() for name in names.split()} - given
    refused = held.union(_REFUSED.split())
    known = SYSTEM_CALLS.get(machine, {})
    return {name: number for name, number in known.items() if name not in refused}


@functools.lru_cache(maxsize=64)
def build_filter(machine: str, capabilities: frozenset[str]) -> bytes:
    """The filter for a machine as platform.machine() names it; empty where we have no list.

    clone3 answers "no such call" to who may not make namespaces, because a filter cannot see its
    flags: libraries then fall back to clone, whose flags it can.
    """
    if machine not in _ARCHITECTURES:
        return b""
    numbers = SYSTEM_CALLS[machine]
    program = [
        _instruction(_LOAD_WORD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _refuse(errno.ENOSYS),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        program += [_instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    if "SYS_ADMIN" not in capabilities:
        program += [_instruction(_JUMP_EQUAL, numbers["clone3"], 0, 1), _refuse(errno.ENOSYS)]
        flagged = _instruction(_JUMP_SET, _NAMESPACE_FLAGS, 0, 1)
        program += _judged(numbers["clone"], [flagged, _refuse(errno.EPERM), _allow()])
    vsock = _instruction(_JUMP_EQUAL, _VSOCK, 0, 1)
    program += _judged(numbers["socket"], [vsock, _refuse(errno.EPERM), _allow()])
    program += _judged(numbers["personality"], _one_of(_PERSONALITIES))
    for first, last in _ranges(allowed_calls(machine, capabilities).values()):
        program += [
            _instruction(_JUMP_ABOVE, last, 3, 0),
            _instruction(_JUMP_AT_LEAST, first, 0, 1),
            _allow(),
            _refuse(errno.EPERM),
        ]
    program += [_instruction(_JUMP_ABOVE, NEWEST, 0, 1), _refuse(errno.ENOSYS)]
    program.append(_refuse(errno.EPERM))
    return b"".join(program)


def _judged(number: int, judgement: list[bytes]) -> list[bytes]:
    """A call that is judged by its first argument; ``judgement`` always returns."""
    load = _instruction(_LOAD_WORD, _OFFSET_FIRST_ARGUMENT)
    return [_instruction(_JUMP_EQUAL, number, 0, 1 + len(judgement)), load, *judgement]


def _one_of(values: tuple[int, ...]) -> list[bytes]:
    tests = [(_instruction(_JUMP_EQUAL, value, 0, 1), _allow()) for value in values]
    return [*(one for test in tests for one in test), _refuse(errno.EPERM)]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers without a gap, in order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)
