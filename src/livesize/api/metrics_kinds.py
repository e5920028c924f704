"""Kinds that say what is used right now (metrics.k8s.io): read only, and stored nowhere.

Named like the kinds they are about: who may read a pod may read what it uses.
"""

from __future__ import annotations

from livesize.api.kinds import Resource

_READ = ("get", "list")

NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, verbs=_READ)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True, verbs=_READ)

METRICS: tuple[Resource, ...] = (NODE_METRICS, POD_METRICS)
