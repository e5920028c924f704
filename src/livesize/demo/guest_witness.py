"""Asks a guest what it sees, and libvirt what is in its machine, without asking Livesize: through
QEMU's guest agent, on a connection of the demo's own to libvirtd. Calls block and belong on a
thread.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from livesize.api.cpu_list import parse_cpu_list
from livesize.api.vm_changes import DeviceKind
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.connection import load_libvirt
from livesize.runtime.libvirt.facts import parse_facts

_ANSWER_SECONDS = 5
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

T = TypeVar("T")


class GuestReading(msgspec.Struct, frozen=True):
    """From the guest's own /proc and /sys."""

    vcpus_online: int
    memory_total_bytes: int
    nodes_bytes: tuple[int, ...]  # MemTotal of each NUMA node, by its number
    uptime_seconds: float
    boot_id: str


class GuestWitness:
    def __init__(self, libvirt_socket: Path, domain_name: str) -> None:
        self._socket = libvirt_socket
        self._domain_name = domain_name
        load_libvirt().registerErrorHandler(lambda *_: None, None)  # it would print what we raise

    def ask(self) -> GuestReading:
        """RuntimeCallError where the guest's agent does not answer."""
        return self._on_domain(_ask)

    def dimms_bytes(self) -> tuple[int, ...]:
        """The DIMMs that its QEMU has, the largest first."""
        return self._on_domain(lambda domain: parse_dimms(domain.XMLDesc(0)))

    def _on_domain(self, call: Callable[[Any], T]) -> T:
        libvirt = load_libvirt()
        # By the folder's descriptor: a socket's path may have 107 characters only.
        folder = os.open(self._socket.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            uri = f"qemu:///system?socket=/proc/self/fd/{folder}/{self._socket.name}"
            connection = libvirt.open(uri)
            try:
                return call(connection.lookupByName(self._domain_name))
            finally:
                connection.close()
        except libvirt.libvirtError as failure:
            raise RuntimeCallError(f"neither guest nor libvirt answers: {failure}") from failure
        finally:
            os.close(folder)


def parse_word(files: dict[str, str]) -> GuestReading:
    """From the text of the guest's files, by path. Pure."""
    memory = dict(line.split(":", 1) for line in files["/proc/meminfo"].splitlines())
    nodes = sorted(parse_cpu_list(files[_NODES].strip()))
    return GuestReading(
        vcpus_online=len(parse_cpu_list(files[_ONLINE].strip())),
        memory_total_bytes=int(memory["MemTotal"].split()[0]) * 1024,
        nodes_bytes=tuple(_total_of_node(files[_node_file(node)]) for node in nodes),
        uptime_seconds=float(files["/proc/uptime"].split()[0]),
        boot_id=files[_BOOT_ID].strip(),
    )


_ONLINE = "/sys/devices/system/cpu/online"
_NODES = "/sys/devices/system/node/online"
_FILES = ("/proc/meminfo", "/proc/uptime", _BOOT_ID, _ONLINE, _NODES)


def parse_dimms(xml: str) -> tuple[int, ...]:
    """From a domain's description. Pure."""
    devices = parse_facts(xml).devices
    sizes = (device.size_bytes for device in devices if device.kind is DeviceKind.DIMM)
    return tuple(sorted(sizes, reverse=True))


def _node_file(node: int) -> str:
    return f"/sys/devices/system/node/node{node}/meminfo"


def _total_of_node(text: str) -> int:
    """Its lines look like "Node 1 MemTotal:  249004 kB"."""
    (total,) = (line.split()[3] for line in text.splitlines() if line.split()[2] == "MemTotal:")
    return int(total) * 1024


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

    files = {path: read(path) for path in _FILES}
    for node in parse_cpu_list(files[_NODES].strip()):
        files[_node_file(node)] = read(_node_file(node))
    return parse_word(files)
