"""What is asked of a guest through its agent: calls that block, each answer bounded.

The agent runs in the guest and may say anything. An answer has a size and a shape, all answers to
one question together have a time, and every figure has to fit the domain (guest_bounds.py). What
does not is an UnfitWordsError with a sentence, and nothing of it is used.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from typing import Any, TypeVar

import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.compose import plan_switch
from livesize.runtime.libvirt.connection import load_libvirt
from livesize.runtime.libvirt.guest_bounds import (
    GuestLimits,
    ImplausibleReportError,
    check_boot,
    check_memory,
    guest_cpus,
    memory_by_node,
    shown,
)
from livesize.runtime.vm import GuestSilentError, GuestView

AGENT_SECONDS = 5
"""For one answer, and for all answers to one question together."""
_ANSWER_BYTES = 1024 * 1024  # of a list of 16,384 blocks of memory
_FILE_BYTES = 4096
_SMALLEST_BLOCK_BYTES = 2 * 1024 * 1024
_POLL_SECONDS = 0.02
_NODE_MEMORY = "/sys/devices/system/node/node{}/meminfo"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

# A block that cannot be put into the movable zone stays offline, and the guest's total says so.
_ONLINE_MOVABLE = """\
for state in /sys/devices/system/memory/memory*/state; do
  read -r now <$state && [ "$now" = offline ] && echo online_movable >$state
done
:
"""

T = TypeVar("T")


class _Returned(msgspec.Struct, frozen=True):
    """The agent's own frame around an answer."""

    value: msgspec.Raw = msgspec.field(name="return")


class _FileContent(msgspec.Struct, frozen=True):
    content: str = msgspec.field(name="buf-b64")


class _Begun(msgspec.Struct, frozen=True):
    pid: int


class _Command(msgspec.Struct, frozen=True):
    exited: bool
    exitcode: int = 0


class MemoryBlock(msgspec.Struct, frozen=True):
    index: int = msgspec.field(name="phys-index")
    online: bool


