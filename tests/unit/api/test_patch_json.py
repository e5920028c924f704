"""JSON patch: rules of RFC 6902 one by one, and the jsonpatch library as a second opinion."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.patch.json_patch import PatchError, apply_json_patch


def op(name: str, path: str, **rest: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **rest}


@pytest.mark.parametrize(
    ("target", "operation", "expected"),
    [
        pytest.param({"a": 1}, op("add", "/b", value=2), {"a": 1, "b": 2}, id="add a member"),
        pytest.param({"a": 1}, op("add", "/a", value=2), {"a": 2}, id="add replaces a member"),
        pytest.param({"a": [1, 3]}, op("add", "/a/1", value=2), {"a": [1, 2, 3]}, id="insert"),
        pytest.param({"a": [1]}, op("add", "/a/1", value=2), {"a": [1, 2]}, id="at the end"),
        pytest.param({"a": [1]}, op("add", "/a/-", value=2), {"a": [1, 2]}, id="append"),
        pytest.param({"a": 1}, op("add", "", value=[]), [], id="the whole document"),
        pytest.param({}, op("add", "/a", value=None), {"a": None}, id="null is a value"),
        pytest.param({"a": 1, "b": 2}, op("remove", "/a"), {"b": 2}, id="remove a member"),
        pytest.param({"a": [1, 2, 3]}, op("remove", "/a/1"), {"a": [1, 3]}, id="remove element"),
        pytest.param({"a": 1}, op("replace", "/a", value=2), {"a": 2}, id="replace a member"),
        pytest.param([1, 2], op("replace", "/0", value=3), [3, 2], id="replace an element"),
        pytest.param(
            {"a": {"b": 1}}, op("move", "/c", **{"from": "/a/b"}), {"a": {}, "c": 1}, id="move"
        ),
        pytest.param([1, 2, 3], op("move", "/2", **{"from": "/0"}), [2, 3, 1], id="move in list"),
        pytest.param({"a": 1}, op("move", "/a", **{"from": "/a"}), {"a": 1}, id="to itself"),
        pytest.param({"a": [1]}, op("copy", "/b", **{"from": "/a"}), {"a": [1], "b": [1]}, id="cp"),
        pytest.param({"a": {"b": [1]}}, op("test", "/a", value={"b": [1.0]}), ..., id="test"),
        pytest.param({"a/b": 1, "m~n": 2}, op("test", "/a~1b", value=1), ..., id="escaped slash"),
        pytest.param({"a/b": 1, "m~n": 2}, op("test", "/m~0n", value=2), ..., id="escaped tilde"),
        pytest.param({"": {"": 1}}, op("test", "//", value=1), ..., id="empty names"),
    ],
)
def test_operations(target: Any, operation: Any, expected: Any) -> None:
    before = copy.deepcopy(target)
    result = apply_json_patch(target, [operation])
    assert result == (before if expected is ... else expected)
    assert target == before


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ("remove", 400, "operation 0: an operation must be an object"),
        (op("merge", "/a"), 400, "operation 0: op must be one of add, copy, move, remove, "),
        ({"path": "/a"}, 400, "operation 0: op must be one of"),
        ({"op": ["add"], "path": "/a", "value": 1}, 400, "operation 0: op must be one of"),
        ({"op": "remove"}, 400, "operation 0: path must be a JSON pointer"),
        (op("add", "/a"), 400, "operation 0: add needs a value"),
        (op("copy", "/a"), 400, "operation 0: from must be a JSON pointer"),
        (op("remove", "a"), 400, "operation 0: path must be empty or start with '/'"),
        (op("remove", "/~2"), 400, "operation 0: path has a '~' that is neither"),
        (op("remove", "/a" * 200), 400, "operation 0: path has more than 128 parts"),
        (op("remove", ""), 422, "operation 0 (remove ''): the whole object cannot be removed"),
        (op("remove", "/x"), 422, "operation 0 (remove '/x'): there is no 'x'"),
        (op("replace", "/x/y", value=1), 422, "there is no 'x'"),
        (op("add", "/x/y", value=1), 422, "there is no 'x'"),
        (op("add", "/a/b", value=1), 422, "there is nothing that could hold 'b'"),
        (op("add", "/l/3", value=1), 422, "index 3 is past the end of the list"),
        (op("add", "/l/01", value=1), 422, "'01' is not an index of a list"),
        (op("add", "/l/-1", value=1), 422, "'-1' is not an index of a list"),
        (op("remove", "/l/-"), 422, "'-' is past the end of the list"),
        (op("remove", "/l/9999999999999"), 422, "is not an index of a list"),
        (op("move", "/d/x", **{"from": "/d"}), 422, "a value cannot be moved into itself"),
        (op("test", "/a", value=2), 422, "operation 0 (test '/a'): the value there is another"),
        (op("test", "/t", value=1), 422, "the value there is another"),
        (op("test", "/a", value=True), 422, "the value there is another"),
    ],
)
def test_a_refusal_says_which_operation_and_why(operation: Any, code: int, message: str) -> None:
    target = {"a": 1, "l": [1, 2], "t": True, "d": {"e": 1}}
    with pytest.raises(PatchError) as refused:
        apply_json_patch(target, [operation])
    assert message in refused.value.message
    assert refused.value.code == code


def test_a_failing_operation_undoes_the_ones_before_it() -> None:
    target = {"a": 1}
    with pytest.raises(PatchError, match="operation 1"):
        apply_json_patch(target, [op("add", "/b", value=1), op("test", "/b", value=2)])
    assert target == {"a": 1}


def test_what_is_not_changed_is_shared() -> None:
    target = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": {}}
    path = "/spec/containers/0/name"
    result = apply_json_patch(target, [op("replace", path, value="c")])
    assert result["spec"]["containers"][1] is target["spec"]["containers"][1]
    assert result["status"] is target["status"]


def test_limits() -> None:
    with pytest.raises(PatchError, match="maximum operations in a JSON patch is 1000, got 1001"):
        apply_json_patch({}, [op("add", "/a", value=1)] * 1001)
    with pytest.raises(PatchError, match="must be a list of operations"):
        apply_json_patch({}, {"op": "remove", "path": "/a"})
    doubling = [op("copy", "/l/-", **{"from": "/l"})] * 60
    with pytest.raises(PatchError, match="copies too much"):
        apply_json_patch({"l": ["x" * 1000]}, doubling)
    deepening = [op("copy", "/a", **{"from": ""})] * 200
    with pytest.raises(PatchError, match="nested more than 128 levels deep"):
        apply_json_patch({"b": 1}, deepening)


# No booleans among the numbers: to the oracle True equals 1.
names = st.sampled_from(["a", "b", "~/", "0"])
documents = st.recursive(
    st.none() | st.integers(0, 3) | st.text("xy", max_size=1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
pointers = st.lists(st.sampled_from(["a", "b", "~0~1", "0", "1", "2", "-"]), max_size=3).map(
    lambda parts: "".join("/" + part for part in parts)
)
changes = st.builds(
    lambda name, path, value: op(name, path, value=value),
    st.sampled_from(["add", "replace", "test"]),
    pointers,
    documents,
)
transfers = st.builds(
    lambda name, path, source: op(name, path, **{"from": source}),
    st.sampled_from(["move", "copy"]),
    pointers,
    pointers,
)
removals = st.builds(lambda path: op("remove", path), pointers)


def _by_the_library(target: Any, patch: list[Any]) -> Any:
    try:
        return "done", jsonpatch.apply_patch(target, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError):
        return "refused", None


def _by_us(target: Any, patch: list[Any]) -> Any:
    try:
        return "done", apply_json_patch(target, patch)
    except PatchError:
        return "refused", None


def _library_is_wrong(operation: dict[str, Any]) -> bool:
    """Where it departs from the RFC: removing the whole document, moving the whole document
    (into itself), and "-" where an existing element is meant."""
    source = operation.get("from")
    return (
        (operation["op"] == "remove" and not operation["path"])
        or (operation["op"] == "move" and operation["path"].startswith(f"{source}/"))
        or (operation["op"] == "move" and source == operation["path"])
        or (operation["op"] == "move" and source == "")
        or (operation["op"] not in {"add", "copy", "move"} and "-" in operation["path"])
        or "-" in (source or "")
        or "/-/" in operation["path"]
    )


operations = (changes | transfers | removals).filter(lambda item: not _library_is_wrong(item))


@given(st.dictionaries(names, documents), st.lists(operations, min_size=1, max_size=3))
def test_the_jsonpatch_library_agrees(target: Any, patch: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(target)
    assert _by_us(target, patch) == _by_the_library(target, patch)
    assert target == before
