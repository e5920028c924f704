"""What tests on real guests share: one guest image for the session, and runtimes to boot it in."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

from leaks import claim
from livesize.api.kernel_units import KernelLimits
from livesize.api.vm_changes import SetRequested
from livesize.guest_images.kernel import default_cache_dir
from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME, build_guest, install_guest
from livesize.machinery.context import system_context
from livesize.runtime.interface import ContainerConfig, PodConfig, Runtime
from livesize.runtime.libvirt.runtime import LibvirtRuntime, LibvirtSettings
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_config import VmConfig
from vms.sizes import persist, request, with_devices

MIB = 1024 * 1024
UID = "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a01"
BOOT_SECONDS = 60.0  # a guest boots in three; the machine may be busy
# Never KVM: these tests must say the same where it is missing or emulated itself.
TCG = LibvirtSettings(accelerator=Accelerator.TCG)
VM = with_devices(
    VmConfig(
        vcpus=1,
        max_vcpus=4,
        memory_bytes=512 * MIB,
        max_memory_bytes=2048 * MIB,
        boot_memory_bytes=512 * MIB,
        kernel=KERNEL_NAME,
        initrd=INITRD_NAME,
    )
)
LIMITS = KernelLimits(cpu_weight=1024, cpu_quota_us=400_000, memory_limit_bytes=2560 * MIB)


def have(total_bytes: int) -> SetRequested:
    """Of ``VM``."""
    return request(total_bytes, VM.boot_memory_bytes)


def start_with(total_bytes: int) -> SetRequested:
    """Of ``VM``, the next time."""
    return persist(total_bytes, VM.boot_memory_bytes)


def check_tools(not_run: Callable[[str], NoReturn]) -> None:
    for program in ("qemu-system-x86_64", "libvirtd"):
        if shutil.which(program) is None:
            not_run(f"needs {program}")
    if importlib.util.find_spec("libvirt") is None:
        not_run("needs libvirt-python")


def install_images(images_dir: Path) -> Path:
    install_guest(build_guest(default_cache_dir()), images_dir)
    return images_dir


class Place:
    """Where runtimes of one test, or of one file, keep everything."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group = f"livesize-test-{os.getpid()}-{directory.name}"
        self.images = directory / "images"
        self.state = directory / "state"
        claim(self.group, directory)

    def runtime(self, settings: LibvirtSettings = TCG) -> LibvirtRuntime:
        return LibvirtRuntime(
            self.state, self.images, self.group, system_context(), settings=settings
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LibvirtRuntime]:
        """A runtime that is cleared at the end, whatever a test left."""
        runtime = self.runtime()
        await runtime.open()
        try:
            yield runtime
        finally:
            await clear(runtime)


def place(directory: Path) -> Place:
    found = Place(directory)
    install_images(found.images)
    return found


async def clear(runtime: Runtime) -> None:
    for pod in runtime.list_pods():
        for container in pod.containers:
            await runtime.stop_container(pod.uid, container.name, 0)
        await runtime.remove_pod(pod.uid)
    await runtime.close()


def pod_config(uid: str = UID) -> PodConfig:
    return PodConfig(uid, "default", "vm1", LIMITS, vm=True)


def vm_config(uid: str = UID, attempt: int = 0, vm: VmConfig = VM) -> ContainerConfig:
    return ContainerConfig(
        pod_uid=uid,
        name="vm",
        image="",
        command=(),
        args=(),
        env=(),
        working_dir="",
        hostname="vm1",
        limits=LIMITS,
        attempt=attempt,
        hash="h1",
        hash_without_resources="h2",
        vm=vm,
    )
