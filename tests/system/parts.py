"""A real cluster of parts for tests: API servers, schedulers, controllers and an agent, each a
process of its own that can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from etcd_servers import free_ports
from leaks import claim
from livesize.main.entry import cli
from system.up import LIVESIZE, Up


class Process:
    """One `livesize PART …`."""

    def __init__(self, name: str, log: Path, words: Sequence[str]) -> None:
        self.name = name
        self.words = list(words)
        self.log = log
        self.popen: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    @property
    def runs(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def start(self, **environment: str) -> None:
        assert not self.runs
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [LIVESIZE, *self.words], stdout=log, stderr=log, env={**os.environ, **environment}
            )

    def said(self) -> str:
        """Since it was last started."""
        return self.log.read_bytes()[self._said_before :].decode()

    def is_ready(self) -> bool:
        return f"livesize {self.words[0]} is ready" in self.said()

    def holder(self) -> str:
        """The name under which it leads."""
        found = re.search(r" as (\S+)\.$", self.said(), re.MULTILINE)
        assert found is not None, self.said()
        return found[1]

    def kill(self) -> None:
        assert self.popen is not None
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """SIGTERM, and the exit code must be 0."""
        assert self.popen is not None
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(timeout=30)
        assert code == 0, self.said()
        assert "Traceback" not in self.said()


def run_here(*words: str) -> str:
    """In this process: a Python that starts costs half a second."""
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


class Cluster(Up):
    """Speaks to one of its API servers, as its admin; ``speak_to`` picks which."""

    def __init__(self, folder: Path, *, etcd: str = "") -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self._etcd = etcd
        self.parts: dict[str, Process] = {}
        self.addresses: list[str] = []

    def add(self, name: str, *words: str) -> Process:
        process = Process(name, self.directory / f"{name}.log", words)
        self.parts[name] = process
        return process

    def ready(self, *names: str) -> None:
        for name in names:
            process = self.parts[name]
            self.wait_until(lambda p=process: p.is_ready() or not p.runs, f"{name} is ready")
            assert process.runs, process.said()

    def add_apiserver(self, name: str, *more: str) -> Process:
        """At a port that stays the same; a second one gets the authority of the first."""
        folder = self.directory / name
        (port,) = free_ports(1)
        first = next((one for one in self.parts.values() if one.words[0] == "apiserver"), None)
        if first is not None:
            tls = folder / "control" / "tls"
            tls.mkdir(parents=True)
            for file in (self.directory / first.name / "control" / "tls").glob("ca.*"):
                shutil.copy(file, tls)
        store = ["--store", "etcd", "--etcd-endpoints", self._etcd] if self._etcd else []
        words = ["--data-dir", str(folder), "--listen", f"127.0.0.1:{port}", *store, *more]
        self.addresses.append(f"https://127.0.0.1:{port}")
        return self.add(name, "apiserver", *words)

    def speak_to(self, name: str) -> None:
        self.kubeconfig = self.directory / name / "kubeconfig"

    def admin_command(self, server: str, *words: str) -> str:
        """A command on the machine of an API server, in its data directory."""
        return run_here(*words, "--data-dir", str(self.directory / server))

    def certificate(self, server: str, name: str, role: str, *more: str) -> Path:
        words = ["cert", "create", name, "--role", role, "--directory", str(self.directory)]
        self.admin_command(server, *words, *more)
        return self.directory / f"{name}.kubeconfig"

    def add_peer(self, name: str, part: str, kubeconfig: Path) -> Process:
        servers = ",".join(self.addresses)
        words = [part, "--kubeconfig", str(kubeconfig), "--server", servers]
        return self.add(name, *words)

    def join(self, server: str) -> None:
        """Make this machine a node, as docs/running-parts.md says."""
        line = self.admin_command(server, "token", "create", "--join").splitlines()[0]
        words = [*line.split()[1:], "--node-name", self.node]
        run_here(*words, "--data-dir", str(self.directory / "node"))

    def add_agent(self, *more: str) -> Process:
        claim(self.node, self.directory)
        words = ["agent", "--data-dir", str(self.directory / "node"), "--stop-pods"]
        words += ["--server", ",".join(self.addresses), "--allocatable", "cpu=4,memory=4Gi"]
        return self.add("agent", *words, *more)

    def leader(self, part: str) -> str:
        """The name of the process that leads, "" while nobody of them does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/livesize-{part}"
        with contextlib.suppress(OSError):
            code, lease = self.request("GET", path)
            holder = lease["spec"]["holderIdentity"] if code == 200 else ""
            for name, process in self.parts.items():
                if process.words[0] == part and process.runs and process.holder() == holder:
                    return name
        return ""

    def node_object(self) -> dict[str, Any]:
        return self.request("GET", f"/api/v1/nodes/{self.node}")[1]

    def node_is_ready(self) -> bool:
        status = self.node_object().get("status", {})
        if not isinstance(status, dict):
            return False  # it has not been registered yet
        conditions = status.get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def log(self) -> str:
        return "\n".join(f"== {one.name}\n{one.log.read_text()}" for one in self.parts.values())

    def end(self) -> None:
        """The agent first: it takes the pods with it. It needs no API server for that."""
        agent = self.parts.get("agent")
        if agent is not None:
            if not agent.runs:
                agent.start()
                self.ready("agent")
            agent.stop()
        for process in self.parts.values():
            if process.runs:
                process.kill()
