"""Inside the guest: what the driver of containerd owes to version 2, beyond the contract.

There a limit is lowered by our own hands first, and containerd is told afterwards. Killed between
the two, an agent leaves a containerd that believes in the old limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.api.group_changes import SetCpu
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.context import system_context
from livesize.runtime.containerd.runtime import ContainerdRuntime
from livesize.runtime.interface import ContainerConfig, ContainerGroup, PodConfig
from livesize.runtime.oci import BUILT_IN_IMAGE

pytestmark = pytest.mark.containers

MIB = 1024 * 1024
UID = "pod-one"
GROUP = ContainerGroup(UID, "main")
CONFIG = ContainerConfig(
    pod_uid=UID,
    name="main",
    image=BUILT_IN_IMAGE,
    command=("sleep", "1000"),
    args=(),
    env=(),
    working_dir="",
    hostname="one",
    limits=KernelLimits(512, 50_000, 64 * MIB),
)


def group_folder(pid: int) -> Path:
    """Where the kernel says that the process is."""
    return Path("/sys/fs/cgroup" + Path(f"/proc/{pid}/cgroup").read_text().strip().split(":")[2])


async def test_a_limit_that_containerd_was_not_told_is_told_by_the_next_agent(
    containerd_folder: Path, root_group: str
) -> None:
    first = ContainerdRuntime(containerd_folder, root_group, system_context())
    await first.open()
    await first.create_pod(PodConfig(UID, "default", "one", KernelLimits(1024, 100_000, None)))
    view = await first.start_container(CONFIG)
    await first.close()
    (group_folder(view.pid) / "memory.max").write_text(str(32 * MIB))
    again = ContainerdRuntime(containerd_folder, root_group, system_context())
    await again.open()
    try:
        assert again.read_limits(GROUP) == KernelLimits(512, 50_000, 32 * MIB)
        # containerd sets all that it remembers with each change of anything.
        await again.write(GROUP, SetCpu(256, 20_000))
        assert again.read_limits(GROUP) == KernelLimits(256, 20_000, 32 * MIB)
        assert group_folder(view.pid).exists(), "the same process"
    finally:
        await again.stop_container(UID, "main", 0)
        await again.remove_pod(UID)
        await again.close()
