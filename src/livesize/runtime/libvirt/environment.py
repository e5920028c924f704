"""What the virtual machines of one runtime share, and the thread that each of them has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.steps import CrashPoints
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.libvirt.connection import LibvirtConnection
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.vm import Accelerator

T = TypeVar("T")


class VmEnvironment(msgspec.Struct, frozen=True):
    connection: LibvirtConnection
    daemon: LibvirtDaemon
    groups: PodGroups
    clock: Clock
    points: CrashPoints
    accelerator: Accelerator
    on_change: Callable[[str], None]  # called with the pod's uid
    node_uid: str = ""


class VmThread:
    """Makes the calls of one VM that block, one after the other."""

    def __init__(self, pod_uid: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"livesize-vm-{pod_uid[:8]}")

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        return await self.begin(call, *arguments)

    def begin(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Raises RuntimeError where it was closed."""
        return asyncio.get_running_loop().run_in_executor(self._executor, call, *arguments)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
