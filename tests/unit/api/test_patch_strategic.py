"""Strategic merge patch: each directive, the order of lists, and kubectl's own patches.

The expected results of the order table were taken from ``kubectl patch --local``.
"""

from __future__ import annotations

import copy
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
from livesize.api.patch import MAXIMUM_DEPTH, PatchError
from livesize.api.patch.merge import merge_patch
from livesize.api.patch.strategic import strategic_merge
from livesize.api.schema.fields import SET, UNKNOWN

POD_SCHEMA = kind_of(PODS).schema.root
NODE_SCHEMA = kind_of(NODES).schema.root


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "spec": {"containers": list(containers), **spec}}


def patched(target: Any, patch: Any) -> Any:
    """Merge into a pod, and check on the way that nothing was changed in place."""
    before = copy.deepcopy((target, patch))
    result = strategic_merge(target, patch, POD_SCHEMA)
    assert (target, patch) == before
    assert "$" not in str(result)
    return result


def names(items: list[dict[str, Any]]) -> str:
    return "".join(item["name"] for item in items)


def named(letters: str) -> list[dict[str, Any]]:
    return [{"name": letter} for letter in letters]


def test_the_resize_patch_of_a_client_library() -> None:
    before = pod(
        {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        {"name": "b", "image": "j"},
    )
    resources = {"requests": {"cpu": "800m"}, "limits": {"cpu": "800m"}}
    patch = {
        "spec": {
            "$setElementOrder/containers": named("ab"),
            "containers": [{"name": "a", "resources": resources}],
        }
    }
    result = patched(before, patch)
    assert result["spec"]["containers"][0] == {
        "name": "a",
        "image": "i",
        "resources": {"requests": {"cpu": "800m"}, "limits": {"cpu": "800m", "memory": "1Gi"}},
    }
    assert result["spec"]["containers"][1] is before["spec"]["containers"][1]


def test_null_removes_a_field() -> None:
    before = pod({"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})
    patch = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": None}}}]}}
    result = patched(before, patch)
    assert result["spec"]["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}


def test_nulls_and_directives_of_a_new_element_are_not_stored() -> None:
    new = {"name": "b", "image": None, "resources": {"limits": {"cpu": None}}, "env": named("x")}
    patch = {"spec": {"containers": [{**new, "$setElementOrder/env": named("x")}]}}
    result = patched(pod({"name": "a"}), patch)
    assert result["spec"]["containers"][0] == {
        "name": "b",
        "resources": {"limits": {}},
        "env": named("x"),
    }


@pytest.mark.parametrize(
    ("before", "given", "order", "after"),
    [
        pytest.param("ab", "b", None, "ab", id="what is not named stays before what it was before"),
        pytest.param("ab", "ba", None, "ba", id="what is named stands as named"),
        pytest.param("a", "c", None, "ca", id="new elements come first"),
        pytest.param("abc", "cx", None, "abcx", id="new elements follow the ones named before"),
        pytest.param("abc", "", "cba", "cba", id="order alone"),
        pytest.param("abc", "d", "cdab", "cdab", id="order of old and new elements"),
        pytest.param("abc", "", "c", "abc", id="order of some elements"),
        pytest.param("abcd", "", "da", "bcda", id="the others keep their places"),
        pytest.param("ab", "", "zba", "ba", id="order names what is not there"),
    ],
)
def test_order_of_a_merged_list(before: str, given: str, order: str | None, after: str) -> None:
    spec: dict[str, Any] = {"containers": named(given)} if given else {}
    if order is not None:
        spec["$setElementOrder/containers"] = named(order)
    assert names(patched(pod(*named(before)), {"spec": spec})["spec"]["containers"]) == after


def test_patch_delete_removes_an_element() -> None:
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "b"}, {"name": "x"}]}}
    assert names(patched(pod(*named("abc")), patch)["spec"]["containers"]) == "xac"


def test_patch_delete_of_an_absent_element_changes_nothing() -> None:
    before = pod(*named("ab"))
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "z"}]}}
    assert patched(before, patch) is before


def test_patch_replace_in_a_list_replaces_the_list() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "z", "image": None}]}}
    assert patched(pod(*named("ab")), patch)["spec"]["containers"] == named("z")


def test_patch_replace_and_delete_in_an_object() -> None:
    before = pod(nodeSelector={"a": "1", "b": "2"}, securityContext={"x": 1})
    patch = {
        "spec": {
            "nodeSelector": {"$patch": "replace", "c": "3", "d": None},
            "securityContext": {"$patch": "delete"},
        }
    }
    after = patched(before, patch)["spec"]
    assert after["nodeSelector"] == {"c": "3"}
    assert after["securityContext"] == {}


def test_patch_merge_is_what_happens_anyway() -> None:
    before = pod({"name": "a", "image": "i"}, nodeSelector={"a": "1"})
    patch = {
        "spec": {
            "containers": [{"$patch": "merge", "name": "a", "tty": True}],
            "nodeSelector": {"$patch": "merge", "b": "2"},
        }
    }
    assert patched(before, patch) == pod(
        {"name": "a", "image": "i", "tty": True}, nodeSelector={"a": "1", "b": "2"}
    )


