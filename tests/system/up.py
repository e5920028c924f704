"""A real `livesize up` for tests: started, spoken to, killed and started again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from leaks import claim

IMAGE = "localhost/livesize/busybox:1"
LIVESIZE = str(Path(sys.executable).parent / "livesize")


class Up:
    """One data directory and, while it runs, the `livesize up` process on it."""

    def __init__(self, directory: Path, *, runtime: str = "process", allocatable: str = "") -> None:
        self.directory = directory
        self.node = f"t-{secrets.token_hex(4)}"
        self.runtime = runtime
        self.kubeconfig = directory / "kubeconfig"
        self._arguments = ["--data-dir", str(directory), "--listen", "127.0.0.1:0"]
        self._arguments += ["--runtime", runtime, "--node-name", self.node]
        if allocatable:
            self._arguments += ["--allocatable", allocatable]
        self.options: tuple[str, ...] = ()  # of each start
        self._log = directory / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._old_kubeconfig = 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(
        self,
        *more: str,
        environment: dict[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        claim(self.node, self.directory)
        self._old_kubeconfig = self._kubeconfig_written()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [LIVESIZE, "up", *self._arguments, *self.options, *more],
                stdout=log if output is None else output,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        self.wait_until(self._is_ready, "the API server answers /readyz and the node is Ready")

    def stop(self) -> None:
        """SIGTERM, and the exit code must be 0."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        assert code == 0, self.log()
        self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self) -> None:
        """Whatever state it is in: nothing of it is left afterwards."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
            return
        self.start()
        self.stop()

    def log(self) -> str:
        logs = [self._log, *sorted(self.directory.glob("logs/*"))]
        return "\n".join(f"== {path}\n{path.read_text()}" for path in logs if path.is_file())

    def control_plane_pid(self) -> int:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in map(int, children):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"control_plane" in command:
                return child
        raise AssertionError("the control plane does not run")

    def wait_until(
        self, condition: Callable[[], Any], what: str, timeout_seconds: float = 30
    ) -> Any:
        deadline = time.monotonic() + timeout_seconds
        while True:
            value = condition()
            if value:
                return value
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"livesize up ended while waiting until {what}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_seconds} s until {what}:\n{self.log()}")
            time.sleep(0.02)

    def _kubeconfig_written(self) -> int:
        return self.kubeconfig.stat().st_mtime_ns if self.kubeconfig.exists() else 0

    def _is_ready(self) -> bool:
        if self._kubeconfig_written() == self._old_kubeconfig:
            return False  # a control plane of the last start may still be ending
        try:
            code, node = self.request("GET", f"/api/v1/nodes/{self.node}")
        except OSError:
            return False
        if code != 200:
            return False
        conditions = node.get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """One plain HTTPS request as the admin; status code and the JSON of the answer."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        token = config["users"][0]["user"]["token"]
        connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, timeout=10, context=_trusting()
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
        try:
            connection.request(
                method, path, body=None if body is None else json.dumps(body), headers=headers
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except http.client.HTTPException as failure:
            raise ConnectionError(str(failure)) from failure
        finally:
            connection.close()

    def kubectl(
        self, *words: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig)]
        command += ["--cache-dir", str(self.directory / "kubectl-cache"), *words]
        return _run(command, check=check, stdin=stdin)

    def livesize(
        self, *words: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [LIVESIZE, *words, "--kubeconfig", str(self.kubeconfig)]
        return _run(command, check=check, stdin=stdin)

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """The pod as it is; {} where the server cannot be reached just now."""
        try:
            _, pod = self.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except OSError:
            return {}
        return pod

    def patch_resize(self, name: str, patch: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return self.request(
            "PATCH",
            f"/api/v1/namespaces/default/pods/{name}/resize",
            patch,
            "application/strategic-merge-patch+json",
        )

    def delete_pod(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.request("DELETE", path)
        self.wait_until(lambda: self.request("GET", path)[0] == 404, f"{name} is gone")

    def create_pod(self, name: str, containers: list[dict[str, Any]], **spec: Any) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
        }
        code, answer = self.request("POST", "/api/v1/namespaces/default/pods", manifest)
        assert code == 201, answer
        self.wait_running(name)

    def wait_running(self, name: str) -> None:
        def running() -> bool:
            pod = self.pod(name)
            statuses = pod.get("status", {}).get("containerStatuses", [])
            return len(statuses) == len(pod["spec"]["containers"]) and all(
                "running" in status["state"] and "resources" in status for status in statuses
            )

        self.wait_until(running, f"every container of {name} runs")

    def wait_resized(self, name: str) -> None:
        def resized() -> bool:
            state = self.pod(name).get("status", {}).get("resizeState", {})
            return state.get("phase") in ("Done", "None")

        self.wait_until(resized, f"the resize of {name} is done")


def _trusting() -> ssl.SSLContext:
    """Loopback to a server this test started; its certificate is tested elsewhere."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def container(name: str, cpu: str, memory: str, *, command: str = "") -> dict[str, Any]:
    """A Guaranteed busybox container that does nothing, or what ``command`` says."""
    return {
        "name": name,
        "image": IMAGE,
        "command": ["/bin/sh", "-c", command or "trap exit TERM; while :; do sleep 1; done"],
        "resources": {
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": cpu, "memory": memory},
        },
    }


def _run(command: list[str], *, check: bool, stdin: str | None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done


@contextlib.contextmanager
def running_up(directory: Path, **settings: Any) -> Iterator[Up]:
    up = Up(directory, **settings)
    try:
        up.start()
        yield up
    finally:
        up.end()
