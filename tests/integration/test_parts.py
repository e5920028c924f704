"""The parts as processes of their own, with a fake machine: who leads, how they stop, what they
tell the service manager and the log."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from system.parts import Cluster
from system.up import LIVESIZE, container

pytestmark = pytest.mark.door


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
    cluster.join("api")
    cluster.add_agent("--runtime", "fake").start()
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


def test_an_apiserver_stops_in_good_order(cluster: Cluster) -> None:
    """First /readyz fails while everything is still served; then watches end; then it goes."""
    start_apiserver(cluster, "--stop-delay", "1.5")
    asking, watching = Connection(cluster), Connection(cluster)
    assert asking.status("/readyz") == 200
    watch = watching.get("/api/v1/namespaces?watch=true")
    ended: list[bytes] = []
    reader = threading.Thread(target=lambda: ended.append(watch.read()))
    reader.start()
    process = cluster.parts["api"]
    os.kill(process.pid, signal.SIGTERM)
    cluster.wait_until(lambda: asking.status("/readyz") == 503, "it is not ready any more")
    assert asking.status("/livez") == 200
    assert asking.status("/api/v1/namespaces/default") == 200, "served on"
    assert not ended
    reader.join(timeout=10)
    assert ended, "the watch was ended, not cut"
    assert process.popen is not None
    assert process.popen.wait(timeout=10) == 0
    assert "Traceback" not in process.said()


def test_requests_under_way_are_answered(cluster: Cluster) -> None:
    """Ten clients write without pause while it stops: whoever was not refused was answered."""
    start_apiserver(cluster)
    cut: list[BaseException] = []
    written: list[str] = []

    def write(number: int) -> None:
        for count in range(1000):
            name = f"c{number}-{count}"
            connection = Connection(cluster)  # new each time: nothing is sent on a closed one
            body = json.dumps({"metadata": {"name": name}})
            headers = {**connection._headers, "Content-Type": "application/json"}
            try:
                connection.http.connect()
            except OSError:
                return  # it does not take connections any more
            try:
                path = "/api/v1/namespaces/default/configmaps"
                connection.http.request("POST", path, body, headers)
                answer = connection.http.getresponse()
            except (OSError, http.client.HTTPException) as failure:
                cut.append(failure)
                return
            answer.read()
            connection.http.close()
            if answer.status == 201:
                written.append(name)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in writers:
        one.start()
    cluster.wait_until(lambda: len(written) > 40, "they write")
    cluster.parts["api"].stop()
    for one in writers:
        one.join(timeout=20)
    # A connection that was accepted and had not sent its request when it was closed may be cut.
    assert len(cut) <= len(writers)
    cluster.parts["api"].start()
    cluster.ready("api")
    items = cluster.request("GET", "/api/v1/namespaces/default/configmaps")[1]["items"]
    assert set(written) <= {one["metadata"]["name"] for one in items}


def test_the_service_manager_and_the_log_are_told(cluster: Cluster) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"livesize-test-{os.getpid()}"
        manager.bind(f"\0{name}")
        manager.settimeout(20)
        words = ("--log-format", "json", "--log-level", "debug")
        start_apiserver(cluster, *words, NOTIFY_SOCKET=f"@{name}", WATCHDOG_USEC="3000000")
        heard = [manager.recv(4096).decode() for _ in range(3)]
        assert any(one.startswith("READY=1\nSTATUS=livesize apiserver is ready") for one in heard)
        assert heard.count("WATCHDOG=1") == 2
        cluster.parts["api"].stop()
        while not (said := manager.recv(4096).decode()).startswith("STOPPING=1"):
            assert said == "WATCHDOG=1"
    lines = [line for line in cluster.parts["api"].said().splitlines() if line.startswith("{")]
    logged: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert {"serving", "stopping"} <= {line["msg"] for line in logged}
    assert all({"time", "level", "from"} <= set(line) for line in logged)


def test_a_part_that_cannot_start_says_why_in_one_sentence(cluster: Cluster) -> None:
    start_apiserver(cluster)
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
