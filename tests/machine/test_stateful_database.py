"""A StatefulSet of a real database, resized while its clients write: no request fails, nothing is
restarted, and what was acknowledged is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from leaks import claim
from system.claims import VOLUMES, folder_of
from system.database import Load, loads, member_container, rows, write_database_image
from system.groups import group_of, start_time
from system.networks import SUBNET, devices, write_network
from system.parts import Process, run_here
from system.up import LIVESIZE, Up, container, running_up

pytestmark = pytest.mark.workloads

REPLICAS = 5
MEMBERS = tuple(f"db-{ordinal}" for ordinal in range(REPLICAS))
PODS = "/api/v1/namespaces/default/pods"
PATH = "/apis/apps/v1/namespaces/default/statefulsets"
SMALL, LARGE = 20_000, 40_000  # quotas, µs in 100 ms
NETWORKS = Path("/etc/cni/net.d")
# In mounts of its own, so that the machine's own network configuration is left alone.
WRAPPER = """#!/bin/sh
[ "$1" = up ] || [ "$1" = agent ] || exec {livesize} "$@"
exec unshare --mount --propagation slave /bin/sh -ec '
mount --bind {folder}/net.d /etc/cni/net.d
mount -t tmpfs none /opt
mkdir -p /opt/cni/bin
mount --bind {folder}/bin /opt/cni/bin
exec {livesize} "$@"' livesize "$@"
"""


@pytest.fixture(autouse=True)
def networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_run: Callable[[str], NoReturn]
) -> Iterator[None]:
    """Pods have networks of their own: a controller may not make pods in the machine's."""
    if not NETWORKS.is_dir():
        not_run(f"needs the folder {NETWORKS}")
    folder = tmp_path / "cni"
    write_network(folder / "bin", folder / "net.d")
    wrapper = folder / "livesize"
    wrapper.write_text(WRAPPER.format(livesize=LIVESIZE, folder=folder))
    wrapper.chmod(0o755)
    monkeypatch.setattr("system.up.LIVESIZE", str(wrapper))
    monkeypatch.setattr("system.parts.LIVESIZE", str(wrapper))
    yield
    assert devices() == []
    assert not (NETWORKS / "10-test.conflist").exists(), "the machine has the network of a test"


@pytest.fixture(scope="module")
def image(
    needs_containerd: None,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> Path:
    return write_database_image(tmp_path_factory.mktemp("image") / "redis", not_run)


def make_set(up: Up, replicas: int, policy: str, **claim_spec: Any) -> None:
    storage = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "64Mi"}},
        **claim_spec,
    }
    spec = {
        "replicas": replicas,
        "serviceName": "db",
        "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [member_container("200m", "64Mi")],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": storage}],
    }
    code, answer = up.request("POST", PATH, {"metadata": {"name": "db"}, "spec": spec})
    assert code == 201, answer
    wait_ready(up, replicas)


def wait_ready(up: Up, replicas: int) -> None:
    def are_ready() -> bool:
        return read_set(up).get("status", {}).get("readyReplicas") == replicas

    up.wait_until(are_ready, f"{replicas} members are ready", timeout_seconds=30)


def read_set(up: Up) -> dict[str, Any]:
    return up.request("GET", f"{PATH}/db")[1]


def addresses(up: Up) -> dict[str, str]:
    found = {name: up.pod(name)["status"]["podIP"] for name in MEMBERS}
    assert {address.rpartition(".")[0] for address in found.values()} == {SUBNET}
    return found


def identities(up: Up) -> dict[str, tuple[str, int, int, int]]:
    """uid, main process, when that began, restarts: all of it stays in a live resize."""
    found = {}
    for name in MEMBERS:
        pod = up.pod(name)
        pid = group_of(up, name, "redis").main_pid()
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        found[name] = (pod["metadata"]["uid"], pid, start_time(pid), restarts)
    return found


def quotas(up: Up) -> dict[str, int | None]:
    return {name: group_of(up, name, "redis").cpu_quota_us() for name in MEMBERS}


