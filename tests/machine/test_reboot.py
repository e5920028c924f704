"""A machine that was started anew: pods come back, at the size they were promised last.

The machine itself stays up, so its end is acted: everything of the system is killed, control groups
and memory are gone, and the records are of another boot.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from leaks import groups_named, mounts_below
from system.claims import folder_of, make_claim, volume
from system.groups import group_of
from system.up import Up, container

pytestmark = pytest.mark.containers

MIB = 1024 * 1024
WAIT = "trap exit TERM; while :; do sleep 0.2; done"


def test_pods_come_back_at_what_was_allocated(tmp_path: Path) -> None:
    up = Up(tmp_path / "up", allocatable="cpu=4,memory=2Gi")
    up.start()
    try:
        prepare = container("prepare", "50m", "16Mi", command="echo once >> /memory/prepared")
        writes = "cat /memory/prepared >> /data/seen"
        app = container("app", "100m", "64Mi", command=f"{writes}; {WAIT}")
        make_claim(up, "data")
        for one in (prepare, app):
            one["volumeMounts"] = [{"name": "memory", "mountPath": "/memory"}]
        app["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        up.create_pod(
            "db",
            [app],
            initContainers=[prepare],
            volumes=[{"name": "memory", "emptyDir": {"medium": "Memory"}}, volume("data")],
            hostNetwork=True,
        )
        amounts = {"cpu": "200m", "memory": "96Mi"}
        changed = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
        assert up.patch_resize("db", {"spec": {"containers": [changed]}})[0] == 200
        up.wait_resized("db")
        uid = up.pod("db")["metadata"]["uid"]
        go_down(up, uid)
        up.start()
        up.wait_until(lambda: restart_count(up) == 1, "it was started again")
        up.wait_running("db")
        group = group_of(up, "db", "app")
        assert group.memory_limit_bytes() == 96 * MIB
        assert group.cpu_quota_us() == 20_000
        assert group.pod().memory_limit_bytes() == 96 * MIB
        pid = group.main_pid()
        assert Path(f"/proc/{pid}/root/memory/prepared").read_text() == "once\n"
        seen = folder_of(up, "data") / "seen"
        up.wait_until(
            lambda: seen.read_text() == "once\nonce\n", "what a claim holds is still there"
        )
        facts = os.statvfs(f"/proc/{pid}/root/memory")
        assert facts.f_blocks * facts.f_frsize == 96 * MIB
        assert up.pod("db")["status"]["phase"] == "Running"
    finally:
        up.end()


def restart_count(up: Up) -> int:
    statuses = up.pod("db").get("status", {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def go_down(up: Up, uid: str) -> None:
    """As when the power fails."""
    control_plane = up.control_plane_pid()
    processes = group_of(up, "db", "app").processes()
    up.kill()
    for pid in (control_plane, *processes):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    up.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "all ended")
    for group in reversed([path for path in groups_named(up.node) if uid in str(path)]):
        group.rmdir()
    for mount in mounts_below(up.directory):
        subprocess.run(["umount", mount], check=True)
    for record in up.directory.glob(f"agent/runtime/pods/{uid}/containers/*/*/record.json"):
        written = json.loads(record.read_text())
        record.write_text(json.dumps({**written, "boot_id": "another"}))
        (record.parent / "exit").unlink(missing_ok=True)
