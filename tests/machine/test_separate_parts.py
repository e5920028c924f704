"""The parts as processes of their own, two of each on one etcd: whoever is killed, a real container
is resized, and is never restarted."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from etcd_servers import cluster as etcd_cluster
from etcd_servers import find_etcd
from system.groups import GroupFiles, group_of, start_time
from system.parts import Cluster
from system.up import container

pytestmark = pytest.mark.containers


@pytest.fixture
def cluster(tmp_path: Path, not_run: Callable[[str], NoReturn]) -> Iterator[Cluster]:
    if find_etcd() is None:
        not_run("needs etcd")
    with etcd_cluster(tmp_path / "etcd") as [member]:
        made = Cluster(tmp_path / "cluster", etcd=member.endpoint)
        try:
            start(made)
            yield made
        finally:
            made.end()


def start(made: Cluster) -> None:
    """As docs/running-parts.md walks."""
    made.add_apiserver("api-1").start()
    made.ready("api-1")
    made.add_apiserver("api-2").start()
    made.speak_to("api-1")
    scheduler = made.certificate("api-1", "scheduler", "scheduler")
    controllers = made.certificate("api-1", "controllers", "controller")
    for number in (1, 2):
        made.add_peer(f"scheduler-{number}", "scheduler", scheduler).start()
        made.add_peer(f"controllers-{number}", "controllers", controllers).start()
    made.join("api-1")
    made.add_agent().start()
    made.ready(*made.parts)
    made.wait_until(made.node_is_ready, "the node is ready")


def resize(made: Cluster, group: GroupFiles, cpu_milli: int) -> None:
    made.livesize("resize", "pod/db", "--cpu", f"{cpu_milli}m", "--wait")
    assert group.cpu_quota_us() == cpu_milli * 100
    status = made.pod("db")["status"]["containerStatuses"][0]
    assert status["resources"]["limits"]["cpu"] == f"{cpu_milli}m"
    assert status["restartCount"] == 0


def collects_garbage(made: Cluster, name: str) -> None:
    """Work of the controllers: what is owned goes with its owner."""
    path = "/api/v1/namespaces/default/configmaps"
    owner = made.request("POST", path, {"metadata": {"name": name}})[1]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    reference["uid"] = owner["metadata"]["uid"]
    owned = {"metadata": {"name": f"{name}-owned", "ownerReferences": [reference]}}
    assert made.request("POST", path, owned)[0] == 201
    made.request("DELETE", f"{path}/{name}")
    gone = f"{path}/{name}-owned"
    made.wait_until(lambda: made.request("GET", gone)[0] == 404, "garbage is collected")


def reaches_the_node(made: Cluster) -> None:
    """Each API server shows the node its certificate, and the node its own."""
    node = made.request("GET", f"/api/v1/nodes/{made.node}")[1]["status"]
    assert node["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    for server in ("api-2", "api-1"):
        made.speak_to(server)
        assert made.kubectl("exec", "db", "--", "echo", "there").stdout == "there\n"
        assert made.kubectl("logs", "db").stdout == ""


def refuses_others(made: Cluster) -> None:
    """A certificate of the cluster is not enough: it must be an API server's."""
    node = made.request("GET", f"/api/v1/nodes/{made.node}")[1]["status"]
    address = node["addresses"][0]["address"], node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    uid = made.pod("db")["metadata"]["uid"]
    for name, code in (("nobody", None), ("scheduler", 403)):
        context = ssl.create_default_context(
            cafile=str(made.directory / "api-1" / "control" / "tls" / "ca.crt")
        )
        context.check_hostname = False
        if code is not None:
            context.load_cert_chain(made.directory / f"{name}.crt", made.directory / f"{name}.key")
        connection = http.client.HTTPSConnection(*address, context=context, timeout=10)
        try:
            connection.request("GET", f"/logs/{uid}/app")
            assert connection.getresponse().status == code
        except (ssl.SSLError, ConnectionError):
            assert code is None
        finally:
            connection.close()


def test_whoever_is_killed_the_others_go_on(cluster: Cluster) -> None:
    cluster.create_pod("db", [container("app", "200m", "64Mi")])
    group = group_of(cluster, "db", "app")
    pid, began = group.main_pid(), start_time(group.main_pid())
    resize(cluster, group, 300)
    reaches_the_node(cluster)
    refuses_others(cluster)
    collects_garbage(cluster, "first")

    # An API server, the scheduler and the controllers that lead, and the agent: all at once.
    killed = ["api-1", "agent"]
    killed += [str(cluster.leader(part)) for part in ("scheduler", "controllers")]
    for name in killed:
        cluster.parts[name].kill()
    assert start_time(pid) == began, "the workload outlives the agent"
    cluster.parts["agent"].start()
    cluster.speak_to("api-2")
    resize(cluster, group, 400)
    for part in ("scheduler", "controllers"):
        leads = cluster.wait_until(lambda part=part: cluster.leader(part), f"one of {part} leads")
        assert leads not in killed
    cluster.create_pod("second", [container("app", "100m", "32Mi")])
    collects_garbage(cluster, "second")

    # The other one is back, and this one goes: what was written here is known there.
    cluster.parts["api-1"].start()
    cluster.ready("api-1")
    cluster.parts["api-2"].kill()
    cluster.speak_to("api-1")
    resize(cluster, group, 500)
    assert (group.main_pid(), start_time(pid)) == (pid, began)
    collects_garbage(cluster, "third")

    # What is deleted while there is no agent goes with the next one; what is not, stays.
    gone = group_of(cluster, "second", "app").main_pid()
    cluster.parts["agent"].kill()
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/second")
    cluster.parts["agent"].start()
    cluster.wait_until(lambda: not Path(f"/proc/{gone}").exists(), "its process is gone")
    resize(cluster, group, 200)
    assert (group.main_pid(), start_time(pid)) == (pid, began)
    assert "Traceback" not in cluster.log()
