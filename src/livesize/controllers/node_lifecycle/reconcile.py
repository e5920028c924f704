"""Listens to the heartbeats of nodes, and writes what the plan says of one that is silent.

A heartbeat is a change of the node's Lease, or of the status it posts. Time is counted on our own
clock from when we heard it: what the node's clock says does not matter, and a controller that has
just begun gives every node the whole time again.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.conditions import find_condition
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.node import NODES
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.reasons import ConditionType, EventReason
from livesize.api.times import format_time
from livesize.client.informer import Delta
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.node_lifecycle.plan import plan_node
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.node_lifecycle")

NODE_LEASES = "kube-node-lease"
GRACE_SECONDS = 40.0  # where no lease says how long it lasts
SOONEST_SECONDS = 0.05


def node_lifecycle_controller(context: Context) -> Controller[str]:
    heartbeats = Heartbeats(context.clock)
    return Controller(
        name="node-lifecycle",
        component="node-controller",
        watches=(Watch(NODES, heartbeats.nodes_of), Watch(LEASES, heartbeats.nodes_of_lease)),
        reconcile=heartbeats.reconcile,
    )


class Heartbeats:
    """When each node was last heard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, float] = {}

    def nodes_of(self, delta: Delta, _read: Reader) -> Iterator[str]:
        name = name_of(delta.object)
        if delta.new is None:
            self._heard.pop(name, None)
            return
        if delta.old is None or _heartbeat(delta.old) != _heartbeat(delta.new):
            self._heard[name] = self._clock.monotonic()
        yield name

    def nodes_of_lease(self, delta: Delta, _read: Reader) -> Iterator[str]:
        """Only notes the time: the next look is due when this heartbeat has grown old."""
        lease = delta.new
        if lease is not None and namespace_of(lease) == NODE_LEASES:
            name = name_of(lease)
            if name in self._heard:
                self._heard[name] = self._clock.monotonic()
        yield from ()

    async def reconcile(self, name: str, read: Reader, write: ApiWriter) -> Result:
        node = read.get(NODES, name)
        if node is None or name not in self._heard:
            return Done()
        left = _grace(read, name) - (self._clock.monotonic() - self._heard[name])
        plan = plan_node(node, is_silent=left <= 0, now=format_time(self._clock.now()))
        if plan.taints is not None:
            node = await write.patch(NODES, node, {"spec": {"taints": plan.taints or None}})
        if plan.conditions is not None:
            status = {"status": {"conditions": plan.conditions}}
            await write.patch(NODES, node, status, subresource="status")
            log.warning("node is silent", node=name)
            message = f"Node {name} status is now: NodeNotReady"
            write.event(NODES, node, EventReason.NODE_NOT_READY, message)
        # A silent node is looked at again when it is heard: its own status says that it is back.
        return Again(max(left, SOONEST_SECONDS)) if left > 0 else Done()


def _grace(read: Reader, name: str) -> float:
    lease = read.get(LEASES, name, NODE_LEASES)
    return float(lookup(lease, "spec", "leaseDurationSeconds", default=GRACE_SECONDS))


def _heartbeat(node: Object) -> object:
    ready = find_condition(node, ConditionType.READY) or {}
    return ready.get("status") == "True", ready.get("lastHeartbeatTime")