def revisions(up: Up) -> set[str]:
    """The revisions that pods have, and that the set has."""
    status = read_set(up)["status"]
    labels = {up.pod(name)["metadata"]["labels"]["controller-revision-hash"] for name in MEMBERS}
    return labels | {status["currentRevision"], status["updateRevision"]}


def version(up: Up) -> str:
    return str(up.request("GET", PODS)[1]["metadata"]["resourceVersion"])


def steps(up: Up, since: str) -> list[str]:
    """What a watch from ``since`` on has seen, in the order of the server's versions: whose size
    was asked for in its spec, and whose node said that it has it."""
    sizes = {name: _sizes(up.pod(name)) for name in MEMBERS}
    query = f"{PODS}?watch=1&resourceVersion={since}&timeoutSeconds=1"
    events = [json.loads(line) for line in up.kubectl("get", "--raw", query).stdout.splitlines()]
    found: list[str] = []
    for event in events:
        name, pod = event["object"]["metadata"]["name"], event["object"]
        for word, now, last in zip(("ask", "done"), _sizes(pod), sizes[name], strict=True):
            if now == last and f"{word} {name}" not in found:
                found.append(f"{word} {name}")
    return found


def _sizes(pod: dict[str, Any]) -> tuple[str, str]:
    """CPU that is asked for, and that its node reports."""
    reported = pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"]
    return pod["spec"]["containers"][0]["resources"]["limits"]["cpu"], reported


def one_by_one(*names: str) -> list[str]:
    return [f"{word} {name}" for name in names for word in ("ask", "done")]


def test_five_members_grow_and_shrink_under_load(image: Path, tmp_path: Path) -> None:
    with running_up(tmp_path / "up", runtime="containerd", allocatable="cpu=4,memory=4Gi") as up:
        import_image(image, up.directory)
        make_set(up, REPLICAS, "Parallel")
        before = identities(up)
        assert len(set(addresses(up).values())) == REPLICAS
        groups = {name: group_of(up, name, "redis") for name in MEMBERS}
        with loads(addresses(up)) as running:
            for cpu, memory, quota in (("400m", "96Mi", LARGE), ("200m", "64Mi", SMALL)):
                at_first = {name: load.acknowledged for name, load in running.items()}
                since = version(up)
                words = ("--cpu", cpu, "--memory", memory, "--action", "InPlaceResize")
                up.livesize("resize", "statefulset/db", *words, "--wait")
                assert steps(up, since) == one_by_one(*reversed(MEMBERS))
                assert quotas(up) == dict.fromkeys(MEMBERS, quota)
                limits = {group.memory_limit_bytes() for group in groups.values()}
                assert limits == {int(memory.removesuffix("Mi")) << 20}
                up.wait_until(lambda: len(revisions(up)) == 1, "all revisions are the newest")
                for name, load in running.items():
                    assert load.acknowledged > at_first[name], f"{name} was not asked"
            check_written(up, running)
        assert identities(up) == before
        for name in MEMBERS:
            assert (folder_of(up, f"data-{name}") / "appendonlydir").is_dir(), "it is in its claim"


def check_written(up: Up, running: dict[str, Load]) -> None:
    """No request has failed, and what was acknowledged is there."""
    written = {name: load.stop() for name, load in running.items()}
    failures = {name: load.failure for name, load in running.items() if load.failure}
    assert failures == {}
    found = {name: rows(address) for name, address in addresses(up).items()}
    assert found == {name: (count, count) for name, count in written.items()}


def import_image(image: Path, data_directory: Path) -> None:
    run_here("image", "import", str(image), "--data-dir", str(data_directory))


class SecondNode:
    """This machine once more, as a node of ``up`` with one CPU."""

    def __init__(self, up: Up, image: Path) -> None:
        self.name = f"{up.node}-b"
        folder = up.directory / "second"
        folder.mkdir()
        claim(self.name, folder)
        data = ("--data-dir", str(folder / "node"))
        line = run_here("token", "create", "--join", "--data-dir", str(up.directory))
        run_here(*line.splitlines()[0].split()[1:], "--node-name", self.name, *data)
        import_image(image, folder / "node")
        words = ["agent", *data, "--stop-pods", "--runtime", "containerd"]
        words += ["--allocatable", "cpu=1,memory=1Gi"]
        self.process = Process("agent", folder / "agent.log", words)
        self.process.start()
        up.wait_until(self.process.is_ready, "the second node is ready")


