"""The powers that a pod gives up, or asks for, on each runtime that runs containers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.runtime.security import CAPABILITIES, DEFAULT_CAPABILITIES
from system.groups import group_of
from system.up import LIVESIZE, Up, container, running_up

pytestmark = pytest.mark.security


@pytest.fixture(scope="module", params=["process", "containerd"])
def up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if request.param == "containerd":
        request.getfixturevalue("needs_containerd")
    directory = tmp_path_factory.mktemp(f"powers-{request.param}")
    with running_up(directory, runtime=request.param, allocatable="cpu=8,memory=4Gi") as running:
        yield running


def secured(**context: Any) -> list[dict[str, Any]]:
    return [{**container("app", "100m", "32Mi"), "securityContext": context}]


def status(up: Up, pod: str) -> dict[str, str]:
    """/proc/PID/status of the container's first process."""
    text = Path(f"/proc/{group_of(up, pod, 'app').main_pid()}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def inside(up: Up, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [LIVESIZE, "exec", "--kubeconfig", str(up.kubeconfig), pod, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def names(mask: str) -> set[str]:
    return {name for name, number in CAPABILITIES.items() if int(mask, 16) >> number & 1}


def test_capabilities_are_those_that_were_asked_for(up: Up) -> None:
    up.create_pod("usual", secured(), hostNetwork=True)
    few = {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    up.create_pod("few", secured(capabilities=few), hostNetwork=True)
    more = {"add": ["NET_ADMIN"], "drop": ["CHOWN"]}
    up.create_pod("more", secured(capabilities=more), hostNetwork=True)
    for field in ("CapEff", "CapPrm", "CapBnd"):
        assert names(status(up, "usual")[field]) == DEFAULT_CAPABILITIES
        assert names(status(up, "few")[field]) == {"NET_BIND_SERVICE"}
        assert names(status(up, "more")[field]) == DEFAULT_CAPABILITIES - {"CHOWN"} | {"NET_ADMIN"}
    said = inside(up, "few", "grep", "CapEff", "/proc/self/status").stdout
    assert names(said.split()[1]) == {"NET_BIND_SERVICE"}


def test_root_is_refused_where_the_pod_forbids_it(up: Up) -> None:
    up.request("POST", "/api/v1/namespaces/default/pods", pod("root", {"runAsNonRoot": True}))
    waiting = up.wait_until(lambda: waits(up, "root"), "root waits")
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith("container has runAsNonRoot and image will run as root")
    body = pod("zero", {"runAsNonRoot": True, "runAsUser": 0})
    up.request("POST", "/api/v1/namespaces/default/pods", body)
    waiting = up.wait_until(lambda: waits(up, "zero"), "zero waits")
    assert waiting["message"].startswith("container's runAsUser breaks non-root policy")
    for name in ("root", "zero"):
        up.delete_pod(name)
    up.create_pod("other", secured(runAsNonRoot=True, runAsUser=1234), hostNetwork=True)
    assert status(up, "other")["Uid"].split() == ["1234"] * 4


def test_the_filter_of_system_calls_is_there_unless_an_admin_says_otherwise(up: Up) -> None:
    default = {"type": "RuntimeDefault"}
    up.create_pod("default", secured(seccompProfile=default), hostNetwork=True)
    up.create_pod("free", secured(seccompProfile={"type": "Unconfined"}), hostNetwork=True)
    assert status(up, "default")["Seccomp"] == "2"
    assert status(up, "free")["Seccomp"] == "0"
    words = ("unshare", "-U", "true")  # who has no filter may make a user namespace
    assert inside(up, "default", *words).returncode != 0
    assert inside(up, "free", *words).returncode == 0


def pod(name: str, context: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": secured(**context), "hostNetwork": True},
    }


def waits(up: Up, name: str) -> dict[str, Any] | None:
    for one in up.pod(name).get("status", {}).get("containerStatuses", []):
        waiting: dict[str, Any] = one["state"].get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating"):
            return waiting
    return None
