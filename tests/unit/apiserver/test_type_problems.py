"""A patched object is checked where the patch changed it, and refused as if checked whole."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.pod import Pod
from livesize.api.objects import Object
from livesize.api.schema.fields import schema_of
from livesize.api.schema.shapes import check_shape

POD = schema_of(Pod)
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
    assert check_shape(POD, patched, KNOWN) == check_shape(POD, patched) != []


def test_what_a_patch_left_alone_is_right() -> None:
    assert check_shape(POD, {**KNOWN, "status": {"phase": "Running"}}, KNOWN) == []
