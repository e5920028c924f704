"""A patched object is checked where the patch changed it, and refused as if checked whole."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.apiserver.schemas import type_problems

KNOWN: Object = {
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("metadata", {"name": 1}),
        ("metadata", None),
        ("spec", {"containers": {}}),
        ("spec", {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}),
        ("status", None),
        ("status", []),
    ],
)
def test_what_a_patch_made_wrong_is_found(part: str, value: Any) -> None:
    patched = {**KNOWN, part: value}
    assert type_problems("Pod", patched, KNOWN) == type_problems("Pod", patched) != []


def test_what_a_patch_left_alone_is_right() -> None:
    assert type_problems("Pod", {**KNOWN, "status": {"phase": "Running"}}, KNOWN) == []
