"""Metrics of nodes and pods (metrics.k8s.io): what is used right now. They are read only.

They have the plurals of the kinds they are about: who may read a pod may read what it uses.
"""

from __future__ import annotations

from collections.abc import Callable

from livesize.api.columns import (
    NAME,
    Column,
    at,
)
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.node import NODE
from livesize.api.kinds.pod import POD
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.quantity import (
    QuantityStyle,
    format_quantity,
    parse_quantity,
)

_READ = ("get", "list")
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, verbs=_READ)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True, verbs=_READ)


def _used(name: str, style: QuantityStyle) -> Callable[[Object, float], str]:
    """What all containers of a pod use."""

    def cell(metrics: Object, _now: float) -> str:
        return format_quantity(
            sum(parse_quantity(one["usage"][name]) for one in metrics["containers"]), style
        )

    return cell


METRICS = (NODE_METRICS, POD_METRICS)

NODE_METRIC = Kind(
    NODE_METRICS,
    is_stored=False,
    roles=NODE.roles,
    columns=(
        NAME,
        Column("CPU", at("usage", "cpu")),
        Column("Memory", at("usage", "memory")),
        Column("Window", at("window")),
    ),
)
POD_METRIC = Kind(
    POD_METRICS,
    is_stored=False,
    roles=POD.roles,
    columns=(
        NAME,
        Column("CPU", _used("cpu", QuantityStyle.DECIMAL_SI)),
        Column("Memory", _used("memory", QuantityStyle.BINARY_SI)),
        Column("Window", at("window")),
    ),
)
