"""Whatever is sent, the answer is never a 5xx, and what is refused has changed nothing.

Design 6, "Safe: bad input gets a clear 4xx with the field and the reason, never a 5xx, and changes
nothing."
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livesize.api.objects import evolve
from livesize.sim.loop import run_virtual
from unit.apiserver.conftest import Rig, pod

PODS = "/api/v1/namespaces/default/pods"
WEB = f"{PODS}/web"

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "1", "-1", "1e99", "1e-99", "9" * 70, "Gi", "é", "a/b", "0x1", "٣"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
NAMES = st.sampled_from(["cpu", "memory", "name", "requests", "limits", "resources", "x", "$patch"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
CONTAINER = ("spec", "containers", 0)
PLACES = st.sampled_from(
    [
        ("metadata",), ("metadata", "name"), ("metadata", "labels"), ("metadata", "annotations"),
        ("metadata", "finalizers"), ("metadata", "ownerReferences"), ("metadata", "uid"),
        ("metadata", "resourceVersion"), ("metadata", "generateName"), ("metadata", "namespace"),
        ("spec",), ("spec", "containers"), ("spec", "initContainers"), ("spec", "nodeName"),
        ("spec", "overhead"), ("spec", "tolerations"), ("spec", "volumes"), ("spec", "resources"),
        ("spec", "restartPolicy"), ("spec", "terminationGracePeriodSeconds"),
        ("spec", "activeDeadlineSeconds"), ("spec", "resizeRequest"), ("spec", "os"),
        ("spec", "securityContext"), ("spec", "ephemeralContainers"),
        CONTAINER, (*CONTAINER, "name"), (*CONTAINER, "image"), (*CONTAINER, "resources"),
        (*CONTAINER, "resources", "requests"), (*CONTAINER, "resources", "limits"),
        (*CONTAINER, "resources", "requests", "cpu"), (*CONTAINER, "resources", "limits", "cpu"),
        (*CONTAINER, "resources", "requests", "memory"), (*CONTAINER, "resources", "resizePolicy"),
        (*CONTAINER, "resizePolicy"), (*CONTAINER, "resourcesAllocated"), (*CONTAINER, "env"),
        (*CONTAINER, "ports"), (*CONTAINER, "command"), (*CONTAINER, "restartPolicy"),
        ("status",), ("status", "containerStatuses"), ("status", "conditions"),
        ("status", "resizeState"), ("status", "phase"), ("kind",), ("apiVersion",),
    ]
)  # fmt: skip
ENDPOINTS = st.sampled_from(["", "/resize", "/status", "/binding", "/resizing"])
METHODS = st.sampled_from(["POST", "PUT", "merge", "strategic", "json"])
TOKENS = st.sampled_from(["admin", "n1"])


def send(rig: Rig, method: str, endpoint: str, token: str, body: Any) -> Any:
    if method == "POST":
        return rig.request("POST", f"{WEB}{endpoint}" if endpoint else PODS, body, token=token)
    if method == "PUT":
        return rig.request("PUT", f"{WEB}{endpoint}", body, token=token)
    return rig.patch(f"{WEB}{endpoint}", body, method, token=token)


def as_patch(place: tuple[str | int, ...], value: Any) -> Any:
    """The same change as an operation of a JSON patch."""
    pointer = "".join(f"/{part}" for part in place)
    return [{"op": "add", "path": pointer, "value": value}]


async def attempt(method: str, endpoint: str, token: str, place: Any, value: Any) -> None:
    rig = Rig()
    await rig.start()
    try:
        await rig.add_pod(node="n1")
        served = (await rig.get(WEB)).json
        if method == "json":
            body = as_patch(place, value)
        elif endpoint == "/resizing":
            body = {"request": {"requestStatus": "Accepted"}, str(place[-1]): value}
        else:
            body = evolve(pod() if method == "POST" else served, place, value)
        answer = await send(rig, method, endpoint, token, body)
        assert answer.status < 500, answer.body
        after = (await rig.get(WEB)).json
        if answer.status >= 400:
            assert after == served
        assert (await rig.get(PODS)).status == 200
    finally:
        await rig.stop()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(method=METHODS, endpoint=ENDPOINTS, token=TOKENS, place=PLACES, value=TREES)
def test_one_field_of_a_pod_is_anything(
    method: str, endpoint: str, token: str, place: Any, value: Any
) -> None:
    run_virtual(attempt(method, endpoint, token, place, value))
