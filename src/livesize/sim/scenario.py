"""What a simulation is to do: how many nodes and pods, how often users and faults strike."""

from __future__ import annotations

import msgspec

from livesize.sim.network import QUIET, NetworkFaults

HOUR_SECONDS = 3600.0


class FaultRates(msgspec.Struct, frozen=True):
    """How often in an hour, on average; how long a process that was killed stays away."""

    agent_kills: float = 30.0
    control_plane_kills: float = 4.0
    watch_cuts: float = 60.0
    controller_kills: float = 0.0  # at a write of theirs
    longest_downtime_seconds: float = 90.0
    network: NetworkFaults = NetworkFaults()


NO_FAULTS = FaultRates(agent_kills=0.0, control_plane_kills=0.0, watch_cuts=0.0, network=QUIET)


class Scenario(msgspec.Struct, frozen=True):
    """``creation_seconds``: users create all pods within that. ``settle_seconds``: so long after
    the last fault the cluster may take to do what its objects say."""

    nodes: int = 50
    pods: int = 1000
    resizes_an_hour: float = 1500.0
    replacements_an_hour: float = 120.0  # a user deletes a pod and creates another
    node_cpu_milli: int = 16_000
    node_memory_bytes: int = 64 << 30
    creation_seconds: float = 120.0
    settle_seconds: float = 600.0
    faults: FaultRates = FaultRates()


SCENARIOS: dict[str, Scenario] = {
    "faults": Scenario(),
    "calm": Scenario(faults=NO_FAULTS),
    "crowded": Scenario(node_cpu_milli=10_000, node_memory_bytes=8 << 30),
    "storm": Scenario(
        faults=FaultRates(
            agent_kills=300.0,
            control_plane_kills=30.0,
            watch_cuts=600.0,
            longest_downtime_seconds=60.0,
            network=NetworkFaults(lost_requests=0.05, lost_answers=0.05, stall_probability=0.01),
        )
    ),
}