def test_retain_keys_clears_the_other_fields() -> None:
    before = pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}])
    volume = {"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}
    after = patched(before, {"spec": {"volumes": [volume]}})
    assert after["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_plain_values_are_merged_as_a_set_and_deleted_by_directive() -> None:
    before = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(before, {"metadata": {"finalizers": ["b", "c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    delete = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}}
    assert patched(before, delete) == {"metadata": {"finalizers": ["b"]}}
    order = {"metadata": {"$setElementOrder/finalizers": ["b", "a"]}}
    assert patched(before, order) == {"metadata": {"finalizers": ["b", "a"]}}


def test_lists_without_a_merge_key_are_replaced() -> None:
    before = pod({"name": "a", "args": ["x", "y"]}, tolerations=[{"key": "k"}])
    patch = {"spec": {"containers": [{"name": "a", "args": ["z"]}], "tolerations": []}}
    assert patched(before, patch) == pod({"name": "a", "args": ["z"]}, tolerations=[])


def test_kubectl_taint_can_remove_a_taint() -> None:
    node = {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}
    patch = {"spec": {"taints": [{"key": "b"}]}}
    assert strategic_merge(node, patch, NODE_SCHEMA) == patch


def test_conditions_are_merged_by_type() -> None:
    before = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert patched(before, patch) == {
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R"}]}
    }


def test_ports_are_merged_by_number() -> None:
    before = pod({"name": "a", "ports": [{"containerPort": 80, "name": "web"}]})
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}]
    after = patched(before, {"spec": {"containers": [{"name": "a", "ports": ports}]}})
    assert after["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "name": "web", "protocol": "TCP"},
        {"containerPort": 81},
    ]


def test_another_type_than_before_replaces() -> None:
    assert patched({"a": {"b": 1}, "c": [1]}, {"a": [1], "c": {"d": 1}}) == {
        "a": [1],
        "c": {"d": 1},
    }


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([], "must be an object"),
        ({"$patch": "explode"}, r"\$patch must be one of delete, merge, replace"),
        ({"spec": {"containers": [{"image": "i"}]}}, "no merge key 'name'"),
        ({"spec": {"containers": ["a"]}}, "no merge key 'name'"),
        ({"spec": {"containers": [{"name": {}}]}}, "no merge key 'name'"),
        ({"spec": {"containers": [{"$patch": "delete"}]}}, "no merge key 'name'"),
        ({"metadata": {"finalizers": [{}]}}, "plain values only"),
        ({"spec": {"$setElementOrder/containers": "a"}}, "must be a list"),
        (
            {"spec": {"$setElementOrder/containers": named("b"), "containers": named("a")}},
            r"\$setElementOrder/containers does not name 'a'",
        ),
        (
            {"spec": {"$setElementOrder/containers": named("ab"), "containers": named("ba")}},
            "has another order than containers",
        ),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, r"\$retainKeys does not name 'b'"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}, "must be a list"),
    ],
)
def test_a_malformed_patch_is_refused_with_a_sentence(patch: Any, message: str) -> None:
    target = {"metadata": {"finalizers": ["f"]}, **pod(*named("ab"))}
    with pytest.raises(PatchError, match=message) as refused:
        strategic_merge(target, patch, POD_SCHEMA)
    assert refused.value.code == 400


def test_a_patch_nested_absurdly_deep_is_refused() -> None:
    patch: Any = 1
    for _ in range(MAXIMUM_DEPTH + 1):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="nested more than"):
        strategic_merge({}, patch, POD_SCHEMA)


@pytest.mark.parametrize("resource", [PODS, NODES, NAMESPACES, EVENTS, LEASES])
def test_metadata_is_merged_alike_everywhere(resource: Resource) -> None:
    metadata = kind_of(resource).schema.root.below("metadata")
    assert metadata.below("ownerReferences").merge_key == "uid"
    assert metadata.below("finalizers").merge_key == SET
    assert metadata.below("managedFields").merge_key is None


letters = st.lists(st.sampled_from("abcde"), unique=True).map("".join)


@given(letters, letters, st.none() | letters)
def test_a_merged_list_holds_each_element_once(before: str, given: str, order: str | None) -> None:
    spec: dict[str, Any] = {"containers": named(given)}
    if order is not None:
        rest = "".join(letter for letter in order if letter not in given)
        spec["$setElementOrder/containers"] = named(given + rest)
    result = names(patched(pod(*named(before)), {"spec": spec})["spec"]["containers"])
    assert sorted(result) == sorted(set(before + given))
    assert "".join(letter for letter in result if letter in given) == given


scalars = st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
documents = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.none() | scalars | st.lists(scalars, max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | scalars, max_size=3),
    max_leaves=8,
)


@given(documents, documents)
def test_without_merge_keys_it_is_a_merge_patch(target: Any, patch: Any) -> None:
    assert strategic_merge(target, patch, UNKNOWN) == merge_patch(target, patch)


@given(letters.filter(bool), st.data())
def test_a_patch_of_one_element_leaves_the_order(before: str, data: st.DataObject) -> None:
    target = pod(*({"name": one, "image": "old"} for one in before))
    name = data.draw(st.sampled_from(before))
    one = {"containers": [{"name": name, "image": "new"}]}
    in_order = {**one, "$setElementOrder/containers": [{"name": there} for there in before]}
    assert patched(target, {"spec": one}) == patched(target, {"spec": in_order})
