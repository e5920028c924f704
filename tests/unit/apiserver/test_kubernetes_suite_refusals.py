"""What Kubernetes' own suite expects to be refused, with the very patches its client computes and
the words it looks for: test/e2e/common/node/pod_resize.go ("apply invalid resize patch requests")
and test/e2e/node/pod_resize.go (ResourceQuota, LimitRange)."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from unit.apiserver.conftest import Rig

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
STRATEGIC = "application/strategic-merge-patch+json"
CPU, MEMORY, MORE_CPU, MORE_MEMORY = "20m", "35Mi", "35m", "50Mi"


def container(name: str, requests: Object | None = None, limits: Object | None = None) -> Object:
    sides = {"requests": requests, "limits": limits}
    resources = {side: given for side, given in sides.items() if given}
    return {"name": name, "image": "busybox:1", "resources": resources}


def patched(name: str, kind: str = "containers", **resources: Any) -> Object:
    """As client-go's CreateTwoWayMergePatch writes it."""
    items = [{"name": name, "resources": resources}]
    return {"spec": {f"$setElementOrder/{kind}": [{"name": name}], kind: items}}


def in_order(*names: str) -> list[Object]:
    return [{"name": name} for name in names]


BOTH = {"cpu": CPU, "memory": MEMORY}
GUARANTEED = container("c1", BOTH, BOTH)
BURSTABLE = container("c1", BOTH, {"cpu": MORE_CPU, "memory": MORE_MEMORY})
MOVED = "Forbidden: containers may not be renamed or reordered on resize"
RENAMED = f"spec.containers[0].name: {MOVED}, spec.containers[1].name: {MOVED}"
QOS = "Pod QOS Class may not change as a result of resizing"

REFUSED: dict[str, tuple[list[Object], Object, str]] = {
    "BestEffort pod - request memory": (
        [container("c1")],
        patched("c1", requests={"memory": MEMORY}),
        QOS,
    ),
    "BestEffort pod - request cpu": ([container("c1")], patched("c1", requests={"cpu": CPU}), QOS),
    "Guaranteed pod - remove cpu & memory limits": (
        [GUARANTEED],
        patched("c1", limits=None),
        "resource limits cannot be removed",
    ),
    "Burstable pod - remove cpu & memory limits + increase requests": (
        [BURSTABLE],
        patched("c1", limits=None, requests={"cpu": "25m", "memory": "40Mi"}),
        "resource limits cannot be removed",
    ),
    "Burstable pod - remove memory requests": (
        [container("c1", {"memory": MEMORY})],
        patched("c1", requests=None),
        "resource requests cannot be removed",
    ),
    "Burstable pod - remove cpu requests": (
        [container("c1", {"cpu": CPU})],
        patched("c1", requests=None),
        "resource requests cannot be removed",
    ),
    "Burstable pod - reorder containers": (
        [container("c1", {"cpu": CPU}), container("c2", {"cpu": CPU})],
        {"spec": {"$setElementOrder/containers": in_order("c2", "c1")}},
        RENAMED,
    ),
    "Guaranteed pod - rename containers": (
        [container("c1-old", BOTH, BOTH), container("c2-old", BOTH, BOTH)],
        {
            "spec": {
                "$setElementOrder/containers": in_order("c1-new", "c2-new"),
                "containers": [
                    container("c1-new", BOTH, BOTH),
                    container("c2-new", BOTH, BOTH),
                    {"$patch": "delete", "name": "c1-old"},
                    {"$patch": "delete", "name": "c2-old"},
                ],
            }
        },
        RENAMED,
    ),
    "Burstable pod - set requests == limits": (
        [BURSTABLE],
        patched("c1", requests={"cpu": MORE_CPU, "memory": MORE_MEMORY}),
        QOS,
    ),
    "Burstable pod - resize ephemeral storage": (
        [container("c1", {**BOTH, "ephemeral-storage": "1"})],
        patched("c1", requests={"ephemeral-storage": "3"}),
        "only cpu and memory resources are mutable",
    ),
}


