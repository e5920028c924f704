"""Who may do what: each identity with each verb on each resource, and on each field (design 5.6).

The tables below are written by hand and not taken from the program: a change of rights has to be
made in both places.
"""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.roles import ALL, Role
from livesize.apiserver.auth.authorize import Access, allows
from livesize.apiserver.auth.identities import Identity, node_identity
from unit.apiserver.conftest import IDENTITIES, Rig, pod

READ, CREATE, CHANGE = {"get", "list", "watch"}, {"create"}, {"update", "patch"}
LETTERS = {
    "R": READ,
    "g": {"get"},
    "C": CREATE,
    "U": CHANGE,
    "d": {"delete"},
    "X": {"delete", "deletecollection"},
    "-": set[str](),
}

# R read, g get alone, C create, U update and patch, d delete, X delete and deletecollection
ROLES = (Role.EDITOR, Role.VIEWER, Role.NODE, Role.SCHEDULER, Role.CONTROLLER, Role.APISERVER)
RIGHTS = """
                             editor viewer node scheduler controller apiserver
namespaces                   RCUX   R      -    R         RUd        R
nodes                        R      R      RCU  R         RUd        R
nodes/status                 R      R      RU   R         RU         R
pods                         RCUX   R      RUd  R         RCUX       R
pods/resize                  RU     R      R    R         RU         R
pods/status                  R      R      RU   RU        RU         R
pods/log                     g      g      -    -         -          -
pods/exec                    C      -      -    -         -          -
pods/attach                  C      -      -    -         -          -
pods/portforward             C      -      -    -         -          -
pods/binding                 -      -      -    C         -          -
pods/eviction                C      -      -    -         C          -
pods/resizing                -      -      C    C         -          -
events                       RCUX   R      CU   RCU       RCUX       R
leases                       R      R      gCUd RCU       RCUX       R
configmaps                   RCUX   R      R    R         RUd        -
secrets                      RCUX   -      R    -         RUd        -
services                     RCUX   R      -    R         RUd        -
serviceaccounts              RCUX   R      -    R         RUd        -
poddisruptionbudgets         RCUX   R      -    R         RUd        -
poddisruptionbudgets/status  R      R      -    R         RUd        -
limitranges                  R      R      -    R         RUd        -
persistentvolumeclaims        RCUX   R      R    R         RCUd       -
persistentvolumeclaims/status R      R      -    R         RU         -
persistentvolumes             R      R      RU   R         RCUd       -
persistentvolumes/status      R      R      -    R         RU         -
storageclasses                R      R      -    R         RUd        -
priorityclasses              R      R      -    R         RUd        -
resourcequotas               R      R      -    R         RUd        -
resourcequotas/status        R      R      -    R         RU         -
statefulsets                 RCUX   R      -    R         RCUX       -
statefulsets/scale           RU     R      -    -         RU         -
statefulsets/status          R      R      -    R         RU         -
deployments                  RCUX   R      -    R         RCUX       -
deployments/scale            RU     R      -    -         RU         -
deployments/status           R      R      -    R         RU         -
replicasets                  RCUX   R      -    R         RCUX       -
replicasets/scale            RU     R      -    -         RU         -
replicasets/status           R      R      -    R         RU         -
controllerrevisions          R      R      -    R         RCUX       -
"""


def expected() -> dict[tuple[Role, str], set[str]]:
    rights: dict[tuple[Role, str], set[str]] = {}
    for line in RIGHTS.strip("\n").splitlines()[1:]:
        target, *cells = line.split()
        for role, cell in zip(ROLES, cells, strict=True):
            rights[role, target] = set().union(*(LETTERS[letter] for letter in cell))
    return rights


EXPECTED = expected()
TARGETS = [
    (resource, subresource)
    for resource in REGISTRY.stored()
    for subresource in ("", *kind_of(resource).subresources)
]


def identity_of(role: Role) -> Identity:
    return node_identity("n1") if role is Role.NODE else Identity("someone", role)


def target_name(resource: Resource, subresource: str) -> str:
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def test_every_resource_that_is_served_has_its_row() -> None:
    rows = {target for _, target in EXPECTED}
    assert {target_name(*target) for target in TARGETS} <= rows


@pytest.mark.parametrize("verb", sorted(ALL))
@pytest.mark.parametrize("role", ROLES)
def test_each_role_each_verb_each_resource(role: Role, verb: str) -> None:
    for resource, subresource in TARGETS:
        access = Access(verb, resource, subresource, "default" if resource.namespaced else "", "x")
        allowed = verb in EXPECTED[role, target_name(resource, subresource)]
        assert allows(identity_of(role), access) is allowed, access
        assert allows(identity_of(Role.ADMIN), access)


@pytest.mark.parametrize("role", [Role.EDITOR, Role.VIEWER])
def test_a_limit_to_namespaces_takes_all_else_away(role: Role) -> None:
    limited = Identity("someone", role, "", ("mine",))
    for resource, subresource in TARGETS:
        rights = EXPECTED[role, target_name(resource, subresource)]
        for verb in ALL:
            mine = Access(verb, resource, subresource, "mine", "x")
            if resource.namespaced:
                assert allows(limited, mine) is (verb in rights)
                for elsewhere in ("", "other"):
                    assert not allows(limited, Access(verb, resource, subresource, elsewhere, "x"))
            else:
                assert not allows(limited, Access(verb, resource, subresource, "", "x"))


