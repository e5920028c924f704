"""Programs of Kubernetes for tests: its API server, on etcd, and its controllers, on any API server
(`scripts/build-kubernetes` builds them from Debian's sources)."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from etcd_servers import cluster, free_ports

START_SECONDS = 60.0
TOKEN = "contract"
LACKS_SOURCES = 3
"""How scripts/build-kubernetes ends then."""


class KubeServer(NamedTuple):
    url: str
    ca_path: Path
    token: str


def find_program(name: str) -> str | None:
    """On PATH, or beside this Python."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.exists() else None)


def build_program(name: str, not_run: Callable[[str], NoReturn]) -> None:
    """Where PATH has none. A machine whose apt has not got the sources says so."""
    if shutil.which(name) is None:
        script = Path(__file__).parents[1] / "scripts" / "build-kubernetes"
        done = subprocess.run(
            [script, name], check=False, stderr=subprocess.PIPE, text=True, timeout=3600
        )
        if done.returncode == LACKS_SOURCES:
            not_run(done.stderr.splitlines()[-1])
        assert done.returncode == 0, done.stderr[-2000:]


@contextlib.contextmanager
def controller_manager(kubeconfig: Path, log: Path, *controllers: str) -> Iterator[None]:
    program = find_program("kube-controller-manager")
    assert program is not None
    arguments = {
        "kubeconfig": kubeconfig,
        "controllers": ",".join(controllers),
        "kube-api-content-type": "application/json",
        "port": 0,
        "secure-port": 0,
    }
    words = [f"--{name}={value}" for name, value in arguments.items()]
    with log.open("wb") as output:
        process = subprocess.Popen([program, *words], stdout=output, stderr=output)
        try:
            yield
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def kube_server(folder: Path) -> Iterator[KubeServer]:
    """It lets everybody who has the token do everything, and has no controllers."""
    program = find_program("kube-apiserver")
    assert program is not None
    (port,) = free_ports(1)
    key = folder / "service-accounts.key"
    key.write_bytes(
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    with cluster(folder / "etcd") as [etcd], (folder / "kube-apiserver.log").open("wb") as log:
        arguments = {
            "etcd-servers": etcd.endpoint,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": folder,
            "token-auth-file": folder / "tokens.csv",
            "authorization-mode": "AlwaysAllow",
            "disable-admission-plugins": "ServiceAccount",  # no controller makes the accounts
            "service-account-issuer": "https://localhost",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
        }
        words = [f"--{name}={value}" for name, value in arguments.items()]
        process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        try:
            made = KubeServer(f"https://127.0.0.1:{port}", folder / "apiserver.crt", TOKEN)
            _wait_ready(made, process, Path(log.name))
            yield made
        finally:
            process.kill()
            process.wait()


def _wait_ready(server: KubeServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    request = urllib.request.Request(
        f"{server.url}/api/v1/namespaces/default", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError, ssl.SSLError):
            tls = ssl.create_default_context(cafile=server.ca_path)
            with urllib.request.urlopen(request, timeout=2, context=tls):
                return
        assert time.monotonic() < deadline, f"kube-apiserver is not ready: {log}"
        time.sleep(0.2)
