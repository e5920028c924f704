"""kubectl 1.32 and a VM pod: it knows only containers, and finds one named "vm"."""

from __future__ import annotations

import json
import platform
import re
from typing import Any

import pytest

from livesize.api.architecture import architecture_of
from system.up import Up

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

SMALL, LARGE = {"cpu": "1", "memory": "512Mi"}, {"cpu": "2", "memory": "1Gi"}
NAME = "guest1"


@pytest.fixture(scope="module")
def up(fake_up: Up) -> Up:
    return fake_up


def both(size: dict[str, str]) -> dict[str, Any]:
    return {"requests": size, "limits": size}


def manifest(name: str = NAME, **vm: Any) -> str:
    machine = {
        "kernel": {"image": "guest.vmlinuz"},
        "cpu": {"max": "4"},
        "memory": {"max": "2Gi", "boot": "512Mi"},
        "resources": both(SMALL),
        **vm,
    }
    spec = {"terminationGracePeriodSeconds": 0, "virtualMachine": machine}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return json.dumps(pod)


@pytest.fixture
def vm(up: Up) -> Any:
    up.kubectl("apply", "-f", "-", stdin=manifest())
    up.kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=20s")
    yield NAME
    up.kubectl("delete", "pod", NAME, "--now")


def served(up: Up) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads(up.kubectl("get", "pod", NAME, "-o", "json").stdout)
    return pod


def resized(up: Up, size: dict[str, str]) -> None:
    """In every place that says a size."""
    up.kubectl(
        *("wait", f"pod/{NAME}", "--timeout=20s"),
        "--for=jsonpath={.status.resizeState.phase}=Done",
    )
    pod = served(up)
    assert pod["spec"]["virtualMachine"]["resources"] == both(size)
    (container,) = pod["spec"]["containers"]
    (status,) = pod["status"]["containerStatuses"]
    assert container["resources"] == status["resources"] == both(size)
    assert status["allocatedResources"] == size
    assert (status["name"], status["ready"], status["restartCount"]) == ("vm", True, 0)
    assert "running" in status["state"]


def test_set_resources_is_the_vms_resize(up: Up, vm: str) -> None:
    words = ",".join(f"{name}={amount}" for name, amount in LARGE.items())
    up.kubectl("set", "resources", f"pod/{vm}", f"--limits={words}", f"--requests={words}")
    resized(up, LARGE)


def test_a_patch_of_the_resize_subresource(up: Up, vm: str) -> None:
    patch = {"spec": {"containers": [{"name": "vm", "resources": both(LARGE)}]}}
    up.kubectl("patch", "pod", vm, "--subresource=resize", "-p", json.dumps(patch))
    resized(up, LARGE)


@pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")])
def test_apply_of_another_size(up: Up, vm: str, how: tuple[str, ...]) -> None:
    up.kubectl("apply", *how, "-f", "-", stdin=manifest(resources=both(LARGE)))
    resized(up, LARGE)
    again = up.kubectl("apply", *how, "-f", "-", stdin=manifest(resources=both(LARGE))).stdout
    assert "unchanged" in again or "serverside-applied" in again


def test_server_side_apply_of_its_container(up: Up, vm: str) -> None:
    part = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": vm},
        "spec": {"containers": [{"name": "vm", "resources": both(LARGE)}]},
    }
    words = ("apply", "--server-side", "--field-manager=sizer", "--force-conflicts", "-f", "-")
    up.kubectl(*words, stdin=json.dumps(part))
    resized(up, LARGE)


def test_what_was_read_can_be_applied_again(up: Up, vm: str) -> None:
    done = up.kubectl("apply", "-f", "-", stdin=json.dumps(served(up)))
    assert done.returncode == 0
    up.kubectl("replace", "-f", "-", stdin=json.dumps(served(up)))
    resized_never = served(up)
    assert resized_never["spec"]["virtualMachine"]["resources"] == both(SMALL)


def test_two_sizes_at_once_are_refused_with_the_field(up: Up, vm: str) -> None:
    other = {"cpu": "3", "memory": "768Mi"}
    patch = {
        "spec": {
            "containers": [{"name": "vm", "resources": both(LARGE)}],
            "virtualMachine": {"resources": both(other)},
        }
    }
    words = ("patch", "pod", vm, "--type=merge", "-p", json.dumps(patch))
    done = up.kubectl(*words, check=False)
    assert done.returncode == 1
    assert "spec.containers[0].resources" in done.stderr


def test_describe_node_counts_it_once(up: Up, vm: str) -> None:
    told = up.kubectl("describe", "node", up.node).stdout
    (line,) = [line for line in told.splitlines() if NAME in line]
    assert re.search(r"\b1 \(\d+%\)\s+1 \(\d+%\)", line), line
    assert up.kubectl("describe", "pod", vm).stdout.count("  vm:") == 1


def test_a_vm_finds_its_node_by_the_architecture_everybody_knows(up: Up) -> None:
    pod = json.loads(manifest("chosen"))
    pod["spec"]["nodeSelector"] = {"kubernetes.io/arch": architecture_of(platform.machine())}
    up.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    up.kubectl("wait", "--for=condition=Ready", "pod/chosen", "--timeout=20s")
    up.kubectl("delete", "pod", "chosen", "--now")


def test_logs_do_not_crash_it(up: Up, vm: str) -> None:
    done = up.kubectl("logs", vm, check=False)
    assert "panic" not in done.stderr
    assert done.returncode == 0 or "guest1" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("exec", NAME, "--", "true"), ("attach", NAME)])
def test_commands_are_answered_with_a_sentence(up: Up, vm: str, words: tuple[str, ...]) -> None:
    done = up.kubectl(*words, check=False)
    assert done.returncode == 1
    assert "is a virtual machine" in done.stderr
    assert "panic" not in done.stderr
