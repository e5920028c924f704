"""What Kubernetes fills into probes and volumes of a pod. Pure."""

from __future__ import annotations

from typing import Any

from livesize.api.objects import Object

_PROBE: Object = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644
_FILES = ("configMap", "secret", "downwardAPI", "projected")


def filled_probes(container: Object) -> Object:
    """The probes of the container, with what they leave out; only those it has."""
    return {
        name: _filled_probe(container[name])
        for name in _PROBES
        if isinstance(container.get(name), dict)
    }


def filled_volume(volume: Any) -> Any:
    """A volume that says nothing is an empty folder."""
    if not isinstance(volume, dict):
        return volume
    if volume.keys() == {"name"}:
        return {**volume, "emptyDir": {}}
    files = {
        kind: {"defaultMode": _FILE_MODE, **volume[kind]}
        for kind in _FILES
        if isinstance(volume.get(kind), dict)
    }
    host = volume.get("hostPath")
    kind = {"hostPath": {"type": "", **host}} if isinstance(host, dict) else {}
    return {**volume, **files, **kind}


def _filled_probe(probe: Object) -> Object:
    """Zero is as good as absent."""
    given = {key: value for key, value in probe.items() if not (key in _PROBE and value == 0)}
    filled = {**_PROBE, **given}
    page = filled.get("httpGet")
    if isinstance(page, dict):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **page}
    return filled
