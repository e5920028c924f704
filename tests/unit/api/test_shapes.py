"""Shapes: the quick check and the one that says what is wrong never disagree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.nulls import without_nulls
from livesize.api.objects import Object, evolve
from livesize.api.schema.shapes import _message_errors, _unknown, check_shape, unknown_fields

RESOURCES = (PODS, NODES, LEASES, EVENTS, NAMESPACES)
POD: Object = {
    "metadata": {"name": "db", "generation": 3, "labels": {"a": "b"}, "finalizers": ["x"]},
    "spec": {
        "containers": [
            {
                "name": "app",
                "command": ["sh"],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": 1}},
                "resizePolicy": [{"resourceName": "cpu"}],
                "securityContext": {"runAsUser": 1, "privileged": False},
            }
        ],
        "hostNetwork": True,
        "tolerations": [{"key": "k"}],
    },
    "status": {
        "conditions": [{"type": "Ready"}],
        "containerStatuses": [{"name": "app", "ready": True, "state": {"running": {}}}],
    },
}
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


def _paths(tree: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    below: list[tuple[str | int, ...]] = []
    if isinstance(tree, dict):
        below = [found for key, item in tree.items() for found in _paths(item, (*path, key))]
    elif isinstance(tree, list):
        below = [found for at, item in enumerate(tree) for found in _paths(item, (*path, at))]
    return [path, *below] if path else below


def test_a_good_pod_has_no_complaint() -> None:
    assert check_shape(kind_of(PODS).schema, POD) == []


@pytest.mark.parametrize("path", _paths(POD))
def test_a_wrong_value_anywhere_is_found_by_both_or_by_none(path: tuple[str | int, ...]) -> None:
    for wrong in ([], {}, "x", 1, 1.5, True, None, [None], {"a": None}, [[]], {"a": []}):
        pod = evolve(POD, path, wrong)
        _both_agree(PODS, pod)


@given(st.sampled_from(_paths(POD)), _TREES, st.sampled_from(RESOURCES))
def test_the_quick_check_never_lets_pass_what_the_slow_one_refuses(
    path: tuple[str | int, ...], value: Any, resource: Resource
) -> None:
    _both_agree(resource, evolve(POD, path, value))


def _both_agree(resource: Resource, obj: Object) -> None:
    schema, bare = kind_of(resource).schema, without_nulls(obj)
    assert check_shape(schema, bare) == list(_message_errors(bare, schema, ""))
    unknown = [path for path, _ in _unknown(bare, schema.root, "")]
    assert unknown_fields(schema, bare) == unknown
    assert unknown_fields(schema, bare, {}, bare) == unknown
