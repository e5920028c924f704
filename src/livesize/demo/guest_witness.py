"""Asks a guest what it sees, without asking Livesize: through QEMU's guest agent, on a connection
of the demo's own to libvirtd. Calls block and belong on a thread.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.connection import load_libvirt

_ANSWER_SECONDS = 5
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class GuestReading(msgspec.Struct, frozen=True):
    """From the guest's own /proc and /sys."""

    vcpus_online: int
    memory_total_bytes: int
    uptime_seconds: float
    boot_id: str


class GuestWitness:
    def __init__(self, libvirt_socket: Path, domain_name: str) -> None:
        self._socket = libvirt_socket
        self._domain_name = domain_name
        load_libvirt().registerErrorHandler(lambda *_: None, None)  # it would print what we raise

    def ask(self) -> GuestReading:
        """RuntimeCallError where the guest's agent does not answer."""
        libvirt = load_libvirt()
        # By the folder's descriptor: a socket's path may have 107 characters only.
        folder = os.open(self._socket.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            uri = f"qemu:///system?socket=/proc/self/fd/{folder}/{self._socket.name}"
            connection = libvirt.open(uri)
            try:
                return _ask(connection.lookupByName(self._domain_name))
            finally:
                connection.close()
        except libvirt.libvirtError as failure:
            raise RuntimeCallError(f"the guest's agent does not answer: {failure}") from failure
        finally:
            os.close(folder)


def parse_word(files: dict[str, str]) -> GuestReading:
    """From the text of the guest's files, by path. Pure."""
    memory = dict(line.split(":", 1) for line in files["/proc/meminfo"].splitlines())
    return GuestReading(
        vcpus_online=sum(_range_size(part) for part in files[_ONLINE].strip().split(",")),
        memory_total_bytes=int(memory["MemTotal"].split()[0]) * 1024,
        uptime_seconds=float(files["/proc/uptime"].split()[0]),
        boot_id=files[_BOOT_ID].strip(),
    )


_ONLINE = "/sys/devices/system/cpu/online"
_FILES = ("/proc/meminfo", "/proc/uptime", _BOOT_ID, _ONLINE)


def _range_size(text: str) -> int:
    """The kernel writes 0-3 for four of them, and 5 for one."""
    first, _, last = text.partition("-")
    return int(last or first) - int(first) + 1


def _ask(domain: Any) -> GuestReading:
    import libvirt_qemu

    def command(name: str, **arguments: object) -> Any:
        words = json.dumps({"execute": name, "arguments": arguments})
        return json.loads(libvirt_qemu.qemuAgentCommand(domain, words, _ANSWER_SECONDS, 0))[
            "return"
        ]

    def read(path: str) -> str:
        handle = command("guest-file-open", path=path)
        told = command("guest-file-read", handle=handle, count=4096)
        command("guest-file-close", handle=handle)
        return base64.b64decode(told["buf-b64"]).decode()

    return parse_word({path: read(path) for path in _FILES})
