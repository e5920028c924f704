"""What pods have besides their size, on each runtime: the machine itself is the witness."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from system.claims import (
    CLAIMS,
    VOLUMES,
    claim,
    folder_of,
    is_gone,
    make_claim,
    volume,
    volume_of,
    writer,
)
from system.groups import group_of
from system.up import Up, container

pytestmark = pytest.mark.containers

MIB = 1024 * 1024


def make(up: Up, kind: str, name: str, data: dict[str, str]) -> None:
    plural = {"ConfigMap": "configmaps", "Secret": "secrets"}[kind]
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data}
    up.request("DELETE", f"/api/v1/namespaces/default/{plural}/{name}")
    code, answer = up.request("POST", f"/api/v1/namespaces/default/{plural}", body)
    assert code == 201, answer


class Inside:
    """The files and variables of a running container, as its own process sees them."""

    def __init__(self, up: Up, pod: str, name: str = "app") -> None:
        self.pid = group_of(up, pod, name).main_pid()
        self.root = Path(f"/proc/{self.pid}/root")

    def read(self, path: str) -> str:
        """Links that lead to the root lead to the container's."""
        return (self.root / path.lstrip("/")).read_text()

    def variables(self) -> dict[str, str]:
        words = Path(f"/proc/{self.pid}/environ").read_bytes().decode().split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)

    def groups(self) -> set[int]:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        words = " ".join(line for line in status if line.startswith(("Gid:", "Groups:"))).split()
        return {int(word) for word in words if word.isdigit()}

    def file_system(self, path: str) -> str:
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        found = [line for line in lines if line.split()[4] == path]
        return found[-1].partition(" - ")[2].split()[0]

    def size_bytes(self, path: str) -> int:
        facts = os.statvfs(self.root / path.lstrip("/"))
        return facts.f_blocks * facts.f_frsize


def mounted(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **more}


def test_volumes_and_variables(up: Up, tmp_path: Path) -> None:
    make(up, "ConfigMap", "settings", {"colour": "blue", "shape": "round"})
    make(up, "Secret", "keys", {"pin": base64.b64encode(b"42").decode()})
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "hello").write_text("from the machine")
    command = "echo here > /scratch/mine; echo x > /host/no 2>/dev/null; trap exit TERM; "
    one = container("app", "100m", "64Mi", command=command + "while :; do sleep 1; done")
    one["env"] = [
        {"name": "PIN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "pin"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
    ]
    one["securityContext"] = {"runAsUser": 1234, "runAsGroup": 1234}
    one["volumeMounts"] = [
        mounted("scratch", "/scratch"),
        mounted("scratch", "/part", subPath="a/b"),
        mounted("cache", "/cache"),
        mounted("host", "/host", readOnly=True),
        mounted("config", "/config"),
        mounted("config", "/etc/one.conf", subPath="shape"),
        mounted("self", "/self"),
        mounted("keys", "/keys"),
    ]
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "cache", "emptyDir": {"medium": "Memory"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "shared"), "type": "Directory"}},
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {
            "name": "self",
            "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
        },
    ]
    up.create_pod(
        "volumes", [one], volumes=volumes, hostNetwork=True, securityContext={"fsGroup": 4321}
    )
    inside = Inside(up, "volumes")
    up.wait_until((inside.root / "scratch/mine").exists, "it wrote into its volume")
    assert (inside.root / "scratch/mine").stat().st_gid == 4321
    assert (inside.root / "config/colour").stat().st_gid == 4321
    assert inside.groups() == {1234, 4321}
    assert inside.variables()["PIN"] == "42"
    assert inside.variables()["MEMORY"] == str(64 * MIB)
    assert inside.read("/config/colour") == "blue"
    assert inside.read("/etc/one.conf") == "round"
    assert inside.read("/self/n") == "volumes"
    assert inside.read("/keys/pin") == "42"
    assert inside.file_system("/keys") == "tmpfs"
    assert inside.read("/host/hello") == "from the machine"
    assert not (tmp_path / "shared" / "no").exists()
    assert (inside.root / "scratch/a/b").is_dir()
    assert inside.size_bytes("/cache") == 64 * MIB
    # IBM: "if the memory allocated to a container is resized, the amount of memory available to an
    # emptydir changes accordingly."
    resize(up, "volumes", "128Mi")
    assert inside.size_bytes("/cache") == 128 * MIB
    resize(up, "volumes", "32Mi")
    assert inside.size_bytes("/cache") == 32 * MIB
    assert Inside(up, "volumes").pid == inside.pid


