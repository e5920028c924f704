"""Real guests in real trouble: libvirtd killed, the guest silent or greedy, QEMU killed.

Each test has a guest of its own, restored from one that was booted once. What a VM does when all
is well stands in tests/contract/test_vm_runtime_contract.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from livesize.api.vm_changes import OnlineVcpus, PlugVcpus, VmChange
from livesize.runtime.interface import ContainerPhase, ContainerView
from livesize.runtime.libvirt import model
from livesize.runtime.libvirt.emulator import free_regions
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from livesize.runtime.vm import GuestSilentError, VmView
from vms.machines import begin_in_guest, libvirt_domain
from vms.real import BOOT_SECONDS, MIB, UID, VM, check_tools, have, place, pod_config, vm_config
from vms.saved import SavedGuest, hears_agent, saved_guest

pytestmark = pytest.mark.vms


@pytest.fixture
def saved(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> SavedGuest:
    return saved_guest(request, tmp_path_factory, not_run)


@pytest.fixture
async def runtime(saved: SavedGuest) -> AsyncIterator[LibvirtRuntime]:
    """With a guest that answers."""
    async with saved.running() as runtime:
        yield runtime


def container(runtime: LibvirtRuntime) -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    (view,) = pod.containers
    return view


def online(view: VmView) -> int:
    return view.guest.vcpus_online if view.guest else 0


def boot_id(view: VmView | None) -> str:
    assert view is not None
    assert view.guest is not None
    return view.guest.boot_id


async def changed(
    runtime: LibvirtRuntime, change: VmChange, holds: Callable[[VmView], bool]
) -> VmView:
    await runtime.change_vm(UID, change)
    view = await runtime.wait_vm(UID, holds, 60)
    assert holds(view), f"after {change}: {view}"
    return view


async def ended(runtime: LibvirtRuntime) -> ContainerView:
    """Wait for the end, by events alone."""
    events = runtime.events()
    async with asyncio.timeout(20):
        while (view := container(runtime)).phase is not ContainerPhase.EXITED:
            await anext(events)
    return view


async def test_qemu_runs_as_its_own_user_in_the_pods_group_with_all_its_threads(
    runtime: LibvirtRuntime, saved: SavedGuest
) -> None:
    await changed(runtime, PlugVcpus(2), lambda view: view.plugged_vcpus == 2)
    process = Path(f"/proc/{container(runtime).pid}")
    assert process.stat().st_uid != 0
    threads = list((process / "task").iterdir())
    assert any("CPU 1" in (thread / "comm").read_text() for thread in threads)
    for thread in threads:
        lines = (thread / "cgroup").read_text().splitlines()
        groups = [line.split(":", 2)[1:] for line in lines]
        inside = {names for names, path in groups if f"/{saved.where.group}/pod-{UID}/c-vm" in path}
        assert {"cpu", "cpuacct", "memory", "pids"} <= inside or "" in inside
    assert "machine" not in (process / "cgroup").read_text()


async def test_libvirtd_killed_is_started_again_and_the_guest_lives_on(
    runtime: LibvirtRuntime,
) -> None:
    before, pid = await runtime.refresh_vm(UID), container(runtime).pid
    assert runtime._environment is not None
    daemon = runtime._environment.daemon
    killed = daemon.pid()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    view = await changed(
        runtime, have(576 * MIB), lambda view: view.plugged_memory_bytes == 576 * MIB
    )
    assert (boot_id(view), container(runtime).pid) == (boot_id(before), pid)
    assert daemon.pid() not in {None, killed}
    events = runtime.events()  # the new libvirtd's reach us too
    await runtime.change_vm(UID, have(512 * MIB))
    async with asyncio.timeout(20):
        await anext(events)


async def test_a_silent_guest_is_not_heard_and_its_agent_refuses_in_time(
    runtime: LibvirtRuntime,
) -> None:
    before = await runtime.refresh_vm(UID)
    domain = await asyncio.to_thread(libvirt_domain, runtime)
    await asyncio.to_thread(domain.suspend)
    try:
        view = await runtime.refresh_vm(UID)
        assert (view.running, view.guest) == (False, None)
        with pytest.raises(GuestSilentError):
            async with asyncio.timeout(15):
                await runtime.change_vm(UID, OnlineVcpus(1))
    finally:
        await asyncio.to_thread(domain.resume)
    view = await runtime.wait_vm(UID, hears_agent, 20)
    assert boot_id(view) == boot_id(before)


async def test_memory_is_given_back_whenever_the_guest_gets_to_it(
    runtime: LibvirtRuntime,
) -> None:
    before = await changed(
        runtime, have(768 * MIB), lambda view: view.plugged_memory_bytes == 768 * MIB
    )
    domain = await asyncio.to_thread(libvirt_domain, runtime)
    await asyncio.to_thread(domain.suspend)
    try:
        await runtime.change_vm(UID, have(512 * MIB))
        view = await runtime.wait_vm(UID, lambda view: view.plugged_memory_bytes < 768 * MIB, 0.5)
        assert view.requested_memory_bytes == 512 * MIB
        assert view.plugged_memory_bytes == 768 * MIB
    finally:
        await asyncio.to_thread(domain.resume)
    view = await runtime.wait_vm(UID, lambda view: view.plugged_memory_bytes == 512 * MIB, 60)
    assert view.plugged_memory_bytes == 512 * MIB
    assert boot_id(await runtime.wait_vm(UID, hears_agent, 20)) == boot_id(before)


@pytest.mark.matrix
async def test_a_guest_that_reboots_keeps_its_size_and_is_told(runtime: LibvirtRuntime) -> None:
    await changed(runtime, PlugVcpus(2), lambda view: view.plugged_vcpus == 2)
    before = await changed(
        runtime, have(640 * MIB), lambda view: view.plugged_memory_bytes == 640 * MIB
    )
    pid, first = container(runtime).pid, boot_id(before)
    events = runtime.events()
    await begin_in_guest(runtime, "shutdown -r now")
    async with asyncio.timeout(BOOT_SECONDS):
        while (view := runtime.vm(UID)) is None or not view.guest or boot_id(view) == first:
            await anext(events)
    after = await runtime.wait_vm(
        UID, lambda view: hears_agent(view) and view.plugged_memory_bytes == 640 * MIB, 20
    )
    assert after.plugged_memory_bytes == 640 * MIB
    assert (after.plugged_vcpus, container(runtime).pid) == (2, pid)
    assert after.guest is not None
    assert after.guest.vcpus_online == 2


async def test_a_guest_that_powers_off_has_ended_well(runtime: LibvirtRuntime) -> None:
    await begin_in_guest(runtime, "shutdown -h now")
    view = await ended(runtime)
    assert (view.exit_code, view.oom_killed) == (0, False)


async def test_qemu_killed_is_seen_at_once_and_can_be_started_again(
    runtime: LibvirtRuntime,
) -> None:
    for attempt in (0, 1):
        view = await runtime.start_container(vm_config(attempt=attempt))
        os.kill(view.pid, signal.SIGKILL)
        async with asyncio.timeout(2):
            view = await ended(runtime)
        assert (view.exit_code, view.attempt) == (255, attempt)


@pytest.fixture
async def tight(
    tmp_path: Path, not_run: Callable[[str], NoReturn], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LibvirtRuntime]:
    """A guest whose boot nearly fills QEMU's cache of translated code, as a second boot does with
    the usual one."""
    check_tools(not_run)
    monkeypatch.setattr(model, "TB_CACHE_MIB", 64)
    async with place(tmp_path).opened() as runtime:
        await runtime.create_pod(pod_config())
        await runtime.start_container(vm_config(vm=msgspec.structs.replace(VM, max_vcpus=6)))
        view = await runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
        assert hears_agent(view), view
        yield runtime


async def test_vcpus_are_plugged_though_qemus_code_cache_is_nearly_full(
    tight: LibvirtRuntime,
) -> None:
    """A guest that had rebooted and had nothing to do waited for room for minutes."""
    vm = tight._require_vm(UID)
    jit = await vm._thread.run(vm._domain.info_jit)
    free = free_regions(jit, 6, 1)
    assert free is not None
    assert free < 5, f"there is room for all that are plugged in here: {jit}"
    before = boot_id(tight.vm(UID))
    await tight.change_vm(UID, PlugVcpus(6))
    view = await tight.wait_vm(UID, lambda view: online(view) == 6, BOOT_SECONDS)
    assert online(view) == 6
    assert boot_id(view) == before, "QEMU lives"
