"""Claims, their volumes and their folders, in a real `livesize up`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from system.up import Up, container

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
WRITES = "hostname >> /data/log; trap exit TERM; while :; do sleep 1; done"


def make_claim(up: Up, name: str, **spec: Any) -> None:
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "64Mi"}},
        **spec,
    }
    code, answer = up.request("POST", CLAIMS, {"metadata": {"name": name}, "spec": asked})
    assert code == 201, answer


def writer(**mount: Any) -> dict[str, Any]:
    """A container that writes its pod's name into its volume ``data`` whenever it starts."""
    one = container("app", "100m", "64Mi", command=WRITES)
    one["volumeMounts"] = [{"name": "data", "mountPath": "/data", **mount}]
    return one


def volume(claim: str, name: str = "data", **more: Any) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **more}}


def claim(up: Up, name: str) -> dict[str, Any]:
    """{} where it is gone, or the server cannot be reached just now."""
    return _get(up, f"{CLAIMS}/{name}")


def volume_of(up: Up, name: str) -> dict[str, Any]:
    """The volume that a claim has."""
    named = claim(up, name).get("spec", {}).get("volumeName", "")
    return _get(up, f"{VOLUMES}/{named}") if named else {}


def folder_of(up: Up, name: str) -> Path:
    def path() -> str:
        if claim(up, name).get("status", {}).get("phase") != "Bound":
            return ""
        return str(volume_of(up, name).get("spec", {}).get("local", {}).get("path", ""))

    return Path(up.wait_until(path, f"claim {name} is bound"))


def is_gone(up: Up, path: str) -> bool:
    try:
        return up.request("GET", path)[0] == 404
    except OSError:
        return False


def _get(up: Up, path: str) -> dict[str, Any]:
    try:
        code, found = up.request("GET", path)
    except OSError:
        return {}
    return found if code == 200 else {}
