"""Every manifest of examples/ works: its comment's commands are run, and the machine is looked at.

The commands below "# Try:" go to one shell, as a person would type them; one with the word
"refused" in its comment must fail, every other must not.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from system.groups import group_of
from system.up import LIVESIZE, Up
from system.vm import Vm, running_up_for_vms

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MIB = 1 << 20
SECONDS = 150

pytestmark = pytest.mark.usefixtures("needs_root", "kubectl_1_32")


def commands(example: str) -> list[str]:
    """The lines below "# Try:"."""
    comment = (EXAMPLES / example).read_text().partition("\n# Try:\n")[2]
    lines = comment.partition("\napiVersion:")[0].splitlines()
    return [line.removeprefix("#").strip() for line in lines]


def script(lines: list[str]) -> str:
    parts = ["set -eu"]
    for line in lines:
        command, _, remark = line.partition("  #")
        if "refused" in remark:
            parts.append(f"if {command}; then echo 'not refused' >&2; exit 1; fi")
        else:
            parts.append(command)
    return "\n".join(parts)


@contextmanager
def tried(up: Up, example: str) -> Iterator[str]:
    """Type the commands of an example; what they print. All of it is deleted afterwards."""
    path = f"{Path(LIVESIZE).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig), "PATH": path}
    try:
        done = subprocess.run(
            ["sh", "-xc", script(commands(example))],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        yield done.stdout
    finally:
        words = ("--ignore-not-found", "--now", "--cascade=foreground", "--timeout=60s")
        up.kubectl("delete", "-f", str(EXAMPLES / example), *words)


def size(up: Up, pod: str, container: str = "app", namespace: str = "default") -> tuple[Any, Any]:
    """CPU quota in µs and memory limit in MiB, as the kernel has them."""
    group = group_of(up, pod, container, namespace)
    return group.cpu_quota_us(), (group.memory_limit_bytes() or 0) // MIB


def restarts(up: Up, pod: str, namespace: str = "default") -> dict[str, int]:
    status = up.pod(pod, namespace)["status"]
    statuses = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
    return {one["name"]: one["restartCount"] for one in statuses}


def check_resize_policy(up: Up, _told: str) -> None:
    assert size(up, "policy") == (30_000, 96)
    assert restarts(up, "policy") == {"app": 1}


def check_sidecar(up: Up, _told: str) -> None:
    assert (size(up, "mesh", "proxy"), size(up, "mesh")) == ((20_000, 48), (10_000, 32))
    assert restarts(up, "mesh") == {"proxy": 0, "app": 0}


def check_deadline(up: Up, told: str) -> None:
    up.wait_resized("patient")
    assert size(up, "patient") == (10_000, 64)
    assert restarts(up, "patient") == {"app": 0}
    assert "ResizeReverted" in told


def check_quota(up: Up, told: str) -> None:
    assert size(up, "web", namespace="team") == (30_000, 64)
    assert restarts(up, "web", "team") == {"app": 0}
    _, quota = up.request("GET", "/api/v1/namespaces/team/resourcequotas/budget")
    assert quota["status"]["used"]["requests.cpu"] == "300m"
    assert "exceeded quota: budget" in told
    assert "maximum memory usage per Container is 256Mi" in told


def check_disruption_budget(up: Up, told: str) -> None:
    assert (size(up, "shop-1"), size(up, "shop-2")) == ((20_000, 32), (10_000, 32))
    assert "Cannot evict pod as it would violate the pod's disruption budget" in told
    _, node = up.request("GET", f"/api/v1/nodes/{up.node}")
    assert not node["spec"].get("unschedulable")


def check_claim(up: Up, told: str) -> None:
    assert size(up, "store") == (10_000, 64), "the pod was made anew"
    assert told.rstrip().endswith("kept")


def check_stateful_set(up: Up, told: str) -> None:
    for pod in ("shard-0", "shard-1"):
        assert (size(up, pod), restarts(up, pod)) == ((10_000, 48), {"app": 0})
    assert "shard-0, shard-1: its node can never hold it" in told
    assert "a size feasible on all the nodes" in told


def check_deployment(up: Up, told: str) -> None:
    pods = up.kubectl("get", "pods", "-l", "app=front", "-o", "name").stdout.split()
    assert len(pods) == 2
    for pod in (name.removeprefix("pod/") for name in pods):
        assert (size(up, pod), restarts(up, pod)) == ((6_000, 64), {"app": 1})
        assert told.count(pod) >= 4, "it was there from the beginning"
    assert up.kubectl("get", "rs", "-l", "app=front", "-o", "name").stdout.count("\n") == 1


CHECKS: dict[str, Callable[[Up, str], None]] = {
    "resize-policy.yaml": check_resize_policy,
    "sidecar.yaml": check_sidecar,
    "deadline.yaml": check_deadline,
    "quota.yaml": check_quota,
    "disruption-budget.yaml": check_disruption_budget,
    "claim.yaml": check_claim,
    "statefulset.yaml": check_stateful_set,
    "deployment.yaml": check_deployment,
}
VIRTUAL_MACHINES = {
    "virtual-machine.yaml": "guest",
    "virtual-machine-dimm.yaml": "modules",
    "virtual-machine-numa.yaml": "cells",
    "virtual-machine-balloon.yaml": "balloon",
}
WITH_SETTINGS = ("static-cpu.yaml", *VIRTUAL_MACHINES)


@pytest.mark.apiserver
@pytest.mark.parametrize("example", CHECKS)
def test_what_an_example_says_can_be_tried(up: Up, example: str) -> None:
    with tried(up, example) as told:
        CHECKS[example](up, told)


@pytest.mark.containers
def test_a_container_with_a_cpu_of_its_own(tmp_path: Path) -> None:
    up = Up(tmp_path / "up", allocatable=f"cpu={os.cpu_count()}")
    try:
        up.start("--cpu-policy", "static")
        with tried(up, "static-cpu.yaml") as told:
            assert group_of(up, "pinned", "app").cpus().isdigit(), "one CPU"
            assert size(up, "pinned")[1] == 96
            assert restarts(up, "pinned") == {"app": 0}
            assert "is not whole" in told
    finally:
        up.end()


@pytest.fixture(scope="module")
def up_for_vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")  # the path of a socket below it is short enough
    with running_up_for_vms(directory) as up:
        yield up


@pytest.mark.vms
@pytest.mark.parametrize("example", VIRTUAL_MACHINES)
def test_a_virtual_machine(up_for_vms: Up, example: str) -> None:
    name = VIRTUAL_MACHINES[example]
    with tried(up_for_vms, example) as told:
        assert told.count(f"pod/{name} resized") == 2
        guest = Vm(up_for_vms, name)
        status, size = guest.status, {"cpu": "1", "memory": "512Mi"}
        assert status["restartCount"] == 0
        assert status["resources"] == {"requests": size, "limits": size}
        assert status["guest"]["memoryPlugged"] == "512Mi"
        named = guest.pod["spec"]["virtualMachine"]["memory"].get("technology")
        if named is not None:
            assert status["memory"]["technology"] == named
        if named == "balloon":
            # What else has a size is in its NUMA cells and devices, and a balloon has neither.
            assert status["memory"]["maxBootTime"] == "1Gi"
        else:
            guest.check(1, 512)
        if name == "cells":
            assert [cell["plugged"] for cell in status["cells"]] == ["256Mi", "256Mi"]


@pytest.mark.apiserver
def test_every_example_is_tried_here() -> None:
    assert sorted([*CHECKS, *WITH_SETTINGS]) == sorted(
        path.name for path in EXAMPLES.glob("*.yaml")
    )
