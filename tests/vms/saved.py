"""Guests, each booted once in a session and saved; a test gets one back as it was, in a second.

A restored VM is given to a runtime the way any VM is that runs when an agent starts: with QEMU in
its groups and its records beside it, so that ``open`` finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import pytest

from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.interface import ContainerGroup, ContainerPhase, PodGroup, Runtime
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.libvirt.files import VmFiles
from livesize.runtime.libvirt.identity import domain_name
from livesize.runtime.libvirt.outstanding import BalloonRequest
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import StartedVm, VmFolders, VmRecord
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from livesize.runtime.process.machine_facts import boot_id
from livesize.runtime.process.processes import read_start_ticks
from livesize.runtime.vm import VmView
from livesize.runtime.vm_config import VmConfig
from vms.real import (
    BOOT_SECONDS,
    LIMITS,
    UID,
    VM,
    Place,
    check_tools,
    clear,
    place,
    pod_config,
    vm_config,
)

ANSWER_SECONDS = 20.0
_SAVED: pytest.StashKey[dict[VmConfig, SavedGuest]] = pytest.StashKey()


def hears_agent(view: VmView) -> bool:
    return view.guest is not None and view.guest.agent


def saved_guest(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
    vm: VmConfig = VM,
) -> SavedGuest:
    """The session's one of these, made for whoever asks first."""
    check_tools(not_run)
    guests = request.config.stash.setdefault(_SAVED, {})
    if vm not in guests:
        guest = SavedGuest(place(tmp_path_factory.mktemp("saved")), vm)

        def remove() -> None:
            """A test that gets a second chance comes after this, and needs a new one."""
            del guests[vm]
            guest.remove()

        guests[vm] = guest
        request.session.addfinalizer(remove)
        asyncio.run(guest.save())
    return guests[vm]


class SavedGuest:
    """``where.runtime()`` makes a runtime that finds the guest, after ``restore``."""

    def __init__(self, where: Place, vm: VmConfig = VM) -> None:
        self.where = where
        self._vm = vm
        self._daemon = LibvirtDaemon(where.state / "libvirt", where.images, use_kvm=False)
        self._file = self._daemon.root / "lib" / "saved"
        self._definition = ""
        self._owner: VmOwner | None = None

    async def save(self) -> None:
        """Boot it, until guest and agent answer, and save it; it does not run any more."""
        runtime = self.where.runtime()
        await runtime.open()
        try:
            await runtime.create_pod(pod_config())
            await runtime.start_container(vm_config(vm=self._vm))
            view = await runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
            assert hears_agent(view), view
            await asyncio.to_thread(self._save)
            await _ended(runtime)
        finally:
            await runtime.close()

    async def restore(self) -> None:
        """It runs again, from where it was saved, whatever was done to it since."""
        await asyncio.to_thread(self._restore)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[LibvirtRuntime]:
        """A runtime with the guest as it was saved."""
        await self.restore()
        runtime = self.where.runtime()
        try:
            await runtime.open()
            await runtime.wait_vm(UID, hears_agent, ANSWER_SECONDS)
            yield runtime
        finally:
            await put_away(runtime)

    def remove(self) -> None:
        """The end of the session: nothing of it stays."""

        async def cleared() -> None:
            runtime = self.where.runtime()
            await runtime.open()
            await clear(runtime)

        asyncio.run(cleared())
        self._file.unlink(missing_ok=True)

    def _save(self) -> None:
        import libvirt

        with self._connection() as connection:
            domain = connection.lookupByName(domain_name(UID))
            self._definition = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
            self._owner = VmFolders(self.where.state).of(UID).owner()
            domain.save(self._daemon.namespace_path(self._file))

    def _restore(self) -> None:
        import libvirt

        self._daemon.start()
        assert self._owner is not None
        VmFiles(self._daemon, UID, self._owner).prepare(self._vm, 0)
        with self._connection() as connection:
            connection.defineXML(self._definition)
            path = self._daemon.namespace_path(self._file)
            connection.restoreFlags(path, None, libvirt.VIR_DOMAIN_SAVE_RUNNING)
        self._hand_over(
            int((self._daemon.root / "run/qemu" / f"{domain_name(UID)}.pid").read_text())
        )

    def _hand_over(self, pid: int) -> None:
        """Groups and records as a start leaves them."""
        ticks, now = read_start_ticks(pid), time.time()
        assert ticks is not None
        groups = PodGroups(open_cgroups(SystemClock()), self.where.group, SystemClock())
        for group in (PodGroup(UID), ContainerGroup(UID, "vm")):
            groups.make(group, LIMITS)
        groups.join(ContainerGroup(UID, "vm"), pid)
        groups.close()
        folder = VmFolders(self.where.state).of(UID)
        assert self._owner is not None
        folder.save_owner(self._owner)
        folder.save_pod(pod_config())
        folder.begin(VmRecord("saved", vm_config(vm=self._vm), boot_id(), now))
        left_bytes = self._vm.balloon_bytes
        balloon = None if left_bytes is None else BalloonRequest(left_bytes)
        vcpus = self._vm.vcpus
        folder.save_started(StartedVm(pid, ticks, now, vcpus, is_released=True, balloon=balloon))

    @contextlib.contextmanager
    def _connection(self) -> Any:
        """Through a descriptor of the folder: a socket's path may have 107 characters only."""
        import libvirt

        folder = os.open(self._daemon.socket.parent, os.O_PATH | os.O_DIRECTORY)
        deadline = time.monotonic() + ANSWER_SECONDS
        uri = f"qemu:///system?socket=/proc/self/fd/{folder}/{self._daemon.socket.name}"
        try:
            while True:
                try:
                    connection = libvirt.open(uri)
                    break
                except libvirt.libvirtError:
                    assert time.monotonic() < deadline, self._daemon.why_not()
                time.sleep(0.01)
        finally:
            os.close(folder)
        try:
            yield connection
        finally:
            connection.close()


async def put_away(runtime: Runtime) -> None:
    """End the guest; its libvirtd stays, for the next one."""
    pod = runtime.pod(UID)
    try:
        if pod is not None and pod.containers:
            await runtime.stop_container(UID, "vm", 0)
    finally:
        await runtime.close()


async def _ended(runtime: LibvirtRuntime) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        while _phase(runtime) is not ContainerPhase.EXITED:
            await asyncio.sleep(0.01)


def _phase(runtime: LibvirtRuntime) -> ContainerPhase:
    pod = runtime.pod(UID)
    assert pod is not None
    return pod.containers[0].phase
