"""JSON merge patch: the examples of RFC 7386 (appendix A), and that nothing is changed in place."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.patch import MAXIMUM_DEPTH, PatchError
from livesize.api.patch.merge import merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_rfc_7386(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_what_is_not_changed_is_shared() -> None:
    target = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": [1]}}
    result = merge_patch(target, {"metadata": {"labels": {"a": "2"}}})
    assert result["spec"] is target["spec"]
    assert target["metadata"]["labels"] == {"a": "1"}


def test_a_patch_that_changes_nothing_returns_the_target_itself() -> None:
    label = "1"
    target = {"metadata": {"labels": {"a": label}}}
    assert merge_patch(target, {"metadata": {"labels": {"a": label, "b": None}}}) is target


def test_a_patch_nested_absurdly_deep_is_refused() -> None:
    patch: Any = 1
    for _ in range(MAXIMUM_DEPTH + 1):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="nested more than 128 levels deep"):
        merge_patch({}, patch)


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@given(documents, documents)
def test_merging_twice_is_merging_once_and_changes_nothing_in_place(
    target: Any, patch: Any
) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before
