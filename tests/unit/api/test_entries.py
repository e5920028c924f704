"""The quick look never overlooks an object with too many fields."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api import entries
from livesize.api.entries import MAX_ENTRIES, count_entries, count_own_entries, may_be_many

TREES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9) | st.text("a,:[", max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("ab:", max_size=2), inner),
    max_leaves=60,
)


@given(TREES.filter(lambda tree: isinstance(tree, dict | list)))
def test_what_looks_small_is_small(tree: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "MAX_ENTRIES", 8)
        encoded = orjson.dumps(tree)
        assert may_be_many(encoded) or count_entries(tree) <= 8


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"[" * (MAX_ENTRIES + 1) + b"]" * (MAX_ENTRIES + 1), id="one in the other"),
        pytest.param(b"[" + b"1," * MAX_ENTRIES + b"1]", id="items"),
        pytest.param(b"[" + b"{}," * MAX_ENTRIES + b"{}]", id="empty objects"),
        pytest.param(b'{"a":' * (MAX_ENTRIES + 1) + b"1" + b"}" * (MAX_ENTRIES + 1), id="fields"),
    ],
)
def test_each_way_to_have_many_is_seen(encoded: bytes) -> None:
    """Each shape has one kind of the characters that are counted, and few of the others."""
    assert may_be_many(encoded)


def test_who_owns_what_is_not_counted_as_the_object() -> None:
    owners = [{"manager": "a", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]
    tree = {"metadata": {"name": "m", "managedFields": owners}, "data": {"a": "", "b": ""}}
    assert count_entries(tree) == 2 + 2 + 2 + 1 + 2 + 1 + 2
    assert count_own_entries(tree) == 2 + 2 + 2
