"""kubectl 1.32 with D/kubeconfig against a real `livesize up`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from system.groups import group_of
from system.up import Up, container

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]


def manifest(name: str, cpu: str = "200m", memory: str = "64Mi", **labels: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "containers": [container("app", cpu, memory)],
                "terminationGracePeriodSeconds": 0,
            },
        }
    )


@pytest.fixture
def web(up: Up) -> Iterator[str]:
    up.kubectl("apply", "-f", "-", stdin=manifest("web", tier="front"))
    up.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    yield "web"
    up.kubectl("delete", "pod", "web", "--timeout=20s")
    assert up.kubectl("get", "pod", "web", check=False).returncode == 1


def test_get_prints_the_usual_table(up: Up, web: str) -> None:
    lines = up.kubectl("get", "pods").stdout.splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["web", "1/1", "Running", "0"]
    assert up.kubectl("get", "pods", "-o", "name").stdout.strip() == "pod/web"
    assert "No resources found" in up.kubectl("get", "pods", "-l", "tier=back").stderr


def test_apply_again_changes_what_differs(up: Up, web: str) -> None:
    assert "unchanged" in up.kubectl("apply", "-f", "-", stdin=manifest("web", tier="front")).stdout
    changed = manifest("web", cpu="300m", tier="front")
    assert "configured" in up.kubectl("apply", "-f", "-", stdin=changed).stdout
    up.wait_resized("web")
    assert group_of(up, "web", "app").cpu_quota_us() == 30_000


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (
            "strategic",
            (
                '{"spec":{"containers":[{"name":"app","resources":'
                '{"requests":{"cpu":"400m"},"limits":{"cpu":"400m"}}}]}}'
            ),
        ),
        (
            "json",
            (
                '[{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"400m"},'
                '{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"400m"}]'
            ),
        ),
    ],
)
def test_patch_subresource_resize(up: Up, web: str, patch_type: str, patch: str) -> None:
    group = group_of(up, "web", "app")
    pid = group.main_pid()
    answer = up.kubectl(
        *("patch", "pod", "web", "--subresource", "resize", "--type", patch_type, "--patch", patch)
    )
    assert "patched" in answer.stdout
    up.wait_resized("web")
    assert group.cpu_quota_us() == 40_000
    assert group.main_pid() == pid


def test_a_refusal_is_printed_with_its_field(up: Up, web: str) -> None:
    patch = '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m"}}}]}}'
    answer = up.kubectl(
        *("patch", "pod", "web", "--subresource", "resize", "--patch", patch), check=False
    )
    assert answer.returncode == 1
    assert "Pod QOS Class may not change as a result of resizing" in answer.stderr


def test_describe_shows_the_resize_in_its_events(up: Up, web: str) -> None:
    up.livesize("resize", "pod/web", "--cpu", "500m", "--wait")
    assert "500m" in up.kubectl("describe", "pod", "web").stdout
    up.wait_until(
        lambda: "ResizeCompleted" in up.kubectl("describe", "pod", "web").stdout,
        "the event is there",
    )
    assert up.node in up.kubectl("describe", "node", up.node).stdout


def test_get_watch_shows_changes_as_they_happen(up: Up, web: str) -> None:
    command = ["kubectl", "--kubeconfig", str(up.kubeconfig), "get", "pods", "-w", "-o", "wide"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert "NAME" in watching.stdout.readline()
            assert "web" in watching.stdout.readline()
            up.livesize("resize", "pod/web", "--cpu", "350m", "--wait")
            line = next(line for line in watching.stdout if "350m" in line)
            assert line.startswith("web")
        finally:
            watching.terminate()
