"""A machine with one VM, fake or real: what both can be made to do to their guest."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest

from livesize.machinery.context import system_context
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.libvirt.identity import domain_name
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from livesize.runtime.vm import VmRuntime
from livesize.runtime.vm_config import VmConfig
from vms.real import BOOT_SECONDS, UID, pod_config, vm_config
from vms.saved import hears_agent, put_away, saved_guest

MACHINES = ("fake", pytest.param("libvirt", marks=pytest.mark.vms))
_UNMOVABLE = "echo online >/sys/devices/system/memory/auto_online_blocks"


class Machine:
    """Opens runtimes on one and the same machine."""

    def __init__(self, make: Callable[[], VmRuntime]) -> None:
        self._make = make
        self.runtime = make()

    async def restart_agent(self) -> VmRuntime:
        await self.runtime.close()
        self.runtime = self._make()
        await self.runtime.open()
        return self.runtime

    async def hold_guest(self) -> None:
        """It does nothing of what it is asked to, until it is let go."""
        await self._in_domain("suspend")

    async def let_guest_go(self) -> None:
        await self._in_domain("resume")

    async def keep_dimms(self) -> None:
        """The guest uses what is plugged in from now on where it does not let go of it again."""
        assert isinstance(self.runtime, LibvirtRuntime)
        await in_guest(self.runtime, _UNMOVABLE)

    async def _in_domain(self, call: str) -> None:
        assert isinstance(self.runtime, LibvirtRuntime)
        domain = await asyncio.to_thread(libvirt_domain, self.runtime)
        await asyncio.to_thread(getattr(domain, call))


class _FakeMachine(Machine):
    def __init__(self) -> None:
        self._world = FakeMachine(system_context())
        super().__init__(lambda: FakeRuntime(context=system_context(), machine=self._world))

    @property
    def _vm(self) -> FakeVm:
        return self._world.vms[UID]

    async def hold_guest(self) -> None:
        self._vm.hold()

    async def let_guest_go(self) -> None:
        self._vm.release()

    async def keep_dimms(self) -> None:
        self._vm.keep_dimms()


@asynccontextmanager
async def running(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
    vm: VmConfig,
) -> AsyncIterator[Machine]:
    """The machine that the fixture's parameter names, with a guest that answers."""
    if request.param == "libvirt":
        saved = await asyncio.to_thread(saved_guest, request, tmp_path_factory, not_run, vm)
        await saved.restore()
        opened = Machine(saved.where.runtime)
        await opened.runtime.open()
    else:
        opened = _FakeMachine()
        await opened.runtime.open()
        await opened.runtime.create_pod(pod_config())
        await opened.runtime.start_container(vm_config(vm=vm))
    try:
        view = await opened.runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
        assert hears_agent(view), view
        yield opened
    finally:
        await put_away(opened.runtime)


def libvirt_domain(runtime: LibvirtRuntime) -> Any:
    """libvirt itself, for what only somebody else would do to a VM."""
    assert runtime._environment is not None
    return runtime._environment.connection.connection().lookupByName(domain_name(UID))


async def begin_in_guest(runtime: LibvirtRuntime, script: str) -> Any:
    domain = await asyncio.to_thread(libvirt_domain, runtime)
    arguments = {"path": "/bin/sh", "arg": ["-c", script], "capture-output": True}
    return await asyncio.to_thread(_ask_agent, domain, "guest-exec", arguments)


async def in_guest(runtime: LibvirtRuntime, script: str) -> str:
    """What it printed, when it has ended."""
    begun = await begin_in_guest(runtime, script)
    domain = await asyncio.to_thread(libvirt_domain, runtime)
    async with asyncio.timeout(BOOT_SECONDS):
        while True:
            told = await asyncio.to_thread(_ask_agent, domain, "guest-exec-status", begun)
            if told["exited"]:
                return base64.b64decode(told.get("out-data", "")).decode()
            await asyncio.sleep(0.01)


def _ask_agent(domain: Any, command: str, arguments: dict[str, Any]) -> Any:
    import libvirt_qemu

    words = json.dumps({"execute": command, "arguments": arguments})
    return json.loads(libvirt_qemu.qemuAgentCommand(domain, words, 10, 0))["return"]