@pytest.fixture
def two_nodes(image: Path, tmp_path: Path) -> Iterator[tuple[Up, SecondNode]]:
    with running_up(tmp_path / "up", runtime="containerd", allocatable="cpu=4,memory=4Gi") as up:
        import_image(image, up.directory)
        second = SecondNode(up, image)
        try:
            yield up, second
        finally:
            second.process.stop()


def spread(up: Up, second: str, folder: Path) -> None:
    """Ordinal 2 alone on the second node, which another pod fills. Their volumes are folders that
    both nodes reach, as with a file server: a local volume would keep a pod where it was."""
    for name in MEMBERS:
        path = folder / name
        path.mkdir(parents=True)
        spec = {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "shared",
            "hostPath": {"path": str(path)},
            "claimRef": {"namespace": "default", "name": f"data-{name}"},
        }
        body = {"metadata": {"name": f"shared-{name}"}, "spec": spec}
        assert up.request("POST", VOLUMES, body)[0] == 201
    up.kubectl("cordon", second)
    make_set(up, 2, "OrderedReady", storageClassName="shared")
    for replicas, open_node, closed in ((3, second, up.node), (REPLICAS, up.node, second)):
        up.kubectl("uncordon", open_node)
        up.kubectl("cordon", closed)
        up.kubectl("scale", "statefulset/db", f"--replicas={replicas}")
        wait_ready(up, replicas)
    up.kubectl("uncordon", second)
    up.create_pod("filler", [container("app", "700m", "64Mi")], nodeName=second)


@pytest.mark.matrix
def test_a_full_node_keeps_one_member_waiting_and_then_it_moves_with_its_data(
    two_nodes: tuple[Up, SecondNode], tmp_path: Path
) -> None:
    up, second = two_nodes
    spread(up, second.name, tmp_path / "shared")
    nodes = {name: up.pod(name)["spec"]["nodeName"] for name in MEMBERS}
    assert nodes == {**dict.fromkeys(MEMBERS, up.node), "db-2": second.name}
    before = identities(up)
    up.kubectl("annotate", "statefulset/db", "livesize.dev/resize-deadline=2s")
    grow = ("resize", "statefulset/db", "--cpu", "400m", "--wait", "--timeout")

    with loads(addresses(up)) as running:
        since = version(up)
        done = up.livesize(*grow, "8s", "--action", "InPlaceResize", check=False)
        assert done.returncode != 0, done.stdout
        assert "4 of 5 pods have the new size" in done.stderr
        seen = [step for step in steps(up, since) if "db-2" not in step]
        assert seen == one_by_one("db-4", "db-3", "db-1", "db-0")
        assert quotas(up) == {**dict.fromkeys(MEMBERS, LARGE), "db-2": SMALL}
        report = json.loads(read_set(up)["metadata"]["annotations"]["livesize.dev/resize-status"])
        assert [one["reason"] for one in report["unfinished"]] == ["Deferred"]
        assert identities(up) == before, "InPlaceResize never recreates"

        up.livesize("resize", "statefulset/db", "--undo", "--wait")
        assert quotas(up) == dict.fromkeys(MEMBERS, SMALL)
        assert identities(up) == before

        moved = running["db-2"].stop()
        up.livesize(*grow, "40s", "--action", "InPlaceResizePreferred")
        after = identities(up)
        assert [name for name in MEMBERS if after[name] != before[name]] == ["db-2"]
        assert up.pod("db-2")["spec"]["nodeName"] == up.node
        assert quotas(up) == dict.fromkeys(MEMBERS, LARGE)
        up.wait_until(lambda: len(revisions(up)) == 1, "all revisions are the newest")
        wait_ready(up, REPLICAS)
        assert moved > 0
        check_written(up, running)
