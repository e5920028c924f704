"""kubectl auth can-i, can-i --list and whoami against a real door; their bodies are protobuf."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.apiserver.auth.identities import Role
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.client.kubeconfig import write_kubeconfig
from livesize.store.memory import MemoryStore

pytestmark = [pytest.mark.door, pytest.mark.usefixtures("kubectl_1_32")]


class Person:
    def __init__(self, folder: Path, server: ApiServer, token: str) -> None:
        self._kubeconfig = folder / "kubeconfig"
        self._cache = folder / "cache"
        write_kubeconfig(self._kubeconfig, server.url, server.ca_path.read_bytes(), token, "tim")

    async def auth(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), "auth", *words]
        command += ["--cache-dir", str(self._cache)]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
        )


@pytest.fixture
async def tim(tmp_path: Path) -> AsyncIterator[Person]:
    """An editor of the namespace default and no other."""
    token, entry = issue_token("tim", Role.EDITOR, namespaces=("default",))
    write_tokens(tmp_path / "tokens", [entry])
    config = ApiServerConfig(tmp_path / "tls", tmp_path / "tokens", port=0)
    server = ApiServer(config, MemoryStore())
    async with server.running():
        yield Person(tmp_path, server, token)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["create", "pods"], "yes"),
        (["patch", "pods", "--subresource=resize"], "yes"),
        (["create", "pods", "-n", "kube-system"], "no"),
        (["list", "pods", "-A"], "no"),
        (["delete", "nodes"], "no"),
        (["*", "*"], "no"),
        (["get", "/version"], "yes"),
        (["post", "/version"], "no"),
    ],
)
async def test_can_i(tim: Person, words: list[str], answer: str) -> None:
    done = await tim.auth("can-i", *words)
    assert done.stdout.split()[:1] == [answer], done.stderr
    assert done.returncode == (0 if answer == "yes" else 1)


async def test_can_i_list(tim: Person) -> None:
    done = await tim.auth("can-i", "--list")
    assert done.returncode == 0, done.stderr
    (pods,) = (line for line in done.stdout.splitlines() if line.startswith("pods "))
    assert "create" in pods
    assert "nodes" not in done.stdout
    assert "/version" in done.stdout


async def test_who_am_i(tim: Person) -> None:
    done = await tim.auth("whoami", "-o", "jsonpath={.status.userInfo}")
    assert done.returncode == 0, done.stderr
    assert '"username":"tim"' in done.stdout
    assert "livesize:editor" in done.stdout
