"""What admission gives a pod and demands of it: limit ranges, priorities, pod security."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, Path, evolve
from livesize.api.roles import Role
from livesize.apiserver.admission.plan import RULES, guard_allocation, guard_limits
from livesize.apiserver.admission.trust import Distrust
from livesize.apiserver.admission_context import context_of
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.auth.identities import Identity
from unit.apiserver.conftest import pod

BASE = "/api/v1/namespaces/default"
LIMITS = f"{BASE}/limitranges"


def limit_range(**item: Any) -> Object:
    return {"metadata": {"name": "lim"}, "spec": {"limits": [{"type": "Container", **item}]}}


def bare(name: str = "web", **spec: Any) -> Object:
    containers = [{"name": "app", "image": "busybox:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


async def resize(rig: Any, cpu: str) -> Any:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    change = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    return await rig.patch(f"{BASE}/pods/web/resize", change, kind="strategic")


async def test_a_limit_range_gives_what_a_pod_does_not_say(rig: Any) -> None:
    made = await rig.request("POST", LIMITS, limit_range(max={"cpu": "1"}, min={"memory": "8Mi"}))
    assert made.json["spec"]["limits"] == [
        {
            "type": "Container",
            "max": {"cpu": "1"},
            "min": {"memory": "8Mi"},
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "1", "memory": "8Mi"},
        }
    ]
    answer = await rig.request("POST", f"{BASE}/pods", bare())
    assert answer.status == 201
    (container,) = answer.json["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {"cpu": "1", "memory": "8Mi"},
    }
    assert answer.json["status"]["qosClass"] == "Burstable"
    assert container["resourcesAllocated"] == {"cpu": "1", "memory": "8Mi"}


async def test_limits_on_create_and_resize_in_kubernetes_words(rig: Any) -> None:
    item = limit_range(min={"cpu": "50m"}, max={"cpu": "500m"})
    assert (await rig.request("POST", LIMITS, item)).status == 201
    answer = await rig.request("POST", f"{BASE}/pods", pod(limits={"cpu": "600m", "memory": "1Gi"}))
    assert (answer.status, answer.json["message"]) == (
        403,
        'pods "web" is forbidden: maximum cpu usage per Container is 500m, but limit is 600m',
    )
    even = {"cpu": "100m", "memory": "64Mi"}
    await rig.add_pod("web", requests=even, limits=even, node="n1")
    answer = await resize(rig, "600m")
    assert answer.status == 403
    assert answer.json["message"].endswith(
        "maximum cpu usage per Container is 500m, but limit is 600m"
    )
    answer = await resize(rig, "20m")
    assert answer.json["message"].endswith(
        "minimum cpu usage per Container is 50m, but request is 20m"
    )
    assert (await resize(rig, "400m")).status == 200


async def test_a_pod_that_is_not_resized_is_not_judged_again(rig: Any) -> None:
    await rig.add_pod("web")
    await rig.request("POST", LIMITS, limit_range(max={"cpu": "10m"}))
    answer = await rig.patch(f"{BASE}/pods/web", {"metadata": {"labels": {"a": "b"}}})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
        (
            {"type": "Pod", "max": {"memory": "100Mi"}},
            "maximum memory usage per Pod is 100Mi, but limit is 128Mi",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1"}},
            "minimum cpu usage per Pod is 1, but request is 500m",
        ),
    ],
)
async def test_ratios_and_whole_pods(rig: Any, item: Object, why: str) -> None:
    made = {"metadata": {"name": "lim"}, "spec": {"limits": [{"type": "Container", **item}]}}
    assert (await rig.request("POST", LIMITS, made)).status == 201
    two = pod()
    size = {
        "requests": {"cpu": "250m", "memory": "64Mi"},
        "limits": {"cpu": "1", "memory": "64Mi"},
    }
    containers = [{"name": name, "image": "busybox:1", "resources": size} for name in ("a", "b")]
    two["spec"]["containers"] = containers
    answer = await rig.request("POST", f"{BASE}/pods", two)
    assert (answer.status, answer.json["message"]) == (403, f'pods "web" is forbidden: {why}')


def test_allocation_is_guarded_before_limits_and_quota() -> None:
    assert RULES.index(guard_allocation) < RULES.index(guard_limits)


async def test_a_priority_class_gives_its_value(rig: Any) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = await rig.request("POST", classes, {"metadata": {"name": "high"}, "value": 1000})
    assert (made.status, made.json["preemptionPolicy"]) == (201, "PreemptLowerPriority")
    answer = await rig.request("POST", f"{BASE}/pods", bare(priorityClassName="high"))
    assert answer.json["spec"]["priority"] == 1000
    replaced = {**bare(priorityClassName="high"), "apiVersion": "v1", "kind": "Pod"}
    replaced["metadata"]["labels"] = {"a": "b"}
    assert (await rig.request("PUT", f"{BASE}/pods/web", replaced)).status == 200
    named = (await rig.get(f"{classes}/system-node-critical")).json
    assert named["value"] == 2_000_001_000


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 9},
            (
                "the integer value of priority (9) must not be provided in pod spec; priority"
                " admission controller computed 0 from the given PriorityClass name"
            ),
        ),
        (
            {"priorityClassName": "system-node-critical", "priority": 7},
            (
                "the integer value of priority (7) must not be provided in pod spec; priority"
                " admission controller computed 2000001000 from the given PriorityClass name"
            ),
        ),
    ],
)
async def test_priorities_refused(rig: Any, spec: Object, why: str) -> None:
    answer = await rig.request("POST", f"{BASE}/pods", bare(**spec))
    assert (answer.status, answer.json["message"]) == (403, f'pods "web" is forbidden: {why}')


async def test_one_default_priority(rig: Any) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    low = {"metadata": {"name": "low"}, "value": 5, "globalDefault": True}
    assert (await rig.request("POST", classes, low)).status == 201
    other = await rig.request("POST", classes, {**low, "metadata": {"name": "other"}})
    assert other.status == 403
    made = await rig.request("POST", f"{BASE}/pods", bare())
    assert made.json["spec"]["priority"] == 5
    assert made.json["spec"]["priorityClassName"] == "low"


def secured(**context: Any) -> Object:
    made = bare()
    made["spec"]["containers"][0]["securityContext"] = context
    return made


def asking(field: str, handler: Object) -> Object:
    made = bare()
    made["spec"]["containers"][0][field] = handler
    return made


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
UNSAFE = [
    (bare(hostNetwork=True, hostPID=True), "host namespaces (hostNetwork=true, hostPID=true)"),
    (
        secured(privileged=True),
        'privileged (container "app" must not set securityContext.privileged=true)',
    ),
    (secured(capabilities={"add": ["SYS_ADMIN"]}), "non-default capabilities"),
    (
        bare(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        'hostPath volumes (volume "v")',
    ),
    (secured(procMount="Unmasked"), "procMount"),
    (secured(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
    (bare(securityContext={"sysctls": [{"name": "kernel.msgmax"}]}), "forbidden sysctls"),
    *(
        (asking(field, handler), 'probe or lifecycle host (container "app" must not set host')
        for field in ("livenessProbe", "readinessProbe", "startupProbe")
        for handler in (
            {"httpGet": {"port": 80, "host": "192.0.2.1"}},
            {"tcpSocket": {"port": 80, "host": "localhost"}},
        )
    ),
    *(
        (
            asking("lifecycle", {when: {"httpGet": {"port": 80, "host": "192.0.2.1"}}}),
            "probe or lifecycle host",
        )
        for when in ("postStart", "preStop")
    ),
]


@pytest.mark.parametrize(("sent", "why"), UNSAFE)
async def test_everyone_but_an_admin_gets_the_baseline(rig: Any, sent: Object, why: str) -> None:
    answer = await rig.request("POST", f"{BASE}/pods", sent, token="editor")
    assert answer.status == 403
    begin = 'pods "web" is forbidden: violates PodSecurity "baseline:latest": '
    assert answer.json["message"].startswith(begin + why)
    # The label cannot lower what holds for an editor, who could write it himself.
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    await rig.patch("/api/v1/namespaces/default", label, token="editor")
    assert (await rig.request("POST", f"{BASE}/pods", sent, token="editor")).status == 403
    # An admin may ask for all of it; some of it no node carries out.
    unknown = why == "procMount" or "hostPID" in why
    assert (await rig.request("POST", f"{BASE}/pods", sent)).status == (422 if unknown else 201)


async def test_a_namespaces_label_holds_for_everybody(rig: Any) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await rig.patch("/api/v1/namespaces/default", label)
    answer = await rig.request("POST", f"{BASE}/pods", bare())
    assert answer.status == 403
    assert (
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
        in (answer.json["message"])
    )
    assert (await rig.request("POST", f"{BASE}/pods", secured(**RESTRICTED))).status == 201


async def test_a_level_that_does_not_exist(rig: Any) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "strict"}}}
    answer = await rig.patch("/api/v1/namespaces/default", label)
    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == (
        "metadata.labels[pod-security.kubernetes.io/enforce]"
    )


@pytest.mark.parametrize("context", [{"seccompProfile": "none"}, {"capabilities": {"add": "ALL"}}])
async def test_nonsense_is_not_a_server_error(rig: Any, context: Object) -> None:
    answer = await rig.request("POST", f"{BASE}/pods", secured(**context), token="editor")
    assert answer.status in (400, 422)


@pytest.mark.parametrize(
    ("path", "value", "is_program"),
    [
        (("metadata", "annotations"), {"livesize.dev/post-resize": "id"}, True),
        (("metadata", "annotations"), {"livesize.dev/pre-shrink.app": "id"}, True),
        (("metadata", "annotations"), {"livesize.dev/hook-timeout": "5s"}, False),
        (("spec", "containers", 0, "image"), "other", True),
        (("metadata", "labels"), {"a": "b"}, False),
    ],
)
def test_what_an_editor_who_is_not_trusted_changes(
    path: Path, value: Any, is_program: bool
) -> None:
    """A command that runs around a resize is a program as well as an image is."""
    old = bare(nodeName="n1")
    distrust, new = Distrust(shared=("n1",)), evolve(old, path, value)
    assert bool(distrust.forbids_change(Identity("ed", Role.EDITOR), old, new)) is is_program
    assert not distrust.forbids_change(Identity("root", Role.ADMIN), old, new)


async def test_a_resize_looks_at_no_node_where_editors_are_not_trusted(rig: Any) -> None:
    """It brings no program, and there may be thousands of nodes."""
    await rig.add_node()

    def distrust(verb: str, subresource: str = "") -> Distrust | None:
        access = Access(verb, PODS, subresource, "default", "web")
        return context_of(rig.cache, access, trusts_editors=False).distrust

    assert distrust("patch", "resize") is None
    for verb, subresource in (("create", ""), ("patch", ""), ("create", "binding")):
        assert distrust(verb, subresource) == Distrust(shared=("n1",))
