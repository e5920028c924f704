"""What is filled in, what is rewritten, and what is left as it was sent."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.defaults import default_object
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.validation.objects import validate_create, validate_update
from unit.api.refusals import shape_errors

POD: Object = {
    "metadata": {"name": "p", "namespace": "d", "creationTimestamp": None},
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "busybox:1.36",
                "resources": {
                    "requests": {"memory": None},
                    "limits": {"cpu": "1000m", "memory": "1024Mi"},
                },
                "ports": [{"containerPort": 80}],
                "unknown": {"kept": True},
            }
        ]
    },
}


def test_a_pod_is_filled_in_as_kubernetes_does() -> None:
    before = copy.deepcopy(POD)
    pod = default_object(PODS, POD)
    assert before == POD
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "enableServiceLinks": True,
            "containers": [
                {
                    "name": "a",
                    "image": "busybox:1.36",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {
                        "requests": {"cpu": "1", "memory": "1Gi"},
                        "limits": {"cpu": "1", "memory": "1Gi"},
                    },
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "unknown": {"kept": True},
                }
            ],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def test_resize_policy_is_rewritten_but_never_added() -> None:
    given = {"name": "a", "resizePolicy": [{"name": "cpu", "policy": "NoRestart"}]}
    pod = default_object(PODS, {"spec": {"containers": [given, {"name": "b"}]}})
    first, second = pod["spec"]["containers"]
    assert first["resizePolicy"] == [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    assert "resizePolicy" not in second


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("host:5000/busybox", "Always"),
        ("host:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:00", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    pod = default_object(PODS, {"spec": {"containers": [{"name": "a", "image": image}]}})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_namespace_is_active_and_labelled() -> None:
    namespace = default_object(NAMESPACES, {"metadata": {"name": "n", "labels": {"x": "y"}}})
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["metadata"]["labels"] == {"x": "y", "kubernetes.io/metadata.name": "n"}


def test_allocatable_of_a_node_is_its_capacity() -> None:
    node = default_object(NODES, {"status": {"capacity": {"cpu": "2000m"}}})
    assert node["status"] == {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}
    assert "status" not in default_object(NODES, {"metadata": {"name": "n"}})


def test_kind_and_version_are_filled_in() -> None:
    assert lookup(default_object(EVENTS, {}), "kind") == "Event"


KNOWN_KEYS = (
    *("metadata", "spec", "status", "containers", "initContainers", "name", "image", "resources"),
    *("requests", "limits", "cpu", "memory", "resizePolicy", "ports", "labels", "capacity"),
    *("containerStatuses", "conditions", "overhead", "taints", "resourcesAllocated", "env"),
)
keys = st.sampled_from(KNOWN_KEYS)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["1", "x", "-1Gi"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
half_right_pods = st.fixed_dictionaries(
    {
        "metadata": st.just({"name": "p", "namespace": "d"}),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(st.dictionaries(keys, json_values, max_size=4), max_size=2)}
        ),
    }
)


@settings(max_examples=60)
@given(st.dictionaries(keys, json_values) | half_right_pods, st.sampled_from(REGISTRY.stored()))
def test_any_json_is_filled_in_once_and_judged_without_a_crash(
    body: Object, resource: Resource
) -> None:
    if shape_errors(resource, body):
        return
    filled = default_object(resource, body)
    assert default_object(resource, filled) == filled
    validate_create(resource, filled)
    validate_update(resource, filled, default_object(PODS, POD))
