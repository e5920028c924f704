"""Bare libvirt calls on a guest with the same XML, as the yardstick for virtual machines.

A libvirtd of its own, started with the very settings the product's has. The domain is defined
before anything is timed; no limits, no records, no checks, no API: one call each. Two things are
as with the product, so that the machine's noise hits both alike: QEMU stands in a control group
beside the product's, though without limits, and somebody listens on the guest's line, because a
guest that is listened to has more to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from livesize.api.vm_changes import DeviceKind, VmDevice, VmTune
from livesize.api.vm_size import Technology
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.guest_channels import CHANNEL
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.libvirt.facts import parse_facts, with_requested
from livesize.runtime.libvirt.guest_bounds import GuestLimits, GuestReport
from livesize.runtime.libvirt.guest_channel import GuestChannel
from livesize.runtime.libvirt.memory_xml import render_device
from livesize.runtime.libvirt.vcpu_xml import with_tune

ANSWER_SECONDS = 20.0
POLL_SECONDS = 0.02
DIMM_ALIAS = "ua-dimm0"

T = TypeVar("T")


class Definition(msgspec.Struct, frozen=True):
    """A domain of the product's, to be made again. ``files_of``: the folder of its libvirtd."""

    uid: str
    xml: str
    files_of: Path
    technology: Technology


class RawGroup:
    """As deep down as the product's own, and as heavy."""

    def __init__(self, node: str) -> None:
        self._cgroups = open_cgroups(SystemClock())
        self._paths = [f"livesize/{node}-raw", f"livesize/{node}-raw/pod"]
        self._paths.append(f"{self._paths[-1]}/vm")
        for path in self._paths:
            self._cgroups.make(path)

    def join(self, pid: int) -> None:
        for name in self._cgroups.join_files(self._paths[-1]):
            Path(name).write_text(str(pid))

    def remove(self) -> None:
        for path in reversed(self._paths):
            self._cgroups.remove(path)