# Over the wire: 403 exactly where the table says so


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    await rig.add_pod("web", node="n1")
    await rig.add_node("n2")
    return rig


METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
LIMITED = (
    *("secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes"),
    *("pods", "nodes", "leases"),
)
TOKENS = {
    Role.EDITOR: "editor",
    Role.VIEWER: "viewer",
    Role.NODE: "n1",
    Role.SCHEDULER: "scheduler",
    Role.CONTROLLER: "controller",
}


def path_of(verb: str, resource: Resource, subresource: str) -> str:
    collection = verb in ("list", "deletecollection") or (verb == "create" and not subresource)
    return resource.path("default", "" if collection else "absent", subresource)


@pytest.mark.parametrize("role", TOKENS)
async def test_the_door_keeps_to_the_table(rig: Rig, role: Role) -> None:
    for resource, subresource in TARGETS:
        for verb, method in METHODS.items():
            if subresource and verb in ("list", "deletecollection"):
                continue  # a path of its own only for objects
            if verb == "get" and subresource in ("exec", "attach", "portforward"):
                continue  # GET is how a WebSocket asks for what is a create
            answer = await rig.request(
                method,
                path_of(verb, resource, subresource),
                {} if method in ("POST", "PUT", "PATCH") else None,
                token=TOKENS[role],
                content_type="application/merge-patch+json"
                if method == "PATCH"
                else "application/json",
                dryRun="All",
            )
            target = target_name(resource, subresource)
            said = str(answer.json.get("message"))
            if answer.status in (404, 405) and "requested resource" in said:
                continue  # no such endpoint for anybody
            refused = f'cannot {verb} resource "{target}"' in said
            limited = role is Role.NODE and resource.plural in LIMITED
            allowed = verb in EXPECTED[role, target] - (READ if limited else set())
            assert refused is not allowed, (verb, target, said)


# Fields

LABELS = {"metadata": {"labels": {"color": "blue"}}}
VM = {
    "metadata": {"name": "vm"},
    "spec": {
        "virtualMachine": {
            "kernel": {"image": "/boot/vmlinuz"},
            "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
        }
    },
}
BIGGER = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "600m"}}}]}}
ALLOCATED = {
    "spec": {
        "containers": [{"name": "app", "resourcesAllocated": {"cpu": "600m", "memory": "64Mi"}}]
    }
}
WEB, N1 = "/api/v1/namespaces/default/pods/web", "/api/v1/nodes/n1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
EVENTS = "/api/v1/namespaces/default/events"
QUOTA = "/api/v1/namespaces/default/resourcequotas/quota"
EVENT = {
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
}
WRITERS = "admin editor team controller"

