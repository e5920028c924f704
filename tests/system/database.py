"""A real database for tests: Redis from Debian's packages as an image, and clients that count.

Clients come over the network of the pod. Every acknowledged request is on disk.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from livesize.runtime.oci import ImageSettings, LayerFile, LayerFolder, LayerLink, write_image

IMAGE = "localhost/livesize/redis:1"
PACKAGES = (
    *("redis-tools", "redis-server", "libc6", "libjemalloc2", "liblzf1", "libssl3"),
    *("libsystemd0", "libatomic1", "libgcrypt20", "libgpg-error0", "liblz4-1", "liblzma5"),
    *("libzstd1", "libcap2", "libstdc++6", "libgcc-s1"),
)
PORT = 6379
SERVER = "redis-server --protected-mode no --dir /data --appendonly yes --appendfsync always"


def write_database_image(scratch: Path, not_run: Callable[[str], NoReturn]) -> Path:
    """The programs and libraries of the packages, nothing else."""
    scratch.mkdir()
    fetched = subprocess.run(
        ["apt-get", "download", "-qq", *PACKAGES], cwd=scratch, capture_output=True, check=False
    )
    if fetched.returncode != 0:
        not_run("needs Debian's package redis-server, by apt-get download")
    root = scratch / "root"
    for package in sorted(scratch.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    layer: dict[str, LayerFile | LayerLink | LayerFolder] = {
        name: LayerFolder() for name in ("data", "dev", "etc", "proc", "sys", "tmp")
    }
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if not (name.startswith("usr/bin/redis-") or ".so" in path.name):
            continue
        if path.is_symlink():
            layer[name] = LayerLink(str(path.readlink()))
        elif path.is_file():
            layer[name] = LayerFile(path.read_bytes(), path.stat().st_mode & 0o777)
    archive = scratch / "redis.tar"
    write_image(archive, IMAGE, [layer], ImageSettings(command=("redis-server",)))
    return archive


def member_container(cpu: str, memory: str) -> dict[str, Any]:
    size = {"cpu": cpu, "memory": memory}
    return {
        "name": "redis",
        "image": IMAGE,
        "command": [*SERVER.split(), "--save", ""],
        "resources": {"requests": size, "limits": size},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }


class Client:
    """One connection to the member at that address."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection((address, PORT), timeout=5)
        self._lines = self._socket.makefile("rb")

    def ask(self, *words: str) -> str:
        self._socket.sendall(" ".join(words).encode() + b"\r\n")
        line = self._lines.readline().decode().rstrip()
        if line.startswith("$"):
            return self._lines.readline().decode().rstrip()
        return line

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Load:
    """Counts up in one member, over one connection, until stopped. Each answer is checked."""

    def __init__(self, address: str) -> None:
        self.acknowledged = 0
        self.failure = ""
        self._client = Client(address)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.wait(0.002):
                answer = self._client.ask("INCR", "count")
                assert answer == f":{self.acknowledged + 1}", answer
                self.acknowledged += 1
                answer = self._client.ask("SET", f"row-{self.acknowledged}", "x" * 100)
                assert answer == "+OK", answer
        except (OSError, AssertionError) as failure:
            self.failure = repr(failure)

    def stop(self) -> int:
        """How many rows there have to be from now on."""
        self._ending.set()
        self._thread.join()
        self._client.close()
        return self.acknowledged


@contextlib.contextmanager
def loads(addresses: Mapping[str, str]) -> Iterator[dict[str, Load]]:
    running: dict[str, Load] = {}
    try:
        for name, address in addresses.items():
            running[name] = Load(address)
        yield running
    finally:
        for load in running.values():
            load.stop()


def rows(address: str) -> tuple[int, int]:
    """What the counter says, and how many rows there are beside it."""
    client = Client(address)
    try:
        return int(client.ask("GET", "count")), int(client.ask("DBSIZE").strip(":")) - 1
    finally:
        client.close()
