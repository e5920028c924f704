"""Listens to the heartbeats of nodes, and writes what the plan says of one that is silent.

A heartbeat is a change of the node's Lease, or of the status it posts. Time is counted on our own
clock from when we heard it: what the node's clock says does not matter, and a controller that has
just begun gives every node the whole time again.
"""

from __future__ import annotations

import asyncio

from livesize.api.conditions import find_condition
from livesize.api.errors import StatusError
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.node import NODES
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, uid_of, version_of
from livesize.api.reasons import ConditionType, EventReason, event_type
from livesize.api.times import format_time
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.node_lifecycle.plan import plan_node
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.recorder import EventRecorder, EventSource
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.node_lifecycle")

NODE_LEASES = "kube-node-lease"
GRACE_SECONDS = 40.0  # where no lease says how long it lasts
AGAIN_SECONDS = 0.05


class NodeLifecycle:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._clock = context.clock
        self._queue: WorkQueue[str] = WorkQueue(context)
        self._heard: dict[str, float] = {}
        self._nodes = Informer(client, NODES, context=context, on_change=self._observe_node)
        self._leases = Informer(
            client, LEASES, Selection(NODE_LEASES), context=context, on_change=self._observe_lease
        )
        self._recorder = EventRecorder(
            event_poster(client), context=context, source=EventSource("node-controller")
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._leases.run())
            group.create_task(self._recorder.run())
            await self._nodes.synced.wait()
            await self._leases.synced.wait()
            await run_workers(self._queue, self._reconcile, 1)

    def _observe_node(self, delta: Delta) -> None:
        name = name_of(delta.object)
        if delta.new is None:
            self._heard.pop(name, None)
            return
        if delta.old is None or _heartbeat(delta.old) != _heartbeat(delta.new):
            self._heard[name] = self._clock.monotonic()
        self._queue.add(name)

    def _observe_lease(self, delta: Delta) -> None:
        """Only notes the time: the next look is due when this heartbeat has grown old."""
        name = name_of(delta.object)
        if delta.new is not None and name in self._heard:
            self._heard[name] = self._clock.monotonic()

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get("", name)
        if node is None:
            return None
        left = self._grace(name) - (self._clock.monotonic() - self._heard[name])
        plan = plan_node(node, is_silent=left <= 0, now=format_time(self._clock.now()))
        try:
            if plan.taints is not None:
                spec = {"taints": plan.taints or None}
                node = await self._client.patch(NODES, name, _against(node, {"spec": spec}))
            if plan.conditions is not None:
                status = {"status": {"conditions": plan.conditions}}
                await self._client.patch(NODES, name, _against(node, status), subresource="status")
                self._tell(node)
        except StatusError as refusal:
            if refusal.code not in (404, 409):
                raise
            return AGAIN_SECONDS  # changed or gone meanwhile: the watch tells
        # A silent node is looked at again when it is heard: its own status says that it is back.
        return max(left, AGAIN_SECONDS) if left > 0 else None

    def _grace(self, name: str) -> float:
        lease = self._leases.get(NODE_LEASES, name)
        return float(lookup(lease, "spec", "leaseDurationSeconds", default=GRACE_SECONDS))

    def _tell(self, node: Object) -> None:
        log.warning("node is silent", node=name_of(node))
        reason = EventReason.NODE_NOT_READY
        about = {"kind": "Node", "apiVersion": "v1", "metadata": node["metadata"]}
        message = f"Node {name_of(node)} status is now: NodeNotReady"
        self._recorder.record(about, event_type(reason), reason.value, message)


def _heartbeat(node: Object) -> object:
    ready = find_condition(node, ConditionType.READY) or {}
    return ready.get("status") == "True", ready.get("lastHeartbeatTime")


def _against(node: Object, change: Object) -> Object:
    """The change, for this very state of this very node."""
    return {**change, "metadata": {"resourceVersion": version_of(node), "uid": uid_of(node)}}
