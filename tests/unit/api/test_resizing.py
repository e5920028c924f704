"""What is seen at a glance to be well formed is so when every field is looked at."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from livesize.api.objects import Object
from livesize.api.resizing import _is_plain, _shape_errors

SIZE: Object = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "2"}}
POD: Object = {"metadata": {"name": "db"}, "spec": {"containers": [{"name": "app"}]}}
BODY: Object = {
    "kind": "Resizing",
    "metadata": {"name": "db", "uid": "u"},
    "request": {"requestStatus": "Done"},
    "phase": "Done",
    "generation": 7,
    "allocated": [{"name": "app", **SIZE}],
    "steps": [{"name": "checkpoint", "seconds": 0.1}],
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "app", "resources": SIZE, "state": {}}],
    },
}
ODD = st.sampled_from(
    [None, 0, 1, 1.0, True, "", "x", "1", "Done", [], [0], [None], [{}], {}, {"cpu": "x"}, {"a": 1}]
)


def places(value: Any) -> list[tuple[Any, ...]]:
    """The path to every part of it."""
    found: list[tuple[Any, ...]] = [()]
    items = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else items:
        found += [(key, *path) for path in places(part)]
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def test_what_a_node_sends_is_plain() -> None:
    assert _is_plain(POD, BODY)
    assert _shape_errors(POD, BODY) == []


@pytest.mark.parametrize("missing", [*BODY])
def test_what_is_left_out_is_judged_alike(missing: str) -> None:
    body = {key: value for key, value in BODY.items() if key != missing}
    assert _is_plain(POD, body) <= (_shape_errors(POD, body) == [])


@given(st.sampled_from([path for path in places(BODY) if path]), ODD)
def test_nothing_plain_has_an_error(path: tuple[Any, ...], odd: Any) -> None:
    body = changed(BODY, path, odd)
    assert _is_plain(POD, body) <= (_shape_errors(POD, body) == [])
