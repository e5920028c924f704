"""Each identity does each verb to a real object of each kind, over the wire (design 5.6).

What is expected comes from the table in test_who_may_what, and from what 5.6 says of nodes: they
touch only themselves, their own pods and lease, and read only the Secrets and ConfigMaps their pods
use. Whoever is let in is answered 2xx, or 409 where the object is there already; else 403.
"""

from __future__ import annotations

from typing import Any

import pytest

from design.test_who_may_what import EXPECTED, TARGETS, target_name
from livesize.api.kinds.metrics import METRICS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.reviews import REVIEWS
from livesize.api.objects import Object
from livesize.api.roles import Role
from unit.api.kinds.workload_objects import workload_spec
from unit.apiserver.conftest import IDENTITIES, Rig, pod

BIGGER = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "600m"}}}]}}
ANSWER = {"kind": "Resizing", "apiVersion": "v1", "request": {"requestStatus": "Accepted"}}

DECLARING = pod("web")
DECLARING["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]

# A real object of each kind: where it is, and what is sent to make it.
OBJECTS: dict[str, tuple[str, Object]] = {
    "namespaces": ("", {"metadata": {"name": "spare"}}),
    "nodes": ("", {"metadata": {"name": "n1"}}),
    "pods": ("default", pod("web")),
    "events": (
        "default",
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
        },
    ),
    "leases": ("kube-node-lease", {"metadata": {"name": "n1"}, "spec": {}}),
    "resourcequotas": ("default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "99"}}}),
    "limitranges": (
        "default",
        {
            "metadata": {"name": "l"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]},
        },
    ),
    "serviceaccounts": ("default", {"metadata": {"name": "s"}}),
    "configmaps": ("default", {"metadata": {"name": "used"}, "data": {"a": "b"}}),
    "secrets": ("default", {"metadata": {"name": "used"}, "stringData": {"a": "b"}}),
    "services": ("default", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    "poddisruptionbudgets": (
        "default",
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}},
    ),
    "priorityclasses": ("", {"metadata": {"name": "c"}, "value": 5}),
    "persistentvolumeclaims": (
        "default",
        {
            "metadata": {"name": "used"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "v",
            },
        },
    ),
    "persistentvolumes": (
        "",
        {
            "metadata": {"name": "v", "labels": {"livesize.dev/node": "n1"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/srv/v"},
            },
        },
    ),
    "storageclasses": ("", {"metadata": {"name": "c"}, "provisioner": "example.com/disks"}),
    "statefulsets": ("default", {"metadata": {"name": "w"}, "spec": workload_spec()}),
    "deployments": ("default", {"metadata": {"name": "w"}, "spec": workload_spec()}),
    "replicasets": ("default", {"metadata": {"name": "w"}, "spec": workload_spec()}),
    "controllerrevisions": ("default", {"metadata": {"name": "r"}, "data": {}, "revision": 1}),
}
POSTED = {
    "pods/binding": ("/api/v1/namespaces/default/pods/free/binding", {"target": {"name": "n1"}}),
    "pods/eviction": (
        "/api/v1/namespaces/default/pods/web/eviction",
        {"metadata": {"name": "web"}},
    ),
    "pods/resizing": ("/api/v1/namespaces/default/pods/web/resizing", ANSWER),
}
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
READ = {"get", "list", "watch"}
# What a pod's node answers, and by which verb it is asked. Here is no node: whoever is let in hears
# that he has to ask by WebSocket, or that the pod does not run.
TO_NODES = {"log": "get", "exec": "create", "attach": "create", "portforward": "create"}


def test_there_is_an_object_of_every_kind_served() -> None:
    assert {resource.plural for resource in REGISTRY.stored()} == set(OBJECTS)
    posted = {"binding", "eviction", "resizing"}
    there = {target_name(*target) for target in TARGETS if target[1] in posted}
    assert there == set(POSTED)


def let_in(token: str, verb: str, resource: Resource, subresource: str) -> bool:
    """What design 5.6 says of this identity, here."""
    identity = IDENTITIES[token]
    if identity.role is Role.ADMIN:
        return True
    if verb not in EXPECTED[identity.role, target_name(resource, subresource)]:
        return False
    if identity.namespaces and OBJECTS[resource.plural][0] not in identity.namespaces:
        return False
    return identity.role is not Role.NODE or let_in_as_node(token, verb, resource)


