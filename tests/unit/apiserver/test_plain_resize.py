"""A plain resize makes of a pod what the way of all other patches makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.apply.owners import FieldOwner, Operation
from livesize.api.defaults import default_object
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve
from livesize.api.patch import PatchType
from livesize.api.plain_resize import parse_sizes, resize_plainly
from livesize.api.resize_state import bind_allocated
from livesize.api.roles import Role
from livesize.api.write_options import PLAIN_WRITE, FieldValidation, WriteOptions
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.ownership import own_changed, own_created
from livesize.apiserver.records import make_record
from livesize.apiserver.request_body import apply_patch, plain_sizes, take_object
from livesize.apiserver.request_types import Target
from livesize.apiserver.subresources.change import SentChange
from livesize.apiserver.subresources.pod_resize import ask_plainly, resize_pod

TARGET = Target(PODS, "default", "web", "resize")
EDITOR = Identity("ed", Role.EDITOR)
BORN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
BURSTABLE = {
    "requests": {"cpu": "500m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "128Mi"},
}
GUARANTEED = {side: {"cpu": "500m", "memory": "64Mi"} for side in ("requests", "limits")}
REQUESTS = {"requests": {"cpu": "500m"}}
MAPPED = {**BURSTABLE, "resizePolicy": {"cpu": "LiveResizeable", "memory": "LiveResizeable"}}


def owner(manager: str, subresource: str = "resize", time: str = NOW) -> FieldOwner:
    return FieldOwner(manager, Operation.UPDATE, "v1", subresource, time)


def stored_pod(*sizes: Object, node: str = "n1", **spec: Any) -> Object:
    """As the API server keeps it: filled in, owned by who made it, bound."""
    containers = [
        {"name": name, "image": "i:1", "resources": size}
        for name, size in zip("ab", sizes, strict=False)
    ]
    metadata = {"name": "web", "namespace": "default", "uid": "u", "generation": 1}
    pod = default_object(
        PODS, {"metadata": metadata, "spec": {"containers": containers, "nodeName": node, **spec}}
    )
    pod = own_created(Target(PODS, "default", "web"), pod, owner("maker", "", BORN))
    pod = bind_allocated(pod) if node else pod
    return make_record(PODS, pod, 7).stored


def sized(name: Any = "a", **sides: Any) -> Object:
    return {"spec": {"containers": [{"name": name, "resources": sides}]}}


def moved() -> list[Object]:
    """Containers in another order than they are in."""
    return [{"name": name, "resources": {"requests": {"cpu": "1"}}} for name in "ba"]


def plainly(stored: Object, patch: Any, manager: str = "ed") -> Object | None:
    sizes = parse_sizes(patch)
    resized = None if sizes is None else resize_plainly(stored, sizes)
    if resized is None or not resized.changed:
        return None if resized is None else stored
    new = ask_plainly(stored, resized, requested_by="ed", now=NOW)
    return own_changed(TARGET, stored, stored, new, owner(manager))


def the_long_way(stored: Object, patch: Any, manager: str = "ed") -> Object:
    served = make_record(PODS, stored, 7).served
    made = apply_patch(PODS, served, patch, PatchType.STRATEGIC)
    sent = take_object(TARGET.resource, made, PLAIN_WRITE, patch=patch, patched=served)
    new = resize_pod(SentChange(EDITOR, TARGET, stored, served, sent, NOW))
    return own_changed(TARGET, stored, sent, new, owner(manager))


@pytest.mark.parametrize(
    ("stored", "patch"),
    [
        (stored_pod(BURSTABLE), sized(requests={"cpu": "600m"})),
        (stored_pod(BURSTABLE, GUARANTEED), sized("a", limits={"cpu": "2", "memory": "1Gi"})),
        (stored_pod(GUARANTEED), sized(requests={"cpu": "2"}, limits={"cpu": "2000m"})),
        (stored_pod(REQUESTS), sized(requests={"cpu": "0.25"})),
        (stored_pod(BURSTABLE, node=""), sized(limits={"memory": "256Mi"})),
        (stored_pod(BURSTABLE), sized(requests={"cpu": "0.5"})),
    ],
    ids=["burstable", "one of two", "guaranteed", "requests only", "not bound", "nothing new"],
)
def test_what_is_plain_becomes_the_same_on_both_ways(stored: Object, patch: Object) -> None:
    new = plainly(stored, patch)
    assert new is not None
    assert new == the_long_way(stored, patch)
    again = sized(**{side: {"cpu": "700m"} for side in patch_sides(patch)})
    once_more = plainly(new, again)
    assert once_more is None or once_more == the_long_way(new, again)


def patch_sides(patch: Object) -> list[str]:
    return list(patch["spec"]["containers"][0]["resources"])


@pytest.mark.parametrize(
    ("stored", "patch"),
    [
        (stored_pod(BURSTABLE), sized(requests={"cpu": None})),
        (stored_pod(BURSTABLE), sized(requests={"cpu": 1})),
        (stored_pod(BURSTABLE), sized(requests={"cpu": "many"})),
        (stored_pod(BURSTABLE), sized(requests={"cpu": "-1"})),
        (stored_pod(BURSTABLE), sized(requests={"cpu": "2"})),
        (stored_pod(BURSTABLE), sized(requests={"example.com/gpu": "1"})),
        (stored_pod(BURSTABLE), sized(requests={"memory": "67108864"})),
        (stored_pod(BURSTABLE), sized(requests=None)),
        (stored_pod(BURSTABLE), sized()),
        (stored_pod(BURSTABLE), sized("b", requests={"cpu": "1"})),
        (stored_pod(BURSTABLE), sized(7, requests={"cpu": "1"})),
        (stored_pod(BURSTABLE), {"metadata": {}, **sized(requests={"cpu": "1"})}),
        (stored_pod(BURSTABLE), {"spec": {"containers": []}}),
        (stored_pod(BURSTABLE, BURSTABLE), {"spec": {"containers": moved()}}),
        (stored_pod(BURSTABLE), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        (stored_pod(BURSTABLE), []),
        (stored_pod(REQUESTS), sized(limits={"cpu": "1"})),
        (stored_pod(GUARANTEED), sized(requests={"cpu": "100m"})),
        (stored_pod(MAPPED), sized(requests={"cpu": "600m"})),
        (stored_pod(BURSTABLE, os={"name": "windows"}), sized(requests={"cpu": "600m"})),
    ],
    ids=lambda value: str(value.get("spec", ""))[:60] if isinstance(value, dict) else "list",
)
def test_what_is_not_plain_goes_the_long_way(stored: Object, patch: Any) -> None:
    assert plainly(stored, patch) is None


def test_who_insists_on_known_fields_has_all_of_the_object_looked_at() -> None:
    strict = WriteOptions(field_validation=FieldValidation.STRICT)
    patch = sized(requests={"cpu": "600m"})
    assert plain_sizes(TARGET, patch, PatchType.STRATEGIC, PLAIN_WRITE)
    assert plain_sizes(TARGET, patch, PatchType.STRATEGIC, strict) is None
    assert plain_sizes(TARGET, patch, PatchType.MERGE, PLAIN_WRITE) is None
    assert plain_sizes(Target(PODS, "default", "web"), patch, PatchType.STRATEGIC, strict) is None


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["500m", "0.5", "1", "600m", "2", "0", "-1", "many", None, 1]),
        "memory": st.sampled_from(["64Mi", "67108864", "128Mi", "65536Ki", "1Gi", "0"]),
    },
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc"), "resources": RESOURCES}), max_size=2
)
PLAIN = st.builds(
    lambda request, limit: sized(requests={"cpu": request}, limits={"cpu": limit}),
    st.sampled_from(["500m", "600m", "1"]),
    st.sampled_from(["500m", "1", "2"]),
)
PATCHES = PLAIN | CONTAINERS.map(lambda containers: {"spec": {"containers": containers}})
SIZES = st.sampled_from([BURSTABLE, GUARANTEED, REQUESTS, MAPPED])


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=2),
    node=st.sampled_from(["n1", ""]),
    patches=st.lists(st.tuples(PATCHES, st.sampled_from(["ed", "maker"])), min_size=1, max_size=3),
)
def test_any_resizes_one_after_the_other_end_the_same(
    sizes: list[Object], node: str, patches: list[tuple[Object, str]]
) -> None:
    """Whatever the plain way makes, the long way makes too; what that refuses is never plain."""
    stored = stored_pod(*sizes, node=node)
    for patch, manager in patches:
        new = plainly(stored, patch, manager)
        try:
            expected = the_long_way(stored, patch, manager)
        except StatusError:
            assert new is None
            continue
        assert new is None or new == expected
        stored = evolve(expected, ("metadata", "resourceVersion"), "8")
