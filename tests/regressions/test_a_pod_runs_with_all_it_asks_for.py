"""Pods that asked for huge pages, GPUs, namespaces of the node and much more ran without a word."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
SIZE = {"cpu": "500m", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (
            {"requests": {**SIZE, "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}},
            "spec.containers[0].resources.limits[hugepages-2Mi]",
        ),
        (
            {"requests": {**SIZE, "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        ({"hostPID": True}, "spec.hostPID"),
        ({"shareProcessNamespace": True}, "spec.shareProcessNamespace"),
        ({"automountServiceAccountToken": True}, "spec.automountServiceAccountToken"),
        ({"os": {"name": "windows"}}, "spec.os.name"),
        ({"dnsConfig": {"nameservers": ["192.0.2.1"]}}, "spec.dnsConfig"),
    ],
)
async def test_it_is_refused_and_nothing_is_stored(rig: Rig, asked: Any, field: str) -> None:
    answer = await rig.request("POST", PODS, pod("web", **asked))
    assert answer.status == 422
    assert field in [cause["field"] for cause in answer.json["details"]["causes"]]
    assert (await rig.get(f"{PODS}/web")).status == 404


async def test_by_server_side_apply_too(rig: Rig) -> None:
    path = f"{PODS}/web"
    answer = await rig.patch(path, pod("web", hostIPC=True), "apply", fieldManager="me")
    assert answer.status == 422
    assert (await rig.get(path)).status == 404
