"""Containers go to one driver, VMs to the other, and what happens in either is told by one feed."""

from __future__ import annotations

from livesize.api.group_changes import SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.api.vm_changes import PlugVcpus
from livesize.machinery.context import system_context
from livesize.runtime.combined import CombinedRuntime
from livesize.runtime.events import EventFeed
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    PodConfig,
    PodGroup,
    RuntimeEvent,
)
from livesize.runtime.vm import VmRuntime
from vms.real import MIB, UID, pod_config, vm_config

LIMITS = KernelLimits(512, 50_000, 64 * MIB)
DB = ContainerConfig("db-uid", "main", FAKE_IMAGE, (), (), (), "", "db", LIMITS)


async def test_both_kinds_live_side_by_side() -> None:
    feed = EventFeed()
    containers, machines = (
        FakeRuntime(context=system_context(), machine=FakeMachine(system_context()))
        for _ in range(2)
    )
    runtime: VmRuntime = CombinedRuntime(containers, machines, feed)
    await runtime.open()
    containers.world.feed = machines.world.feed = feed
    events = runtime.events()
    await runtime.create_pod(PodConfig("db-uid", "default", "db", LIMITS))
    await runtime.create_pod(pod_config())
    await runtime.start_container(DB)
    await runtime.start_container(vm_config())
    assert [pod.uid for pod in runtime.list_pods()] == [UID, "db-uid"]
    assert list(containers.world.pods) == ["db-uid"]
    assert list(machines.world.pods) == [UID]

    await runtime.write(ContainerGroup("db-uid", "main"), SetMemory(32 * MIB))
    await runtime.write(PodGroup(UID), SetMemory(3072 * MIB))
    assert runtime.read_limits(ContainerGroup("db-uid", "main")).memory_limit_bytes == 32 * MIB
    assert runtime.read(PodGroup(UID)).limits.memory_limit_bytes == 3072 * MIB
    assert len(containers.world.writes) == len(machines.world.writes) == 1

    await runtime.change_vm(UID, PlugVcpus(2))
    assert (await runtime.wait_vm(UID, lambda view: True, 1)).plugged_vcpus == 2
    assert (await runtime.refresh_vm(UID)) is not None
    assert runtime.vm("db-uid") is None
    assert await anext(events) == RuntimeEvent(UID, "vm")

    for uid, name in (("db-uid", "main"), (UID, "vm")):
        await runtime.stop_container(uid, name, 1)
        await runtime.remove_pod(uid)
        assert runtime.pod(uid) is None
    assert await anext(events) == RuntimeEvent("db-uid", "main")
    await runtime.close()