class RawVm:
    """One domain. Calls go through a thread, because they block and the loop watches consoles."""

    def __init__(
        self, daemon: LibvirtDaemon, connection: Any, group: RawGroup, definition: Definition
    ) -> None:
        uid, files_of = definition.uid, definition.files_of
        self._daemon = daemon
        self._group = group
        self._uid = uid
        for part in ("lib", "log"):
            _copy_files(files_of / part / "vms" / uid, daemon.root / part / "vms" / uid)
        # As the product does: libvirt starts no domain that says how much CPU time it has.
        self._domain = connection.defineXML(with_tune(definition.xml, VmTune()))
        self._channel = GuestChannel(
            GuestLimits(4096, 2**60), self._reported, lambda: None, lambda _: None
        )
        self.technology = definition.technology
        self._heard: asyncio.Future[float] | None = None
        self._removed: asyncio.Future[float] | None = None
        self._loop = asyncio.get_running_loop()
        self._follow_removals(connection)

    @property
    def console(self) -> Path:
        return self._daemon.root / "log" / "vms" / self._uid / "0.log"

    async def boot(self) -> float:
        """Seconds from create() to the first word of the guest."""
        began = time.perf_counter()
        await asyncio.to_thread(self._domain.create)
        self._group.join(self._pid())
        self._heard = asyncio.get_running_loop().create_future()
        live = parse_facts(await asyncio.to_thread(self._domain.XMLDesc, 0))
        self._channel.open(self._daemon.host_path(live.channels[CHANNEL]))
        return await self._heard - began

    async def end(self) -> None:
        self._channel.close()
        await asyncio.to_thread(self._domain.destroy)

    async def plug(self, count: int) -> float:
        import libvirt

        return await self._timed(
            lambda: self._domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        )

    async def switch_last(self, count: int, *, on: bool) -> float:
        """Through the guest's agent: on or off with the last of so many vCPUs."""
        return await self._timed(lambda: self._domain.setGuestVcpus(str(count - 1), int(on)))

    async def request_memory(self, more_bytes: int) -> float:
        """So much above what it boots with: asked of the one virtio-mem device, or as a DIMM that
        is there or not. What is said to libvirt is made before the clock starts."""
        self._removed = None
        if self.technology is not Technology.DIMM:
            return await self._request_of_device(more_bytes)
        import libvirt

        live = libvirt.VIR_DOMAIN_AFFECT_LIVE
        if more_bytes:
            element = render_device(
                VmDevice(DIMM_ALIAS, DeviceKind.DIMM, 0, more_bytes, more_bytes, more_bytes)
            )
            return await self._timed(lambda: self._domain.attachDeviceFlags(element, live))
        self._removed = self._loop.create_future()
        return await self._timed(lambda: self._domain.detachDeviceAlias(DIMM_ALIAS, live))

    async def settled(self) -> float:
        """When the last change of the memory was over: nothing more comes, but of a DIMM on its
        way out the event that it has left."""
        return time.perf_counter() if self._removed is None else await self._removed

    async def _request_of_device(self, device_bytes: int) -> float:
        import libvirt

        facts = parse_facts(self._domain.XMLDesc(0))
        (device,) = facts.devices
        element = with_requested(facts, device.alias, device_bytes)
        return await self._timed(
            lambda: self._domain.updateDeviceFlags(element, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        )

    def _follow_removals(self, connection: Any) -> None:
        import libvirt

        def removed(*_: object) -> None:
            """Called by libvirt's thread."""
            at = time.perf_counter()
            self._loop.call_soon_threadsafe(self._removed_at, at)

        number = libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED
        connection.domainEventRegisterAny(self._domain, number, removed, None)

    def _removed_at(self, at: float) -> None:
        if self._removed is not None and not self._removed.done():
            self._removed.set_result(at)

    def _pid(self) -> int:
        folder = self._daemon.root / "run" / "qemu"
        return int((folder / f"{self._domain.name()}.pid").read_text())

    async def _timed(self, call: Callable[[], T]) -> float:
        """When it began; returns when the call has."""
        began = time.perf_counter()
        await asyncio.to_thread(call)
        return began

    def _reported(self, _report: GuestReport) -> None:
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(time.perf_counter())


@asynccontextmanager
async def raw_libvirt(
    folder: Path, images_dir: Path, node: str
) -> AsyncIterator[tuple[LibvirtDaemon, Any, RawGroup]]:
    """A libvirtd like the product's, a connection to it, and a group for its QEMU."""
    daemon, group = LibvirtDaemon(folder, images_dir, use_kvm=False), RawGroup(node)
    daemon.start()
    try:
        connection = await asyncio.to_thread(_connect, daemon.socket)
        try:
            yield daemon, connection, group
        finally:
            for domain in connection.listAllDomains():
                if domain.isActive():
                    await asyncio.to_thread(domain.destroy)
                domain.undefine()
            connection.close()
    finally:
        await asyncio.to_thread(daemon.stop)
        group.remove()


def read_definition(socket: Path, name: str) -> str:
    """The XML a libvirtd keeps of a domain."""
    import libvirt

    connection = _connect(socket)
    try:
        found: str = connection.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        return found
    finally:
        connection.close()


def _connect(socket: Path) -> Any:
    """Through a descriptor of its folder: a socket's path may have 107 characters only."""
    import libvirt

    _run_events()
    folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY)
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        while True:
            try:
                return libvirt.open(f"qemu:///system?socket=/proc/self/fd/{folder}/{socket.name}")
            except libvirt.libvirtError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_SECONDS)
    finally:
        os.close(folder)


@functools.cache
def _run_events() -> None:
    """One thread for the process, as the product has it, and before the first connection."""
    import libvirt

    libvirt.registerErrorHandler(lambda *_: None, None)  # it would print what we raise
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            with contextlib.suppress(libvirt.libvirtError):
                libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name="bench-libvirt-events", daemon=True).start()


def _copy_files(source: Path, target: Path) -> None:
    """With owners and rights: QEMU reads and writes them as its own user."""
    for folder in (target.parent, target):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    for path in source.iterdir():
        shutil.copy2(path, target / path.name)
        found = path.stat()
        os.chown(target / path.name, found.st_uid, found.st_gid)