def test_memory_of_a_volume_is_its_writers(up: Up) -> None:
    """IBM: "The emptydir memory is accounted to a container that allocates the memory to store a
    file in the emptydir."
    """
    write = "dd if=/dev/zero of=/cache/held bs=1M count=20 2>/dev/null; "
    wait = "trap exit TERM; while :; do sleep 1; done"
    both = [container("writer", "100m", "64Mi", command=write + wait)]
    both.append(container("reader", "100m", "64Mi", command=wait))
    both[0]["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    for one in both:
        one["volumeMounts"] = [mounted("cache", "/cache")]
    cache = {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}}
    up.create_pod("shared", both, volumes=[cache], hostNetwork=True)
    used = {name: group_of(up, "shared", name).memory_usage_bytes for name in ("writer", "reader")}
    up.wait_until(lambda: used["writer"]() > 20 * MIB, "the writer is charged")
    assert used["reader"]() < 10 * MIB
    inside = Inside(up, "shared", "reader")
    assert (inside.root / "cache/held").stat().st_size == 20 * MIB
    (inside.root / "cache/left").touch()
    os.kill(Inside(up, "shared", "writer").pid, signal.SIGKILL)
    up.wait_until(lambda: restarts(up, "shared") == {"writer": 1, "reader": 0}, "restarted")
    assert (inside.root / "cache/left").exists(), "it ended by itself (Kubernetes)"
    # ARK: "Kubelet will clear out any files in emptyDir upon Container restart": a resize's.
    size = {"memory": "48Mi"}
    resources = {"requests": size, "limits": size}
    patch = {"spec": {"containers": [{"name": "writer", "resources": resources}]}}
    assert up.patch_resize("shared", patch)[0] == 200
    up.wait_resized("shared")
    assert restarts(up, "shared") == {"writer": 2, "reader": 0}
    assert not (inside.root / "cache/left").exists()


WAIT = "trap exit TERM; while :; do sleep 0.2; done"


