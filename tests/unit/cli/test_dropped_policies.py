"""Which policies `livesize apply` takes away: those it wrote, and the manifest has no more."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.cli.dropped_policies import name_dropped_policies

POLICY = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
OWNED = {"f:containers": {'k:{"name":"app"}': {".": {}, "f:name": {}, "f:resizePolicy": {}}}}


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": spec}


def owned_by(manager: str, fields: Any, **entry: Any) -> dict[str, Any]:
    owner = {"manager": manager, "operation": "Update", "apiVersion": "v1", **entry}
    owner |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}
    stored = pod()
    stored["metadata"]["managedFields"] = [owner]
    return stored


def test_what_it_wrote_is_named_with_null() -> None:
    manifest = pod(containers=[{"name": "app", "image": "x"}, {"name": "other"}])
    named = name_dropped_policies(manifest, owned_by("livesize", OWNED), "livesize")
    assert named["spec"]["containers"] == [
        {"name": "app", "image": "x", "resizePolicy": None},
        {"name": "other"},
    ]


def test_ibms_map_sidecars_and_virtual_machines_too() -> None:
    in_resources = {"f:resources": {"f:resizePolicy": {"f:cpu": {}}}}
    before = owned_by(
        "livesize",
        {
            "f:initContainers": {'k:{"name":"proxy"}': in_resources},
            "f:virtualMachine": {"f:resizePolicy": {}},
        },
    )
    sidecar = {"name": "proxy", "resources": {"limits": {"cpu": "1"}}}
    named = name_dropped_policies(
        pod(initContainers=[sidecar], virtualMachine={"disk": {}}), before, "livesize"
    )
    (proxy,) = named["spec"]["initContainers"]
    assert proxy["resources"] == {"limits": {"cpu": "1"}, "resizePolicy": None}
    assert named["spec"]["virtualMachine"] == {"disk": {}, "resizePolicy": None}


@pytest.mark.parametrize(
    ("manifest", "before"),
    [
        pytest.param(
            pod(containers=[{"name": "app"}]), owned_by("kubectl-patch", OWNED), id="another's"
        ),
        pytest.param(
            pod(containers=[{"name": "app"}]),
            owned_by("livesize", OWNED, subresource="resize"),
            id="of a resize",
        ),
        pytest.param(
            pod(containers=[{"name": "app", "resizePolicy": POLICY}]),
            owned_by("livesize", OWNED),
            id="still said",
        ),
        pytest.param(pod(containers=[{"name": "app"}]), pod(), id="nobody's"),
        pytest.param(pod(), owned_by("livesize", OWNED), id="no containers"),
        pytest.param({"spec": None}, owned_by("livesize", OWNED), id="no spec"),
        pytest.param(pod(containers=[3]), owned_by("livesize", OWNED), id="no container"),
    ],
)
def test_all_else_stays_as_it_is(manifest: Any, before: Any) -> None:
    assert name_dropped_policies(manifest, before, "livesize") == manifest
