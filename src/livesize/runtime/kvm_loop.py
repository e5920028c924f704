"""Runs a loop of a million steps on one virtual CPU of /dev/kvm, and prints the seconds it took.

A program of its own, started by accelerator.py: a KVM that hangs is ended by SIGALRM, which kills
this process and nobody else. Only the standard library is used. The guest is as small as can be:
64-bit mode with the first 2 MiB mapped to themselves, the loop, and one OUT, which gives control
back.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import time

LOOPS = 1_000_000
LIMIT_SECONDS = 0.5

_CREATE_VM = 0xAE01
_GET_VCPU_MMAP_SIZE = 0xAE04
_CREATE_VCPU = 0xAE41
_SET_USER_MEMORY_REGION = 0x4020AE46
_RUN = 0xAE80
_SET_REGS = 0x4090AE82
_GET_SREGS = 0x8138AE83
_SET_SREGS = 0x4138AE84

_EXIT_IO = 2
_MEMORY_BYTES = 2 * 1024 * 1024
_TABLES = (0x1000, 0x2000, 0x3000)
_CODE = 0x4000
_PRESENT_WRITABLE = 3
_LARGE_PAGE = 1 << 7
_CR0_PE_PG = (1 << 0) | (1 << 31)
_CR4_PAE = 1 << 5
_EFER_LME_LMA = (1 << 8) | (1 << 10)
_SEGMENT = struct.Struct("<QIH10B")
_CODE_SEGMENT = _SEGMENT.pack(0, 0xFFFFFFFF, 8, 11, 1, 0, 0, 1, 1, 1, 0, 0, 0)
_DATA_SEGMENT = _SEGMENT.pack(0, 0xFFFFFFFF, 16, 3, 1, 0, 1, 1, 0, 1, 0, 0, 0)
_CONTROLS_OFFSET = 8 * _SEGMENT.size + 2 * 16  # eight segments, two descriptor tables


def run_loop(device: str) -> float:
    """Seconds for the loop. OSError where the device cannot do it."""
    kvm = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = _memory()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    region = struct.pack("<IIQQQ", 0, 0, 0, _MEMORY_BYTES, address)
    fcntl.ioctl(machine, _SET_USER_MEMORY_REGION, region)
    vcpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    shared = mmap.mmap(vcpu, fcntl.ioctl(kvm, _GET_VCPU_MMAP_SIZE, 0))
    _enter_64_bit_mode(vcpu)
    began = time.perf_counter()
    fcntl.ioctl(vcpu, _RUN, 0)
    seconds = time.perf_counter() - began
    (reason,) = struct.unpack_from("<I", shared, 8)
    if reason != _EXIT_IO:
        raise OSError(0, f"the loop ended with exit reason {reason}")
    return seconds


def _memory() -> mmap.mmap:
    memory = mmap.mmap(-1, _MEMORY_BYTES)
    level4, level3, level2 = _TABLES
    struct.pack_into("<Q", memory, level4, level3 | _PRESENT_WRITABLE)
    struct.pack_into("<Q", memory, level3, level2 | _PRESENT_WRITABLE)
    struct.pack_into("<Q", memory, level2, _LARGE_PAGE | _PRESENT_WRITABLE)
    # mov ecx, LOOPS; dec ecx; jnz -4; out 0x10, al; hlt
    code = b"\xb9" + struct.pack("<I", LOOPS) + b"\xff\xc9\x75\xfc\xe6\x10\xf4"
    memory[_CODE : _CODE + len(code)] = code
    return memory


def _enter_64_bit_mode(vcpu: int) -> None:
    special = bytearray(fcntl.ioctl(vcpu, _GET_SREGS, bytes(312)))
    for number in range(6):  # cs, ds, es, fs, gs, ss
        segment = _CODE_SEGMENT if number == 0 else _DATA_SEGMENT
        start = number * _SEGMENT.size
        special[start : start + _SEGMENT.size] = segment
    cr0, cr2, _, cr4, cr8, efer = struct.unpack_from("<6Q", special, _CONTROLS_OFFSET)
    controls = (cr0 | _CR0_PE_PG, cr2, _TABLES[0], cr4 | _CR4_PAE, cr8, efer | _EFER_LME_LMA)
    struct.pack_into("<6Q", special, _CONTROLS_OFFSET, *controls)
    fcntl.ioctl(vcpu, _SET_SREGS, bytes(special))
    general = [0] * 16 + [_CODE, 2]  # rip, rflags
    fcntl.ioctl(vcpu, _SET_REGS, struct.pack("<18Q", *general))


def main() -> None:
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        sys.stdout.write(f"{run_loop(sys.argv[1]):.6f}\n")
    except OSError as failure:
        sys.exit(failure.strerror or str(failure))


if __name__ == "__main__":
    main()
