"""kubectl 1.32 against the API server alone; the node is played by hand, with a node's token."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import pytest

from livesize.api.roles import Role
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.machinery.context import system_context
from livesize.store.memory import MemoryStore

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

WEB = "/api/v1/namespaces/default/pods/web"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class Cluster:
    """The API server in a thread of its own, as kubectl blocks ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.tokens: dict[str, str] = {}
        entries = []
        for name, role, node in (("admin", Role.ADMIN, ""), ("n1", Role.NODE, "n1")):
            self.tokens[name], entry = issue_token(name, role, node=node)
            entries.append(entry)
        write_tokens(folder / "tokens", entries)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        config = ApiServerConfig(self.folder / "tls", self.folder / "tokens", port=0)
        self.server = ApiServer(config, MemoryStore(), context=system_context())
        async with self.server.running():
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        cluster = {
            "server": self.server.url,
            "certificate-authority": str(self.server.ca_path),
        }
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": self.tokens["admin"]}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def command(self, *words: str) -> list[str]:
        cache = str(self.folder / "cache")
        return ["kubectl", "--kubeconfig", str(self.kubeconfig), "--cache-dir", cache, *words]

    def kubectl(
        self, *words: str, stdin: Any = None, fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(
            self.command(*words),
            input=text,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done

    def send(self, method: str, path: str, body: Any, *, token: str = "n1") -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.tokens[token]}", "Content-Type": kind}
        request = Request(self.server.url + path, json.dumps(body).encode(), headers, method=method)
        context = ssl.create_default_context(cafile=str(self.server.ca_path))
        with urlopen(request, context=context, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("apiserver")) as running:
        running.kubectl("create", "-f", "-", stdin=NODE)
        yield running


def manifest(cpu: str = "200m") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"tier": "front"}},
        "spec": {"containers": [{"name": "app", "image": "busybox:1", "resources": resources}]},
    }


@pytest.fixture
def web(cluster: Cluster) -> Iterator[None]:
    """Applied, bound and, as far as its status says, running."""
    cluster.kubectl("apply", "-f", "-", stdin=manifest())
    cluster.send("POST", f"{WEB}/binding", {"target": {"name": "n1"}}, token="admin")
    running = {"name": "app", "ready": True, "restartCount": 0, "state": {"running": {}}}
    running["resources"] = manifest()["spec"]["containers"][0]["resources"]
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "containerStatuses": [running], "conditions": [ready]}
    cluster.send("PATCH", f"{WEB}/status", {"status": status})
    yield
    cluster.kubectl("delete", "pod", "web", "--force", "--grace-period=0")


def test_version_and_resources(cluster: Cluster) -> None:
    assert "Server Version: v1." in cluster.kubectl("version").stdout
    names = cluster.kubectl("api-resources", "-o", "name").stdout.split()
    assert {"pods", "nodes", "namespaces", "leases.coordination.k8s.io"} <= set(names)
    assert "containers" in cluster.kubectl("explain", "pod.spec").stdout


@pytest.mark.usefixtures("web")
def test_get_wait_and_describe(cluster: Cluster) -> None:
    lines = cluster.kubectl("get", "pods").stdout.splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:3] == ["web", "1/1", "Running"]
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=5s")
    assert "tier=front" in cluster.kubectl("describe", "pod", "web").stdout
    assert "web" in cluster.kubectl("describe", "node", "n1").stdout
    assert "Ready" in cluster.kubectl("get", "nodes").stdout


@pytest.mark.usefixtures("web")
def test_apply_diff_and_label(cluster: Cluster) -> None:
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", stdin=manifest()).stdout
    dry = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest("300m"))
    assert "configured (server dry run)" in dry.stdout
    assert "300m" in cluster.kubectl("diff", "-f", "-", stdin=manifest("300m"), fails=True).stdout
    assert "configured" in cluster.kubectl("apply", "-f", "-", stdin=manifest("300m")).stdout
    assert "labeled" in cluster.kubectl("label", "pod", "web", "new=label").stdout
    odd = manifest()
    odd["spec"]["colour"] = "red"
    refused = cluster.kubectl("apply", "-f", "-", stdin=odd, fails=True).stderr
    assert 'unknown field "spec.colour"' in refused


@pytest.mark.usefixtures("web")
def test_resize_from_request_to_done(cluster: Cluster) -> None:
    patch = json.dumps(
        {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "400m"}}}]}}
    )
    resize = ("patch", "pod", "web", "--subresource", "resize", "--patch", patch)
    assert "patched" in cluster.kubectl(*resize).stdout
    pod = json.loads(cluster.kubectl("get", "pod", "web", "-o", "json").stdout)
    generation = pod["metadata"]["generation"]
    assert pod["spec"]["resizeRequest"]["requestStatus"] == "Requested"
    for status in ("Accepted", "Done"):
        body = {"request": {"requestStatus": status}, "generation": generation}
        cluster.send("POST", f"{WEB}/resizing", body)
    done = "jsonpath={.spec.resizeRequest.requestStatus}={.spec.containers[0].resourcesAllocated}"
    said = cluster.kubectl("get", "pod", "web", "-o", done).stdout
    assert said == 'Done={"cpu":"400m","memory":"64Mi"}'


@pytest.mark.usefixtures("web")
def test_a_refusal_is_printed_with_its_field(cluster: Cluster) -> None:
    patch = '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2"}}}]}}'
    words = ("patch", "pod", "web", "--subresource", "resize", "--patch", patch)
    said = cluster.kubectl(*words, fails=True).stderr
    assert "must be less than or equal to cpu limit of 1" in said


@pytest.mark.usefixtures("web")
def test_get_watch(cluster: Cluster) -> None:
    command = cluster.command("get", "pods", "-w", "--no-headers")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["web", "1/1", "Running"]
        cluster.send("PATCH", f"{WEB}/status", {"status": {"phase": "Failed"}})
        assert watching.stdout.readline().split()[:3] == ["web", "1/1", "Failed"]
        watching.terminate()


def test_a_namespace_with_a_pod_is_deleted_whole(cluster: Cluster) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    cluster.kubectl("apply", "-f", "-", stdin=namespace)
    cluster.kubectl("apply", "-n", "team", "-f", "-", stdin=manifest())
    assert "deleted" in cluster.kubectl("delete", "ns", "team", "--timeout=10s").stdout
    assert "NotFound" in cluster.kubectl("get", "ns", "team", fails=True).stderr
