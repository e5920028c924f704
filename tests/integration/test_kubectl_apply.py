"""kubectl 1.32 against a real `livesize up`: server-side apply, diff, explain, edit, protobuf."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from system.groups import group_of
from system.up import Up, container

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]


def manifest(cpu: str = "200m", **labels: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "labels": labels},
            "spec": {
                "containers": [container("app", cpu, "64Mi")],
                "terminationGracePeriodSeconds": 0,
            },
        }
    )


def apply(up: Up, text: str, *words: str, check: bool = True) -> Any:
    return up.kubectl("apply", "--server-side", *words, "-f", "-", stdin=text, check=check)


@pytest.fixture
def web(up: Up) -> Iterator[str]:
    assert "serverside-applied" in apply(up, manifest()).stdout
    up.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    yield "web"
    up.kubectl("delete", "pod", "web", "--timeout=20s")


def test_apply_server_side_resizes_the_running_container(up: Up, web: str) -> None:
    apply(up, manifest("300m"))
    up.wait_resized(web)
    assert group_of(up, web, "app").cpu_quota_us() == 30_000


def test_a_conflict_is_shown_and_force_takes_the_field(up: Up, web: str) -> None:
    refused = apply(up, manifest("400m"), "--field-manager=other", check=False)
    assert refused.returncode == 1
    assert 'conflicts with "kubectl"' in refused.stderr
    assert '.spec.containers[name="app"].resources.limits.cpu' in refused.stderr
    forced = apply(up, manifest("400m"), "--field-manager=other", "--force-conflicts")
    assert "serverside-applied" in forced.stdout
    back = apply(up, manifest("200m"), check=False)
    assert 'conflicts with "other"' in back.stderr
    up.wait_resized(web)


def test_labels_no_longer_applied_go_away(up: Up, web: str) -> None:
    apply(up, manifest(tier="front", side="left"))
    up.kubectl("label", "pod", web, "mine=kept")
    apply(up, manifest(tier="front"))
    labels = json.loads(up.kubectl("get", "pod", web, "-o", "json").stdout)["metadata"]["labels"]
    assert labels == {"tier": "front", "mine": "kept"}


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
def test_a_resize_policy_no_longer_applied_goes_away(up: Up, server_side: bool) -> None:
    words = ["apply", "-f", "-", *(["--server-side"] if server_side else [])]
    with_policy = json.loads(manifest())
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    with_policy["spec"]["containers"][0]["resizePolicy"] = policy
    up.kubectl(*words, stdin=json.dumps(with_policy))
    assert up.pod("web")["spec"]["containers"][0]["resizePolicy"] == policy
    up.kubectl(*words, stdin=manifest())
    assert "resizePolicy" not in up.pod("web")["spec"]["containers"][0]
    up.delete_pod("web")


def test_client_side_apply_hands_over_to_server_side(up: Up, web: str) -> None:
    up.kubectl("apply", "-f", "-", stdin=manifest(tier="front"))
    apply(up, manifest(), "--force-conflicts")
    shown = up.kubectl("get", "pod", web, "-o", "json", "--show-managed-fields").stdout
    metadata = json.loads(shown)["metadata"]
    assert "tier" not in metadata.get("labels", {})
    owners = {(entry["manager"], entry["operation"]) for entry in metadata["managedFields"]}
    assert ("kubectl-client-side-apply", "Update") not in owners
    assert ("kubectl", "Apply") in owners


def test_diff_shows_what_an_apply_would_change(up: Up, web: str) -> None:
    same = up.kubectl("diff", "--server-side", "-f", "-", stdin=manifest(), check=False)
    assert (same.returncode, same.stdout) == (0, "")
    for words in (["--server-side"], []):
        text = manifest("250m")
        other = up.kubectl("diff", *words, "-f", "-", stdin=text, check=False)
        assert other.returncode == 1
        assert any(line.startswith("+") and "250m" in line for line in other.stdout.splitlines())


def test_explain_knows_the_fields_of_a_resize(up: Up) -> None:
    said = up.kubectl("explain", "pod.spec.containers.resizePolicy").stdout
    assert "FIELD: resizePolicy <[]ContainerResizePolicy>" in said
    assert "resourceName\t<string>" in said
    assert "without a restart" in " ".join(said.split())
    assert "restartPolicy" in up.kubectl("explain", "pod", "--recursive").stdout


def test_edit_with_a_scripted_editor(
    up: Up, web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/cpu: 200m/cpu: 350m/" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(editor))
    assert "edited" in up.kubectl("edit", "pod", web).stdout
    up.wait_resized(web)
    assert group_of(up, web, "app").cpu_quota_us() == 35_000
    editor.write_text('#!/bin/sh\nsed -i "s/cpu: 350m/cpu: 250m/" "$1"\n')
    assert "edited" in up.kubectl("edit", "pod", web, "--subresource=resize").stdout
    up.wait_resized(web)
    assert group_of(up, web, "app").cpu_quota_us() == 25_000


def test_create_namespace_in_protobuf_and_readyz(up: Up) -> None:
    assert "created" in up.kubectl("create", "namespace", "team").stdout
    shown = up.kubectl("get", "ns", "team", "-o", "json", "--show-managed-fields").stdout
    assert json.loads(shown)["metadata"]["managedFields"][0]["manager"] == "kubectl-create"
    assert "deleted" in up.kubectl("delete", "ns", "team", "--timeout=20s").stdout
    assert "readyz check passed" in up.kubectl("get", "--raw", "/readyz?verbose").stdout
