"""What a node and its containers use: measured by the node, carried by its lease, served as
NodeMetrics and PodMetrics (ADR 0038). Pure.

CPU is a rate over a window, so it takes two looks at a counter; ``rate`` says what they give.
"""

from __future__ import annotations

import msgspec

from livesize.api.kinds.metrics import NODE_METRICS, POD_METRICS
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of

USAGE_ANNOTATION = "livesize.dev/usage"
SHORTEST_WINDOW_SECONDS = 1.0  # below that a rate says little
LARGEST_BYTES = 200_000  # of the 256 KiB that all annotations of an object may have
LONGEST_AGE_SECONDS = 60.0  # what was measured before that is not "now" any more


class Counters(msgspec.Struct, frozen=True):
    """One look at a machine or a container. ``time``: seconds since the epoch."""

    time: float
    cpu_ns: int
    memory_bytes: int


class Usage(msgspec.Struct, frozen=True, array_like=True):
    cpu_nano: int  # billionths of a CPU
    memory_bytes: int
    window_seconds: float


class NodeUsage(msgspec.Struct, frozen=True):
    """Everything one node has measured at ``time``: itself, and containers by the pod's uid."""

    time: str
    node: Usage | None = None
    pods: dict[str, dict[str, Usage]] = {}


def rate(before: Counters | None, now: Counters, started: float) -> Usage | None:
    """``started`` is when the counter began at nothing. None: too early to say."""
    since, cpu_ns = (started, 0)
    if before is not None and before.cpu_ns <= now.cpu_ns:
        since, cpu_ns = before.time, before.cpu_ns
    seconds = now.time - since
    if seconds < SHORTEST_WINDOW_SECONDS:
        return None
    return Usage(round((now.cpu_ns - cpu_ns) / seconds), now.memory_bytes, round(seconds, 3))


def format_usage(usage: NodeUsage) -> str:
    """Where it would be too large for an annotation, pods are left out, not the heartbeat."""
    text = msgspec.json.encode(usage)
    if len(text) > LARGEST_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(usage, pods={}))
    return text.decode()


def parse_usage(lease: Object) -> NodeUsage | None:
    """What a node's lease says; None where it says nothing that can be read."""
    text = lookup(lease, "metadata", "annotations", USAGE_ANNOTATION)
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=NodeUsage)
    except msgspec.DecodeError:
        return None


def node_metrics(node: Object, usage: NodeUsage) -> Object | None:
    """None: not measured yet."""
    if usage.node is None:
        return None
    head = _head(NODE_METRICS.kind, node, usage, usage.node.window_seconds)
    return {**head, "usage": _quantities(usage.node)}


def pod_metrics(pod: Object, usage: NodeUsage) -> Object | None:
    """None: none of its containers was measured."""
    containers = usage.pods.get(uid_of(pod))
    if not containers:
        return None
    window = min(one.window_seconds for one in containers.values())
    return {
        **_head(POD_METRICS.kind, pod, usage, window),
        "containers": [
            {"name": name, "usage": _quantities(one)} for name, one in sorted(containers.items())
        ],
    }


def _head(kind: str, about: Object, usage: NodeUsage, window_seconds: float) -> Object:
    metadata: Object = {"name": name_of(about)}
    if namespace_of(about):
        metadata["namespace"] = namespace_of(about)
    metadata["creationTimestamp"] = usage.time
    labels = lookup(about, "metadata", "labels")
    if labels:
        metadata["labels"] = labels
    return {
        "kind": kind,
        "apiVersion": POD_METRICS.api_version,
        "metadata": metadata,
        "timestamp": usage.time,
        "window": f"{window_seconds:g}s",
    }


def _quantities(usage: Usage) -> Object:
    """In the units of Kubernetes' own metrics server."""
    return {"cpu": f"{usage.cpu_nano}n", "memory": f"{usage.memory_bytes // 1024}Ki"}
