"""The names of pods on the wire. The rules of pods need them, and ``livesize.api.kinds.pod``, which
collects these rules, cannot give them."""

from __future__ import annotations

from livesize.api.kinds.resource import Resource

PODS = Resource("", "v1", "pods", "Pod", True, "pod", ("po",), ("all",))
