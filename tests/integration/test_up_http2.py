"""`livesize up --http granian`: kubectl over HTTP/2, and a control plane killed while it serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from system.up import Up, container

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

POD = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [container("app", "200m", "64Mi")]},
    }
)


def http_version(up: Up) -> str:
    config = json.loads(up.kubectl("config", "view", "-o", "json").stdout)
    url = config["clusters"][0]["cluster"]["server"] + "/readyz"
    command = ["curl", "--silent", "--insecure", "--http2", "--output", "/dev/null"]
    done = subprocess.run(
        [*command, "--write-out", "%{http_version}", url],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout


def test_kubectl_over_http2_and_after_a_kill(tmp_path: Path) -> None:
    up = Up(tmp_path, runtime="fake")
    try:
        up.start("--http", "granian")
        up.kubectl("apply", "--server-side", "-f", "-", stdin=POD)
        up.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
        assert http_version(up) == "2"
        code, refusal = up.request("POST", "/livesize/v1/join", {})
        assert (code, "--http uvicorn" in refusal["message"]) == (403, True)
        os.kill(up.control_plane_pid(), signal.SIGKILL)
        size = {"requests": {"cpu": "300m"}, "limits": {"cpu": "300m"}}
        patch = json.dumps({"spec": {"containers": [{"name": "app", "resources": size}]}})
        resize = ("patch", "pod", "web", "--subresource", "resize", "--patch", patch)
        assert "patched" in up.kubectl(*resize).stdout, "it waits while the API server is restarted"
        up.wait_resized("web")
        up.stop()
    finally:
        if up.process is not None:
            up.end()