def ready(up: Up, pod: str) -> bool:
    conditions = up.pod(pod)["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_init_containers_sidecars_and_probes(up: Up) -> None:
    """The first prepares, the sidecar serves, and the app is as ready as its files say."""
    share = [mounted("share", "/share")]
    prepare = container("prepare", "100m", "16Mi", command="echo prepared > /share/index.html")
    serve = container(
        "serve", "100m", "16Mi", command=f"httpd -p 127.0.0.1:18199 -h /share; {WAIT}"
    )
    serve |= {
        "restartPolicy": "Always",
        "startupProbe": {
            "httpGet": {"port": 18199, "path": "/index.html", "host": "127.0.0.1"},
            "periodSeconds": 1,
        },
    }
    app = container("app", "100m", "16Mi", command=f"touch /share/alive; {WAIT}")
    app |= {
        "readinessProbe": {"exec": {"command": ["cat", "/share/ready"]}, "periodSeconds": 1},
        "livenessProbe": {
            "exec": {"command": ["test", "-f", "/share/alive"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "lifecycle": {"postStart": {"exec": {"command": ["touch", "/share/greeted"]}}},
    }
    for one in (prepare, serve, app):
        one["volumeMounts"] = share
    up.create_pod(
        "whole",
        [app],
        initContainers=[prepare, serve],
        volumes=[{"name": "share", "emptyDir": {}}],
        hostNetwork=True,
    )
    statuses = {one["name"]: one for one in up.pod("whole")["status"]["initContainerStatuses"]}
    assert statuses["prepare"]["state"]["terminated"]["exitCode"] == 0
    assert statuses["serve"]["started"]
    assert not ready(up, "whole")
    inside = Inside(up, "whole")
    files = inside.root / "share"
    assert (files / "greeted").exists()
    (files / "ready").touch()
    up.wait_until(lambda: ready(up, "whole"), "it is ready")
    began = Inside(up, "whole", "serve").pid
    (files / "alive").unlink()
    up.wait_until(lambda: restarts(up, "whole") == {"app": 1}, "what is not alive restarts")
    up.wait_until(lambda: ready(up, "whole"), "it is ready again")
    assert Inside(up, "whole", "serve").pid == began


def test_a_workload_takes_part_in_its_resize(up: Up) -> None:
    path = "/api/v1/namespaces/default/pods/asked"
    up.create_pod("asked", [container("app", "100m", "64Mi", command=WAIT)], hostNetwork=True)
    hooks = {
        "livesize.dev/pre-shrink": "test -f /yes || (echo not from $LIVESIZE_OLD_MEMORY; false)",
        "livesize.dev/post-resize": '["sh", "-c", "echo $LIVESIZE_NEW_MEMORY > /told"]',
    }
    merge = "application/merge-patch+json"
    assert up.request("PATCH", path, {"metadata": {"annotations": hooks}}, merge)[0] == 200
    inside = Inside(up, "asked")
    amounts = {"cpu": "100m", "memory": "32Mi"}
    changed = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    assert up.patch_resize("asked", {"spec": {"containers": [changed]}})[0] == 200

    def state() -> dict[str, Any]:
        return up.pod("asked").get("status", {}).get("resizeState", {})  # type: ignore[no-any-return]

    up.wait_until(lambda: state().get("phase") == "Error", "the workload says no")
    assert state()["message"].endswith("says: not from 64Mi")
    assert group_of(up, "asked", "app").memory_limit_bytes() == 64 * MIB
    (inside.root / "yes").touch()
    up.wait_resized("asked")
    assert group_of(up, "asked", "app").memory_limit_bytes() == 32 * MIB
    assert inside.read("/told") == "32Mi\n"
    assert "pre-shrink:app" in [step["name"] for step in state()["steps"]]
    assert Inside(up, "asked").pid == inside.pid


def test_a_claim_outlives_its_pods(up: Up) -> None:
    """Written files stay for the next pod; with the claim its folder goes, unless retained."""
    merge = "application/merge-patch+json"
    make_claim(up, "goes")
    make_claim(up, "stays")
    first = writer(subPath="part")
    first["volumeMounts"].append(mounted("stays", "/stays"))
    both = [volume("goes"), volume("stays", "stays")]
    fs_group = {"fsGroup": 4321}
    up.create_pod("first", [first], volumes=both, hostNetwork=True, securityContext=fs_group)
    goes, stays = folder_of(up, "goes"), folder_of(up, "stays")
    up.wait_until((goes / "part/log").exists, "it wrote into its volume")
    assert stays.stat().st_gid == 4321
    (Inside(up, "first").root / "stays/mine").touch()
    up.delete_pod("first")
    read_only = [volume("goes", readOnly=True), volume("stays", "stays")]
    up.create_pod("second", [first], volumes=read_only, hostNetwork=True)
    inside = Inside(up, "second")
    assert len(inside.read("/data/log").splitlines()) == 1
    assert (inside.root / "stays/mine").exists()
    kept = volume_of(up, "stays")["metadata"]["name"]
    retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
    assert up.request("PATCH", f"{VOLUMES}/{kept}", retain, merge)[0] == 200
    removed = volume_of(up, "goes")["metadata"]["name"]
    for name in ("goes", "stays"):
        assert up.request("DELETE", f"{CLAIMS}/{name}")[0] == 200
        assert claim(up, name)["metadata"]["deletionTimestamp"], "a pod uses it"
    up.delete_pod("second")
    up.wait_until(lambda: is_gone(up, f"{VOLUMES}/{removed}"), "its volume is gone")
    assert not goes.exists()

    def released() -> bool:
        return bool(up.request("GET", f"{VOLUMES}/{kept}")[1]["status"]["phase"] == "Released")

    up.wait_until(released, "the other is released")
    assert (stays / "mine").exists()
    assert up.request("DELETE", f"{VOLUMES}/{kept}")[0] == 200
    up.wait_until(lambda: is_gone(up, f"{VOLUMES}/{kept}"), "it goes when it is deleted")
    assert (stays / "mine").exists()


def restarts(up: Up, pod: str) -> dict[str, int]:
    statuses = up.pod(pod)["status"]["containerStatuses"]
    return {one["name"]: one["restartCount"] for one in statuses}


def resize(up: Up, pod: str, memory: str) -> None:
    amounts = {"cpu": "100m", "memory": memory}
    changed = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    code, answer = up.patch_resize(pod, {"spec": {"containers": [changed]}})
    assert code == 200, answer
    up.wait_resized(pod)


def test_a_container_that_was_killed_is_not_said_to_be_stopped(up: Up) -> None:
    """containerd removes its group before it says that it has ended; that is no foreign hand."""
    up.create_pod("db", [container("app", "100m", "32Mi")], hostNetwork=True)
    os.kill(group_of(up, "db", "app").main_pid(), signal.SIGKILL)

    def has_restarted() -> bool:
        (status,) = up.pod("db")["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and "running" in status["state"])

    up.wait_until(has_restarted, "it was started again")
    (status,) = up.pod("db")["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    up.wait_until(lambda: reasons(up, "db").count("Started") == 2, "both starts are told")
    assert "Killing" not in reasons(up, "db")


def reasons(up: Up, pod: str) -> list[str]:
    events = up.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    told = [one for one in events if one["involvedObject"]["name"] == pod]
    return [one["reason"] for one in told for _ in range(one.get("count") or 1)]