class GuestQuery:
    """One question to the agent of a domain of libvirt, which may take several calls."""

    def __init__(self, domain: Any, limits: GuestLimits, clock: Clock) -> None:
        self._domain = domain
        self._limits = limits
        self._clock = clock
        self._deadline = clock.monotonic() + AGENT_SECONDS
        self._pause = threading.Event()  # never set: waiting on it is sleeping

    def view(self) -> GuestView:
        """Files are read through the agent: it has no word for memory or for the boot id."""
        lines = self._file("/proc/meminfo").splitlines()
        memory = dict(line.split(":", 1) for line in lines if ":" in line)
        seen_bytes, available_bytes = (_kib(memory, key) for key in ("MemTotal", "MemAvailable"))
        check_memory(seen_bytes, available_bytes, self._limits)
        boot_id = self._file(_BOOT_ID).strip()
        uptime_seconds = _seconds(self._file("/proc/uptime").partition(" ")[0])
        check_boot(boot_id, uptime_seconds)
        return GuestView(
            boot_id=boot_id,
            uptime_seconds=uptime_seconds,
            vcpus_online=len(self._cpus("online")[0]),
            memory_seen_bytes=seen_bytes,
            memory_available_bytes=available_bytes,
            agent=True,
            memory_by_node=self._memory_by_node(),
        )

    def switch_vcpus(self, count: int) -> None:
        """Have the guest use so many of those that are plugged in."""
        online, offlinable, present = self._cpus("online", "offlinable", "vcpus")
        switch_on, switch_off = plan_switch(online, offlinable, present, count)
        for chosen, state in ((switch_on, 1), (switch_off, 0)):
            if chosen:
                self._domain.setGuestVcpus(",".join(str(number) for number in chosen), state)

    def online_memory(self) -> bool:
        """Bring blocks online that are not; False: where the guest's kernel may hold them for good.
        guest-exec may be blocked in the guest: then its agent has a word of its own for it, which
        cannot say where."""
        libvirt = load_libvirt()
        if not any(not block.online for block in self._blocks()):
            return True
        try:
            self._run(_ONLINE_MOVABLE)
        except libvirt.libvirtError as refusal:
            if is_silence(libvirt, refusal):
                raise
        else:
            return True
        offline = [block.index for block in self._blocks() if not block.online]
        chosen = [{"phys-index": index, "online": True} for index in offline]
        try:
            self._command("guest-set-memory-blocks", msgspec.Raw, **{"mem-blks": chosen})
        except libvirt.libvirtError as refusal:
            if is_silence(libvirt, refusal):
                raise
            raise RuntimeCallError(
                "the guest's agent allows neither guest-exec nor guest-set-memory-blocks: allow one"
                " of them in the guest, or boot it with memhp_default_state=online_movable"
            ) from refusal
        return False

    def _memory_by_node(self) -> tuple[int, ...]:
        """Where there are several. A kernel without NUMA has no such files."""
        if self._limits.cells == 1:
            return ()
        libvirt = load_libvirt()
        nodes: dict[str, int] = {}
        for number in range(self._limits.cells):
            try:
                content = self._file(_NODE_MEMORY.format(number))
            except libvirt.libvirtError as refusal:
                if is_silence(libvirt, refusal):
                    raise
                continue
            lines = (line.removeprefix(f"Node {number} ") for line in content.splitlines())
            memory = dict(line.split(":", 1) for line in lines if ":" in line)
            nodes[str(number)] = _kib(memory, "MemTotal") // 1024
        return memory_by_node(nodes, self._limits)

    def _blocks(self) -> list[MemoryBlock]:
        blocks = self._command("guest-get-memory-blocks", list[MemoryBlock])
        most = self._limits.max_memory_bytes // _SMALLEST_BLOCK_BYTES + 1024
        if len(blocks) > most:
            raise ImplausibleReportError(
                f"it names {len(blocks)} blocks of memory, more than {most}"
            )
        return blocks

    def _run(self, script: str) -> None:
        begun = self._command("guest-exec", _Begun, path="/bin/sh", arg=["-c", script])
        while not (ended := self._command("guest-exec-status", _Command, pid=begun.pid)).exited:
            self._pause.wait(_POLL_SECONDS)
        if ended.exitcode != 0:
            raise RuntimeCallError(
                f"a command to bring the guest's memory online ended with {ended.exitcode}"
            )

    def _cpus(self, *keys: str) -> tuple[tuple[int, ...], ...]:
        told = self._domain.guestVcpus()
        if told is None:  # the bindings do not raise here
            raise GuestSilentError("the guest's agent does not say which vCPUs it uses")
        return tuple(guest_cpus(str(told.get(key, "")), self._limits) for key in keys)

    def _file(self, path: str) -> str:
        handle = self._command("guest-file-open", int, path=path)
        try:
            told = self._command("guest-file-read", _FileContent, handle=handle, count=_FILE_BYTES)
        finally:
            self._command("guest-file-close", msgspec.Raw, handle=handle)
        try:
            content = base64.b64decode(told.content)
        except binascii.Error as failure:
            raise ImplausibleReportError(
                f"{path} comes as something that is not base64"
            ) from failure
        if len(content) > _FILE_BYTES:
            raise ImplausibleReportError(
                f"{path} comes with {len(content)} bytes, not {_FILE_BYTES}"
            )
        return content.decode(errors="replace")

    def _command(self, name: str, kind: type[T], **arguments: object) -> T:
        import libvirt_qemu

        if self._clock.monotonic() > self._deadline:
            raise GuestSilentError(f"the guest's agent takes longer than {AGENT_SECONDS} s")
        words = json.dumps({"execute": name, "arguments": arguments})
        told = libvirt_qemu.qemuAgentCommand(self._domain, words, AGENT_SECONDS, 0)
        if len(told) > _ANSWER_BYTES:
            raise ImplausibleReportError(f"{name} is answered with {len(told)} bytes")
        try:
            return msgspec.json.decode(msgspec.json.decode(told, type=_Returned).value, type=kind)
        except (msgspec.MsgspecError, RecursionError) as failure:
            raise ImplausibleReportError(
                f"{name} is answered in a way that makes no sense"
            ) from failure


def is_silence(libvirt: Any, failure: Any) -> bool:
    """The guest still boots, has no agent, or hangs."""
    silent = ("AGENT_UNRESPONSIVE", "AGENT_UNSYNCED", "AGENT_COMMAND_TIMEOUT")
    codes = {getattr(libvirt, f"VIR_ERR_{name}", -1) for name in silent}
    return failure.get_error_code() in codes


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as failure:
        raise ImplausibleReportError(f"its /proc/uptime says {shown(text)}") from failure


def _kib(memory: dict[str, str], key: str) -> int:
    number = memory.get(key, "").strip().partition(" ")[0]
    if not number.isdecimal() or len(number) > 18:
        raise ImplausibleReportError(f"its /proc/meminfo has no {key}")
    return int(number) * 1024
