"""Real etcd servers for tests, on ports of the loopback, one process per member."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 30.0


def find_etcd() -> str | None:
    """On PATH, or beside this Python."""
    beside = Path(sys.executable).with_name("etcd")
    return shutil.which("etcd") or (str(beside) if beside.exists() else None)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Member:
    """One etcd process; ``kill`` and ``start`` again as often as wanted."""

    def __init__(self, folder: Path, name: str, ports: tuple[int, int], cluster: str) -> None:
        self.folder = folder
        self.name = name
        self.client_port, self.peer_port = ports
        self.cluster = cluster
        self.tls: dict[str, Path] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.client_port}"

    def start(self) -> None:
        assert self.process is None
        program = find_etcd()
        assert program is not None
        peer = f"http://127.0.0.1:{self.peer_port}"
        arguments = {
            "name": self.name,
            "data-dir": self.folder / self.name,
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": self.cluster,
            "listen-metrics-urls": f"http://127.0.0.1:{free_ports(1)[0]}",
            "logger": "zap",
            "log-level": "error",
            **self.tls,
        }
        if "," not in self.cluster:
            # Nobody to wait for: it leads again in a tenth of a second instead of in one or two.
            arguments |= {"heartbeat-interval": 10, "election-timeout": 100}
        self.metrics = str(arguments["listen-metrics-urls"])
        words = [f"--{name}={value}" for name, value in arguments.items()]
        if self.tls:
            words.append("--client-cert-auth")
        with (self.folder / f"{self.name}.log").open("ab") as log:
            environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": ""}
            self.process = subprocess.Popen(
                [program, *words], stdout=log, stderr=log, env=environment
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / f"{self.name}.log").read_text()
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.metrics}/health", timeout=1) as answer,
            ):
                if b"true" in answer.read():
                    return
            assert time.monotonic() < deadline, "etcd does not get well"
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def cluster(
    folder: Path, size: int = 1, tls: dict[str, Path] | None = None
) -> Iterator[list[Member]]:
    folder.mkdir(parents=True, exist_ok=True)
    ports = free_ports(2 * size)
    names = [f"m{number}" for number in range(size)]
    peers = ",".join(f"{name}=http://127.0.0.1:{ports[2 * n + 1]}" for n, name in enumerate(names))
    members = [
        Member(folder, name, (ports[2 * n], ports[2 * n + 1]), peers)
        for n, name in enumerate(names)
    ]
    try:
        for member in members:
            member.tls = tls or {}
            member.start()
        for member in members:
            member.wait_ready()
        yield members
    finally:
        for member in members:
            member.kill()
