"""Inside a guest: `livesize up` as a service, which systemd starts and stops."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from system.up import Up

WAIT_SECONDS = 240
PATIENCE = "[Service]\nTimeoutStartSec=300\nWatchdogSec=0\n"  # the CPU is emulated
UNIT = "livesize-up.service"


class Service(Up):
    """The same, but systemd starts and stops it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.node = "guest"

    def await_ready(self) -> None:
        self.wait_until(self._is_ready, "the node is ready", WAIT_SECONDS)

    def expect_restart(self) -> None:
        """The next one is waited for: the last one may answer for a moment while it ends."""
        self._old_kubeconfig = self._kubeconfig_written()

    def resize(self, pod: str, **amounts: str) -> None:
        resources = {"requests": amounts, "limits": amounts}
        patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
        code, answer = self.patch_resize(pod, patch)
        assert code == 200, answer
        self.wait_resized(pod)

    def wait_until(self, condition: Any, what: str, timeout_seconds: float = WAIT_SECONDS) -> Any:
        return super().wait_until(condition, what, max(timeout_seconds, WAIT_SECONDS))


def systemctl(*words: str) -> str:
    done = subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"systemctl {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def start_service(settings: str) -> None:
    """Install the unit with these settings, and start it."""
    Path("/etc/livesize").mkdir(exist_ok=True)
    Path("/etc/livesize/up.yaml").write_text(settings)
    install = ["livesize", "units", "install", "up", "--program", "/usr/bin/livesize"]
    subprocess.run(install, check=True, timeout=120)
    patience = Path(f"/etc/systemd/system/{UNIT}.d/patience.conf")
    patience.parent.mkdir(exist_ok=True)
    patience.write_text(PATIENCE)
    systemctl("daemon-reload")
    systemctl("start", UNIT)