@pytest.mark.parametrize(("containers", "patch", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_patch_that_is_refused(
    rig: Rig, containers: list[Object], patch: Object, words: str
) -> None:
    made = await _make(rig, containers)
    answer = await rig.request("PATCH", f"{PODS}/u/resize", patch, content_type=STRATEGIC)
    assert answer.status == 422
    assert words in answer.json["message"]
    assert (await rig.request("GET", f"{PODS}/u")).json["spec"] == made["spec"]


@pytest.mark.parametrize("policy", [{}, {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}])
async def test_an_init_container_that_does_not_stay(rig: Rig, policy: Object) -> None:
    """Theirs: "Burstable pod - nonrestartable initContainer"."""
    await _make(rig, [container("c1")], initContainers=[{**container("c1-init", BOTH), **policy}])
    patch = patched("c1-init", "initContainers", requests={"cpu": "25m", "memory": "40Mi"})
    answer = await rig.request("PATCH", f"{PODS}/u/resize", patch, content_type=STRATEGIC)
    assert answer.status == 422
    assert "resources for non-sidecar init containers are immutable" in answer.json["message"]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_restart_policies_and_rules_of_containers_are_taken(rig: Rig, policy: str) -> None:
    """Kubernetes 1.35: of init containers, and of all others."""
    codes = {"operator": "NotIn", "values": [0, 1]}
    rules = [{"action": "Restart", "exitCodes": codes}]
    own = {"restartPolicy": policy, "restartPolicyRules": rules}
    first = {**container("first"), **own}
    made = await _make(rig, [{**container("c1"), **own}], initContainers=[first])
    for one in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        assert (one["restartPolicy"], one["restartPolicyRules"]) == (policy, rules)


async def test_a_sidecar_is_resized_by_their_patch(rig: Rig) -> None:
    side = {**container("c1-init", BOTH, BOTH), "restartPolicy": "Always"}
    await _make(rig, [GUARANTEED], initContainers=[side])
    more = {"cpu": "25m", "memory": "40Mi"}
    patch = patched("c1-init", "initContainers", requests=more, limits=more)
    patch["spec"] |= patched("c1", requests=more, limits=more)["spec"]
    answer = await rig.request("PATCH", f"{PODS}/u/resize", patch, content_type=STRATEGIC)
    assert answer.status == 200, answer.json
    assert answer.json["metadata"]["generation"] == 2
    asked = answer.json["spec"]["resizeRequest"]["newResources"]
    assert asked == [{"name": name, "requests": more, "limits": more} for name in ("c1", "c1-init")]


QUOTA = "exceeded quota: resize-resource-quota, requested: {}, used: {}, limited: {}"


@pytest.mark.parametrize(
    ("cpu", "memory", "words"),
    [
        ("600m", "400Mi", QUOTA.format("cpu=300m", "cpu=600m", "cpu=800m")),
        ("250m", "750Mi", QUOTA.format("memory=450Mi", "memory=600Mi", "memory=800Mi")),
        (
            "600m",
            "750Mi",
            QUOTA.format("cpu=300m,memory=450Mi", "cpu=600m,memory=600Mi", "cpu=800m,memory=800Mi"),
        ),
        ("350m", "300Mi", ""),
        ("350m", "350Mi", ""),
        ("400m", "400Mi", ""),
    ],
)
async def test_a_resource_quota(rig: Rig, cpu: str, memory: str, words: str) -> None:
    hard = {"cpu": "800m", "memory": "800Mi"}
    quota = {"metadata": {"name": "resize-resource-quota"}, "spec": {"hard": hard}}
    await rig.request("POST", f"{NAMESPACE}/resourcequotas", quota)
    await _check(rig, cpu, memory, words)


MAXIMUM = "maximum {} usage per Container is {}, but limit is {}"
MINIMUM = "minimum {} usage per Container is {}, but request is {}"


@pytest.mark.parametrize(
    ("cpu", "memory", "words"),
    [
        ("600m", "250Mi", "forbidden: " + MAXIMUM.format("cpu", "500m", "600m")),
        ("250m", "750Mi", "forbidden: " + MAXIMUM.format("memory", "500Mi", "750Mi")),
        ("600m", "600Mi", MAXIMUM.format("memory", "500Mi", "600Mi")),
        ("10m", "400Mi", "forbidden: " + MINIMUM.format("cpu", "50m", "10m")),
        ("250m", "10Mi", "forbidden: " + MINIMUM.format("memory", "50Mi", "10Mi")),
        ("10m", "10Mi", MINIMUM.format("cpu", "50m", "10m")),
        ("350m", "300Mi", ""),
        ("400m", "400Mi", ""),
    ],
)
async def test_a_limit_range(rig: Rig, cpu: str, memory: str, words: str) -> None:
    item = {
        "type": "Container",
        "max": {"cpu": "500m", "memory": "500Mi"},
        "min": {"cpu": "50m", "memory": "50Mi"},
        "default": {"cpu": "100m", "memory": "100Mi"},
        "defaultRequest": {"cpu": "50m", "memory": "50Mi"},
    }
    limits = {"metadata": {"name": "resize-limit-ranger"}, "spec": {"limits": [item]}}
    created = await rig.request("POST", f"{NAMESPACE}/limitranges", limits)
    assert created.json["spec"]["limits"] == [item], "nothing is added that they did not send"
    await _check(rig, cpu, memory, words)


async def _check(rig: Rig, cpu: str, memory: str, words: str) -> None:
    """Two pods of 300m and 300Mi; the first is resized."""
    size = {"cpu": "300m", "memory": "300Mi"}
    await _make(rig, [container("c1", size, size)])
    await _make(rig, [container("c1", size, size)], name="v")
    more = {"cpu": cpu, "memory": memory}
    patch = patched("c1", requests=more, limits=more)
    answer = await rig.request("PATCH", f"{PODS}/u/resize", patch, content_type=STRATEGIC)
    assert answer.status == (403 if words else 200), answer.json
    assert words in answer.json.get("message", "")
    after = (await rig.request("GET", f"{PODS}/u")).json["spec"]["containers"][0]["resources"]
    assert after["limits"] == (size if words else more)


async def _make(rig: Rig, containers: list[Object], name: str = "u", **spec: Any) -> Object:
    """On a node, as theirs run."""
    if (await rig.request("GET", "/api/v1/nodes/n1")).status == 404:
        await rig.add_node("n1")
    made = {
        "metadata": {"name": name},
        "spec": {"containers": containers, "nodeName": "n1", **spec},
    }
    answer = await rig.request("POST", PODS, made)
    assert answer.status == 201, answer.json
    answered: Object = answer.json
    return answered