FIELDS: list[tuple[str, str, str, Any, str]] = [
    ("its labels", "merge", N1, LABELS, "admin controller"),
    ("its taints", "merge", N1, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
     "admin controller"),
    ("its annotations", "merge", N1, {"metadata": {"annotations": {"a": "b"}}},
     "admin controller n1"),
    ("its status", "merge", f"{N1}/status", {"status": {"phase": "Running"}},
     "admin controller n1"),
    ("a pod's labels", "merge", WEB, LABELS, WRITERS),
    ("a pod's size", "strategic", WEB, BIGGER, WRITERS),
    ("a pod's size by resize", "strategic", f"{WEB}/resize", BIGGER, WRITERS),
    ("a pod's image", "strategic", WEB,
     {"spec": {"containers": [{"name": "app", "image": "busybox:2"}]}}, WRITERS),
    ("resourcesAllocated", "strategic", WEB, ALLOCATED, "n1"),
    ("resizeRequest", "merge", WEB, {"spec": {"resizeRequest": {"requestStatus": "Done"}}}, ""),
    ("the state of a resize", "merge", f"{WEB}/status",
     {"status": {"resizeState": {"phase": "Done"}}}, ""),
    ("the words of a resize", "merge", f"{WEB}/status",
     {"status": {"conditions": [{"type": "PodResized", "status": "Done"}]}}, ""),
    ("a pod's status", "merge", f"{WEB}/status", {"status": {"message": "fine"}},
     "admin n1 scheduler controller"),
    ("an answer to a resize", "post", f"{WEB}/resizing",
     {"kind": "Resizing", "apiVersion": "v1", "request": {"requestStatus": "Accepted"}},
     "admin n1 scheduler"),
    ("a pod's node", "post", "/api/v1/namespaces/default/pods/free/binding",
     {"target": {"name": "n2"}}, "admin scheduler"),
    ("a pod's end", "delete", WEB, None, f"{WRITERS} n1"),
    ("paths of the machine", "post", "/api/v1/namespaces/default/pods", VM, "admin"),
    ("a new pod", "post", "/api/v1/namespaces/default/pods", pod("new"), WRITERS),
    ("a node's lease", "merge", f"{LEASE}/n1", {"spec": {"holderIdentity": "n1"}},
     "admin n1 scheduler controller"),
    ("an event", "post", EVENTS, EVENT, f"{WRITERS} n1 n2 scheduler"),
    ("whether it takes pods", "merge", N1, {"spec": {"unschedulable": True}},
     "admin controller"),
    ("what it has", "merge", f"{N1}/status", {"status": {"allocatable": {"cpu": "1"}}},
     "admin controller n1"),
    ("a node's end", "delete", N1, None, "admin controller"),
    ("another node", "post", "/api/v1/nodes", {"metadata": {"name": "n3"}}, "admin"),
    ("another node's lease", "post", LEASE, {"metadata": {"name": "n3"}, "spec": {}},
     "admin scheduler controller"),
    ("who leads", "post", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
     {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}},
     "admin scheduler controller"),
    ("a pod's finalizers", "merge", WEB, {"metadata": {"finalizers": ["a.b/c"]}}, WRITERS),
    ("a pod's owners", "merge", WEB,
     {"metadata": {"ownerReferences": [
         {"apiVersion": "v1", "kind": "Pod", "name": "free", "uid": "u"}]}}, WRITERS),
    ("a pod's annotations", "merge", WEB, {"metadata": {"annotations": {"a": "b"}}}, WRITERS),
    ("a pod's resize policy", "strategic", f"{WEB}/resize",
     {"spec": {"containers": [{"name": "app", "resizePolicy": [
         {"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}}, WRITERS),
    ("a pod's phase", "merge", f"{WEB}/status", {"status": {"phase": "Succeeded"}},
     "admin n1 scheduler controller"),
    ("a new pod on a node", "post", "/api/v1/namespaces/default/pods", pod("new", nodeName="n1"),
     WRITERS),
    ("a pod by apply", "apply", "/api/v1/namespaces/default/pods/applied", pod("applied"),
     WRITERS),
    ("a namespace's level of security", "merge", "/api/v1/namespaces/default",
     {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
     "admin editor controller"),
    ("a quota", "post", "/api/v1/namespaces/default/resourcequotas",
     {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}, "admin"),
    ("what is used of a quota", "merge", f"{QUOTA}/status", {"status": {"used": {"pods": "0"}}},
     "admin controller"),
    ("what a quota allows", "merge", QUOTA, {"spec": {"hard": {"pods": "1"}}},
     "admin controller"),
    ("a limit range", "post", "/api/v1/namespaces/default/limitranges",
     {"metadata": {"name": "l"}, "spec": {"limits": []}}, "admin"),
    ("a priority", "post", "/apis/scheduling.k8s.io/v1/priorityclasses",
     {"metadata": {"name": "p"}, "value": 1}, "admin"),
    ("a secret", "post", "/api/v1/namespaces/default/secrets",
     {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, "admin editor team"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "how", "path", "body", "who"), FIELDS, ids=[f[0] for f in FIELDS])
async def test_each_identity_each_field(
    rig: Rig, what: str, how: str, path: str, body: Any, who: str
) -> None:
    await rig.add_pod("free")
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "99"}}}
    assert (await rig.request("POST", QUOTA.removesuffix("/quota"), quota)).status == 201
    lease = {"metadata": {"name": "n1"}, "spec": {}}
    assert (await rig.request("POST", LEASE, lease)).status == 201
    if what in ("an answer to a resize", "resourcesAllocated"):
        assert (await rig.patch(f"{WEB}/resize", BIGGER, "strategic")).status == 200
    outcomes: dict[str, int] = {}
    for token in IDENTITIES:
        if how in ("post", "delete"):
            method = how.upper()
            answer = await rig.request(method, path, body, token=token, dryRun="All")
        else:
            more = {"fieldManager": "me"} if how == "apply" else {}
            answer = await rig.patch(path, body, how, token=token, dryRun="All", **more)
        outcomes[token] = answer.status
    assert {token for token, code in outcomes.items() if code < 300} == set(who.split()), outcomes
    refused = {code for code in outcomes.values() if code >= 300}
    assert refused <= {403}, outcomes


async def test_nodes_read_only_the_secrets_and_config_maps_their_pods_use(rig: Rig) -> None:
    """Nodes read only the Secrets and ConfigMaps their pods use and may not change their own
    labels or taints."""
    spec = {"imagePullSecrets": [{"name": "pull"}]}
    await rig.add_pod("pulls", node="n1", **spec)
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for token, name, verb, allowed in (
        ("n1", "pull", "get", True),
        ("n1", "pull", "watch", True),
        ("n1", "other", "get", False),
        ("n1", "", "list", False),
        ("n1", "pull", "delete", False),
        ("n2", "pull", "get", False),
        ("viewer", "pull", "get", False),
    ):
        wanted = {"verb": verb, "resource": "secrets", "namespace": "default", "name": name}
        body = {"spec": {"resourceAttributes": wanted}}
        answer = await rig.request("POST", review, body, token=token)
        assert answer.json["status"]["allowed"] is allowed, (token, name, verb)
