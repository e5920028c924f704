"""One pod of a process runtime of the test's own, and what its one container said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.context import system_context
from livesize.runtime import oci
from livesize.runtime.interface import ContainerConfig, ContainerPhase, ContainerView, PodConfig
from livesize.runtime.process.runtime import ProcessRuntime

MIB = 1024 * 1024
UID = "pod-one"
UNLIMITED = KernelLimits(1024, None, None)


@asynccontextmanager
async def process_pod(directory: Path, root_group: str) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(directory / "state", root_group, system_context())
    await runtime.open()
    await runtime.create_pod(PodConfig(UID, "default", "one", UNLIMITED))
    try:
        yield runtime
    finally:
        pod = runtime.pod(UID)
        for container in pod.containers if pod else ():
            await runtime.stop_container(UID, container.name, 0)
        await runtime.remove_pod(UID)
        await runtime.close()


def config(script: str, **changes: object) -> ContainerConfig:
    values: dict[str, object] = {
        "pod_uid": UID,
        "name": "main",
        "image": oci.BUILT_IN_IMAGE,
        "command": ("sh", "-c", script),
        "args": (),
        "env": (("COLOUR", "deep blue"),),
        "working_dir": "/task/here",
        "hostname": "one",
        "limits": KernelLimits(1024, None, 128 * MIB),
    }
    return ContainerConfig(**{**values, **changes})  # type: ignore[arg-type]


async def run(runtime: ProcessRuntime, script: str, **changes: object) -> str:
    """Run to the end; what it said."""
    events = runtime.events()
    view = await runtime.start_container(config(script, **changes))
    async with asyncio.timeout(20):
        while (now := seen(runtime)).phase is not ContainerPhase.EXITED:
            await anext(events)
    assert now.id == view.id
    return Path(view.log_path).read_text()


def seen(runtime: ProcessRuntime) -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    return pod.containers[0]


Layer = dict[str, oci.LayerFile | oci.LayerLink | oci.LayerFolder]


def import_image(runtime: ProcessRuntime, directory: Path, layer: Layer, user: str = "") -> str:
    """An image of the built-in one's programs and ``layer`` above them; its name."""
    busybox = oci.find_static_busybox()
    programs = ("sh", "id", "cat", "sleep", "ls", "touch", "chmod", "stat", "grep", "mkdir")
    below: Layer = {"bin/busybox": oci.LayerFile(busybox.read_bytes(), 0o755)}
    below |= {f"bin/{name}": oci.LayerLink("busybox") for name in programs}
    name = f"localhost/{directory.name.lower()}:1"
    path = directory / "image.tar"
    settings = oci.ImageSettings(command=("sh",), user=user)
    oci.write_image(path, name, [below, layer], settings)
    runtime.image_store.import_tar(path)
    return name