def let_in_as_node(token: str, verb: str, resource: Resource) -> bool:
    if resource.plural in ("secrets", "configmaps", "persistentvolumeclaims"):
        return token == "n1" and verb == "get"  # of one that a pod of n1 uses; never all of them
    if resource.plural == "persistentvolumes":
        return token == "n1" and verb not in ("list", "watch")  # of one whose folder n1 keeps
    if resource.plural in ("nodes", "pods", "leases") and verb in ("list", "watch"):
        return False  # of all nodes: only its own, by a field selector
    return resource.plural == "events" or token == "n1"


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    for plural, (namespace, body) in OBJECTS.items():
        resource = next(one for one in REGISTRY.stored() if one.plural == plural)
        if plural != "pods":
            answer = await rig.request("POST", resource.path(namespace), body)
            assert answer.status == 201, answer.json
    volumes = [
        {"name": "s", "secret": {"secretName": "used"}},
        {"name": "c", "configMap": {"name": "used"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "used"}},
    ]
    ported = DECLARING["spec"]["containers"]
    await rig.add_pod("web", node="n1", volumes=volumes, containers=ported)
    await rig.add_pod("free")
    resized = await rig.patch("/api/v1/namespaces/default/pods/web/resize", BIGGER, "strategic")
    assert resized.status == 200
    return rig


async def attempt(rig: Rig, token: str, verb: str, resource: Resource, subresource: str) -> Any:
    """Do it without leaving a trace; the code of the answer; None: no such endpoint."""
    namespace, body = OBJECTS[resource.plural]
    name = body["metadata"]["name"]
    path = resource.path(namespace, name, subresource)
    if subresource in TO_NODES:
        return await ask_node(rig, token, verb, path, subresource)
    if subresource in ("binding", "eviction", "resizing"):
        if verb != "create":
            return None
        path, body = POSTED[target_name(resource, subresource)]
    elif verb in ("list", "watch", "create", "deletecollection"):
        if subresource:
            return None
        path = resource.path(namespace)
    sent: Any = None
    if verb == "create":
        sent = body
    elif verb == "update":
        sent = (await rig.get(path)).json
    elif verb == "patch":
        return (await rig.patch(path, {}, token=token, dryRun="All")).status
    if verb == "watch":
        return await watch(rig, path, token)
    # Not all namespaces can be deleted, by anybody.
    some = {"fieldSelector": f"metadata.name={name}"} if verb == "deletecollection" else {}
    answer = await rig.request(METHODS[verb], path, sent, token=token, dryRun="All", **some)
    return None if answer.status == 405 else answer.status


async def ask_node(rig: Rig, token: str, verb: str, path: str, subresource: str) -> int | None:
    if verb != TO_NODES[subresource]:
        return None
    return (await rig.request(METHODS[verb], path, token=token)).status


async def watch(rig: Rig, path: str, token: str) -> int:
    stream = await rig.watch(path, token=token)
    await stream.hang_up()
    return stream.status


@pytest.mark.parametrize("token", sorted(IDENTITIES))
async def test_each_identity_each_verb_each_kind(rig: Rig, token: str) -> None:
    for resource, subresource in TARGETS:
        for verb in METHODS:
            if subresource in ("status", "resize") and verb == "delete":
                continue  # no such endpoint
            code = await attempt(rig, token, verb, resource, subresource)
            if code is None:
                continue
            allowed = let_in(token, verb, resource, subresource)
            told = (token, verb, target_name(resource, subresource), code)
            if allowed:
                assert code in ((400,) if subresource in TO_NODES else (200, 201, 409)), told
            else:
                assert code == 403, told


@pytest.mark.parametrize("bearer", ["", "unknown"])
async def test_nobody_unknown_is_let_in_anywhere(rig: Rig, bearer: str) -> None:
    for resource, subresource in TARGETS:
        namespace, body = OBJECTS[resource.plural]
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            path = resource.path(namespace, body["metadata"]["name"], subresource)
            answer = await rig.request(method, path, {}, token=bearer)
            assert answer.status == 401, (method, path)
    for path in ("/metrics", "/openapi/v3", "/openapi/v2", "/api", "/apis", "/api/v1", "/nowhere"):
        assert (await rig.get(path, token=bearer)).status == 401
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await rig.get(path, token=bearer)).status == 200


