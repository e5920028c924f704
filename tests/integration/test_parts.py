"""The parts as processes of their own, with a fake machine: who leads, how they stop, what they
tell the service manager and the log."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import pytest
import yaml

from etcd_servers import cluster as etcd_cluster
from etcd_servers import find_etcd
from livesize.client.kubeconfig import connection_from
from livesize.client.node_join import renewal_time
from system.parts import Cluster
from system.up import LIVESIZE, container

pytestmark = pytest.mark.apiserver

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    try:
        yield made
    finally:
        made.end()


def start_apiserver(cluster: Cluster, *more: str, **environment: str) -> None:
    cluster.add_apiserver("api", *more).start(**environment)
    cluster.ready("api")
    cluster.speak_to("api")


def test_schedulers_hand_over(cluster: Cluster) -> None:
    start_apiserver(cluster)
    kubeconfig = cluster.certificate("api", "scheduler", "scheduler")
    for number in (1, 2):
        cluster.add_peer(f"scheduler-{number}", "scheduler", kubeconfig).start()
    node = cluster.certificate("api", cluster.node, f"node:{cluster.node}", "--expires", "60s")
    cluster.add_agent("--runtime", "fake", "--kubeconfig", str(node)).start()
    cluster.ready(*cluster.parts)
    first = cluster.wait_until(lambda: cluster.leader("scheduler"), "somebody leads")
    cluster.create_pod("one", [container("app", "100m", "32Mi")])

    began = time.monotonic()
    cluster.parts[first].stop()
    other = cluster.wait_until(lambda: cluster.leader("scheduler"), "the other one leads")
    assert other != first
    assert time.monotonic() - began < 4, "released, not run out"
    cluster.create_pod("two", [container("app", "100m", "32Mi")])

    cluster.parts[first].start()
    cluster.ready(first)
    cluster.parts[other].kill()
    began = time.monotonic()
    cluster.wait_until(lambda: cluster.leader("scheduler") == first, "the first one leads again")
    assert time.monotonic() - began < 10
    cluster.create_pod("three", [container("app", "100m", "32Mi")])
    # More than two thirds of the node's certificate were over from the beginning.
    assert "certificate renewed" in cluster.parts["agent"].said()
    assert renewal_time(connection_from(node)) > time.time() + 86400


@pytest.mark.matrix
def test_an_apiserver_that_hangs_is_left_for_the_next(
    tmp_path: Path, not_run: Callable[[str], NoReturn]
) -> None:
    """It takes connections and answers nothing: nobody is told, everybody has to find out."""
    if find_etcd() is None:
        not_run("needs etcd")
    with etcd_cluster(tmp_path / "etcd") as [member]:
        cluster = Cluster(tmp_path / "cluster", etcd=member.endpoint)
        try:
            start_apiserver(cluster)
            cluster.add_apiserver("api-2").start()
            kubeconfig = cluster.certificate("api", "scheduler", "scheduler")
            cluster.add_peer("scheduler", "scheduler", kubeconfig).start()
            cluster.join("api")
            cluster.add_agent("--runtime", "fake").start()
            cluster.ready(*cluster.parts)
            cluster.create_pod("one", [container("app", "100m", "32Mi")])
            os.kill(cluster.parts["api"].pid, signal.SIGSTOP)
            cluster.speak_to("api-2")
            cluster.create_pod("two", [container("app", "100m", "32Mi")])
        finally:
            cluster.end()


class Connection:
    """One kept-alive connection, as the admin."""

    def __init__(self, cluster: Cluster) -> None:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self.http = http.client.HTTPSConnection(
            str(address.hostname), address.port, timeout=10, context=context
        )

    def get(self, path: str) -> http.client.HTTPResponse:
        self.http.request("GET", path, headers=self._headers)
        return self.http.getresponse()

    def status(self, path: str) -> int:
        answer = self.get(path)
        answer.read()
        return answer.status

    def begin_post(self, path: str, body: bytes) -> None:
        """All of it but the last byte."""
        self.http.putrequest("POST", path)
        for name, value in self._headers.items():
            self.http.putheader(name, value)
        self.http.putheader("Content-Type", "application/json")
        self.http.putheader("Content-Length", str(len(body)))
        self.http.endheaders(body[:-1])

    def end_post(self, body: bytes) -> int:
        self.http.send(body[-1:])
        answer = self.http.getresponse()
        answer.read()
        return answer.status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


def test_an_apiserver_stops_in_good_order(cluster: Cluster) -> None:
    """First /readyz fails while everything is still served; then watches end and nobody comes in
    any more; who was in is answered; then it goes."""
    start_apiserver(cluster, "--stop-delay", "1")
    with contextlib.ExitStack() as stack:
        connections = (stack.enter_context(Connection(cluster)) for _ in range(3))
        stop_in_good_order(cluster, *connections)
    cluster.parts["api"].start()
    cluster.ready("api")
    assert cluster.request("GET", f"{MAPS}/late")[0] == 200, "what was answered 201 is there"


def stop_in_good_order(
    cluster: Cluster, asking: Connection, watching: Connection, writing: Connection
) -> None:
    body = json.dumps({"metadata": {"name": "late"}}).encode()
    writing.begin_post(MAPS, body)
    assert asking.status("/readyz") == 200
    watch = watching.get("/api/v1/namespaces?watch=true")
    process = cluster.parts["api"]
    os.kill(process.pid, signal.SIGTERM)
    cluster.wait_until(lambda: asking.status("/readyz") == 503, "it is not ready any more")
    assert asking.status("/livez") == 200
    assert asking.status("/api/v1/namespaces/default") == 200, "served on"
    assert watch.read().endswith(b"\n"), "the watch was ended, not cut"
    cluster.wait_until(lambda: is_closed(cluster), "nobody comes in any more")
    assert writing.end_post(body) == 201, "who was in is answered"
    assert process.popen is not None
    assert process.popen.wait(timeout=10) == 0
    assert "Traceback" not in process.said()


def is_closed(cluster: Cluster) -> bool:
    with Connection(cluster) as late:
        try:
            late.http.connect()
        except ConnectionRefusedError:
            return True
    return False


def test_what_the_service_manager_the_log_and_a_second_one_are_told(cluster: Cluster) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"livesize-test-{os.getpid()}"
        manager.bind(f"\0{name}")
        manager.settimeout(20)
        words = ("--log-format", "json", "--log-level", "debug")
        start_apiserver(cluster, *words, NOTIFY_SOCKET=f"@{name}", WATCHDOG_USEC="3000000")
        heard = [manager.recv(4096).decode() for _ in range(3)]
        assert any(one.startswith("READY=1\nSTATUS=livesize apiserver is ready") for one in heard)
        assert heard.count("WATCHDOG=1") == 2
        refuses_a_second_one(cluster)
        cluster.parts["api"].stop()
        while not (said := manager.recv(4096).decode()).startswith("STOPPING=1"):
            assert said == "WATCHDOG=1"
    lines = [line for line in cluster.parts["api"].said().splitlines() if line.startswith("{")]
    logged: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert {"serving", "stopping"} <= {line["msg"] for line in logged}
    assert all({"time", "level", "from"} <= set(line) for line in logged)


def refuses_a_second_one(cluster: Cluster) -> None:
    """On the same data directory: one sentence, and exit code 1."""
    data = str(cluster.directory / "api")
    again = subprocess.run(
        [LIVESIZE, "apiserver", "--data-dir", data, "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert again.returncode == 1
    assert again.stderr.startswith("Error: another livesize uses")
    assert len(again.stderr.splitlines()) == 1
