"""kubectl auth can-i, can-i --list and whoami on a real API server; their bodies are protobuf."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.test_apiserver_kubectl import Cluster
from livesize.api.roles import Role
from livesize.apiserver.auth.records import read_tokens, write_tokens
from livesize.apiserver.auth.tokens import issue_token
from livesize.apiserver.server import ApiServer
from livesize.client.kubeconfig import write_kubeconfig

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]


class Person:
    def __init__(self, folder: Path, server: ApiServer, token: str) -> None:
        self._kubeconfig = folder / "tim.kubeconfig"
        self._cache = folder / "tim.cache"
        write_kubeconfig(self._kubeconfig, server.url, server.ca_path.read_bytes(), token, "tim")

    def auth(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), "auth", *words]
        command += ["--cache-dir", str(self._cache)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture(scope="module")
def tim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """An editor of the namespace default and no other."""
    folder = tmp_path_factory.mktemp("auth")
    token, entry = issue_token("tim", Role.EDITOR, namespaces=("default",))
    with Cluster(folder) as cluster:
        write_tokens(folder / "tokens", [*read_tokens(folder / "tokens"), entry])
        yield Person(folder, cluster.server, token)


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
def test_can_i(tim: Person, words: list[str], answer: str) -> None:
    done = tim.auth("can-i", *words)
    assert done.stdout.split()[:1] == [answer], done.stderr
    assert done.returncode == (0 if answer == "yes" else 1)


def test_can_i_list(tim: Person) -> None:
    done = tim.auth("can-i", "--list")
    assert done.returncode == 0, done.stderr
    (pods,) = (line for line in done.stdout.splitlines() if line.startswith("pods "))
    assert "create" in pods
    assert "nodes" not in done.stdout
    assert "/version" in done.stdout


def test_who_am_i(tim: Person) -> None:
    done = tim.auth("whoami", "-o", "jsonpath={.status.userInfo}")
    assert done.returncode == 0, done.stderr
    assert '"username":"tim"' in done.stdout
    assert "livesize:editor" in done.stdout