@pytest.mark.parametrize("token", ["", *sorted(IDENTITIES)])
async def test_everybody_known_may_ask_who_they_are_and_what_they_may(rig: Rig, token: str) -> None:
    wanted = {"verb": "get", "resource": "pods", "namespace": "default"}
    specs = {
        "selfsubjectaccessreviews": {"resourceAttributes": wanted},
        "selfsubjectrulesreviews": {"namespace": "default"},
        "selfsubjectreviews": {},
    }
    for review in REVIEWS:
        body = {"spec": specs[review.plural]}
        answer = await rig.request("POST", review.path(), body, token=token)
        assert answer.status == (201 if token else 401), review.plural
    for path in ("/metrics", "/openapi/v3", "/api", "/apis", "/api/v1", "/apis/policy/v1"):
        assert (await rig.get(path, token=token)).status == (200 if token else 401), path


@pytest.mark.parametrize("token", sorted(IDENTITIES))
async def test_who_may_read_an_object_may_read_what_it_uses_and_nobody_writes_it(
    rig: Rig, token: str
) -> None:
    for measured in METRICS:
        about = next(
            one for one in REGISTRY.stored() if one.kind == measured.kind.removesuffix("Metrics")
        )
        namespace, body = OBJECTS[about.plural]
        name = body["metadata"]["name"]
        for verb in ("get", "list"):
            path = measured.path(namespace, name if verb == "get" else "")
            code = (await rig.get(path, token=token)).status
            readable = let_in(token, verb, about, "")
            assert code in ((200, 404) if readable else (403,)), (token, verb, path)
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in (measured.path(namespace), measured.path(namespace, name)):
                answer = await rig.request(
                    method, path, {}, token=token, content_type="application/merge-patch+json"
                )
                assert answer.status in (403, 404, 405), (token, method, path)


def secured(**context: Any) -> Object:
    made = pod("unsafe")
    made["spec"]["containers"][0]["securityContext"] = context
    return made


def ported() -> Object:
    made = pod("unsafe")
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


# "Everyone but admin gets the baseline": each field of it.
UNSAFE: dict[str, Object] = {
    "privileged": secured(privileged=True),
    "hostNetwork": pod("unsafe", hostNetwork=True),
    "hostPID": pod("unsafe", hostPID=True),
    "hostIPC": pod("unsafe", hostIPC=True),
    "hostPath": pod("unsafe", volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "capabilities": secured(capabilities={"add": ["SYS_ADMIN"]}),
    "hostPort": ported(),
    "procMount": secured(procMount="Unmasked"),
    "seccompProfile": secured(seccompProfile={"type": "Unconfined"}),
    "appArmorProfile": secured(appArmorProfile={"type": "Unconfined"}),
    "seLinuxOptions": secured(seLinuxOptions={"type": "spc_t"}),
    "sysctls": pod(
        "unsafe", securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}
    ),
}


# An admin may ask, and hears that no node carries it out.
NOT_CARRIED_OUT = frozenset(
    {"hostPID", "hostIPC", "procMount", "appArmorProfile", "seLinuxOptions"}
)


@pytest.mark.parametrize("field", sorted(UNSAFE))
async def test_each_identity_each_field_of_the_baseline(rig: Rig, field: str) -> None:
    path = "/api/v1/namespaces/default/pods"
    allowed = 422 if field in NOT_CARRIED_OUT else 201
    for token in IDENTITIES:
        answer = await rig.request("POST", path, UNSAFE[field], token=token, dryRun="All")
        assert answer.status == (allowed if token == "admin" else 403), (token, answer.json)
        if token in ("editor", "team", "controller"):
            assert "violates PodSecurity" in answer.json["message"]
        applied = await rig.patch(
            f"{path}/unsafe",
            UNSAFE[field],
            "apply",
            token=token,
            dryRun="All",
            fieldManager="me",
        )
        assert applied.status == (allowed if token == "admin" else 403), (token, applied.json)
