"""F87: a pod is not evicted for having been resized.

ARK: "evict POD based on the limits values, per some defined eviction policies". This node has one
such policy, a volume on disk that holds more than its sizeLimit, which a resize leaves as it is. It
evicts nobody for the memory of the machine: what a container may use is kept by its own limit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from livesize.api.conditions import find_condition
from livesize.runtime.interface import ContainerPhase
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1 << 20
DISK = {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}


async def test_a_pod_is_not_evicted_for_having_been_resized(world: World) -> None:
    """Its volume on disk holds more than the memory it shrinks to, its workload too; and a
    neighbour grows until the node is full."""
    await world.start()
    mounts = [{"name": "scratch", "mountPath": "/s"}]
    await world.api.run_pod("db", container(volumeMounts=mounts), volumes=[DISK])
    await world.api.run_pod("web", container(cpu="1"))
    uid, _ = await world.running("db"), await world.running("web")
    mount = world.machine.configs[uid, "app"].mounts[0]
    (Path(mount.source) / "large").write_bytes(bytes(48 * MIB))
    world.machine.use_memory(uid, "app", 40 * MIB)
    await world.api.resize("db", "app", cpu="100m", memory="16Mi")
    await world.phase("db", "Error")
    await world.api.resize("web", "app", memory="4032Mi")
    await world.phase("web", "Done")
    await asyncio.sleep(0.3)  # volumes are measured every 0.1 s here
    for name in ("db", "web"):
        assert world.api.pod(name)["status"]["phase"] == "Running"
        assert "Evicted" not in world.api.event_reasons(name)
    view = world.machine.pods[uid].containers["app"]
    assert (view.phase, view.attempt) == (ContainerPhase.RUNNING, 0)
    world.machine.use_memory(uid, "app", 10 * MIB)
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 16 * MIB
    pressure = find_condition(world.api.node(), "MemoryPressure")
    assert pressure is not None
    assert pressure["status"] == "False"
