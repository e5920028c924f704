"""Tokens, roles and admission: who may do what to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.roles import ALL, Role
from livesize.apiserver.admission.plan import AdmissionRefusal, AdmissionRequest, admit
from livesize.apiserver.auth.authorize import Access, allows
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.tokens import (
    LOOK_SECONDS,
    Tokens,
    TokensUnreadableError,
    issue_token,
    read_tokens,
    write_tokens,
)
from livesize.apiserver.http.watch_stream import CREDENTIAL_SECONDS

NODE = node_identity("n1")


def identity(role: Role) -> Identity:
    return NODE if role is Role.NODE else Identity("someone", role)


ALLOWED = [
    (Role.ADMIN, "delete", NODES, "", True),
    (Role.EDITOR, "patch", PODS, "resize", True),
    (Role.EDITOR, "create", PODS, "", True),
    (Role.EDITOR, "create", PODS, "binding", False),
    (Role.EDITOR, "create", PODS, "resizing", False),
    (Role.EDITOR, "update", NODES, "status", False),
    (Role.VIEWER, "watch", PODS, "", True),
    (Role.VIEWER, "patch", PODS, "", False),
    (Role.VIEWER, "patch", PODS, "resize", False),
    (Role.NODE, "create", PODS, "resizing", True),
    (Role.NODE, "create", PODS, "", False),
    (Role.NODE, "patch", PODS, "resize", False),
    (Role.NODE, "delete", NODES, "", False),
    (Role.NODE, "delete", NAMESPACES, "", False),
    (Role.SCHEDULER, "create", PODS, "binding", True),
    (Role.SCHEDULER, "create", PODS, "resizing", True),
    (Role.SCHEDULER, "patch", PODS, "", False),
    (Role.CONTROLLER, "create", PODS, "", True),
    (Role.CONTROLLER, "patch", PODS, "resize", True),
    (Role.CONTROLLER, "create", PODS, "resizing", False),
]


@pytest.mark.parametrize(("role", "verb", "resource", "subresource", "allowed"), ALLOWED)
def test_roles(role: Role, verb: str, resource: Any, subresource: str, allowed: bool) -> None:
    assert allows(identity(role), Access(verb, resource, subresource, "default", "x")) is allowed


@given(verb=st.sampled_from(sorted(ALL - {"get", "list", "watch"})), role=st.sampled_from(Role))
def test_only_node_and_scheduler_answer_a_resize(verb: str, role: Role) -> None:
    access = Access(verb, PODS, "resizing", "default", "x")
    if allows(identity(role), access):
        assert role in (Role.NODE, Role.SCHEDULER, Role.ADMIN)
    # A viewer sees everything that an editor does, but secrets, and neither enters nor evicts.
    more = {"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/eviction"}
    assert _targets(Role.EDITOR) - _targets(Role.VIEWER) == more


def _targets(role: Role) -> set[str]:
    """What a role has any verb on, as pods or pods/log."""
    return {
        Access("", resource, subresource).target
        for resource in REGISTRY.stored()
        for subresource in kind_of(resource).roles.get(role, {})
    }


async def test_refusals_in_kubernetes_words(rig: Any) -> None:
    path = "/api/v1/namespaces/default/pods/web"
    answer = await rig.request("DELETE", path, token="viewer")
    assert answer.status == 403
    assert answer.json["message"] == (
        'pods "web" is forbidden: User "vi" cannot delete resource "pods" in API group ""'
        ' in the namespace "default"'
    )
    listed = await rig.request("POST", "/api/v1/nodes", {}, token="viewer")
    assert listed.json["message"] == (
        'nodes is forbidden: User "vi" cannot create resource "nodes" in API group ""'
        " at the cluster scope"
    )


def pod_on(node: str) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"nodeName": node}}


def node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


ATTEMPTS: list[tuple[str, Access, Any, Any, bool]] = [
    ("its pod", Access("patch", PODS, "status", "d", "x"), pod_on("n1"), pod_on("n1"), True),
    ("another's", Access("patch", PODS, "status", "d", "x"), pod_on("n2"), pod_on("n2"), False),
    ("delete its pod", Access("delete", PODS, "", "d", "x"), pod_on("n1"), None, True),
    ("delete another's", Access("delete", PODS, "", "d", "x"), pod_on("n2"), None, False),
    ("itself", Access("patch", NODES, "status", "", "n1"), node("n1"), node("n1"), True),
    ("register itself", Access("create", NODES, "", "", "n1"), None, node("n1"), True),
    ("another node", Access("patch", NODES, "", "", "n2"), node("n2"), node("n2"), False),
    ("its labels", Access("patch", NODES, "", "", "n1"), node("n1"),
     node("n1", labels={"a": "b"}), False),
    ("its architecture", Access("patch", NODES, "", "", "n1"),
     node("n1", labels={"kubernetes.io/arch": "x86_64", "disk": "fast"}),
     node("n1", labels={"kubernetes.io/arch": "amd64", "disk": "fast"}), True),
    ("its taints", Access("patch", NODES, "", "", "n1"), node("n1", taints=[{"key": "a"}]),
     node("n1"), False),
    ("its lease", Access("update", LEASES, "", "kube-node-lease", "n1"), {}, {}, True),
    ("another lease", Access("update", LEASES, "", "kube-node-lease", "n2"), {}, {}, False),
    ("elsewhere", Access("update", LEASES, "", "default", "n1"), {}, {}, False),
    ("a namespace", Access("delete", NAMESPACES, "", "", "x"), {}, None, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("access", "old", "new", "admitted"),
    [row[1:] for row in ATTEMPTS],
    ids=[row[0] for row in ATTEMPTS],
)
def test_a_node_touches_only_what_is_its_own(
    access: Access, old: Any, new: Any, admitted: bool
) -> None:
    verdict = admit(AdmissionRequest(NODE, access, old, new))
    assert isinstance(verdict, AdmissionRefusal) is not admitted


@given(role=st.sampled_from([role for role in Role if role is not Role.NODE]))
def test_allocated_of_a_bound_pod_moves_only_through_its_node(role: Role) -> None:
    old, new = pod_on("n1"), pod_on("n1")
    old["status"] = {"resizeState": {"allocated": [{"name": "a", "requests": {"cpu": "1"}}]}}
    new["status"] = {"resizeState": {"allocated": [{"name": "a", "requests": {"cpu": "2"}}]}}
    access = Access("patch", PODS, "", "d", "x")
    assert isinstance(admit(AdmissionRequest(identity(role), access, old, new)), AdmissionRefusal)
    assert admit(AdmissionRequest(identity(role), access, old, old)) is None
    assert admit(AdmissionRequest(NODE, access, old, new)) is None


def test_tokens_are_kept_hashed_and_private(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, entry = issue_token("ann", Role.EDITOR)
    old, expired = issue_token("bob", Role.ADMIN, expires=100.0)
    write_tokens(path, [entry, expired])
    assert path.stat().st_mode & 0o777 == 0o600
    assert token not in path.read_text()
    tokens = Tokens(path)
    assert tokens.identify(token, 50.0) == Identity("ann", Role.EDITOR)
    assert tokens.identify(old, 99.0) is not None
    assert tokens.identify(old, 100.0) is None
    assert tokens.identify("guess", 50.0) is None


def test_a_token_is_revoked_by_taking_its_line_out(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, entry = issue_token("ann", Role.NODE, node="n1")
    write_tokens(path, [entry])
    tokens = Tokens(path)
    assert tokens.identify(token, 0.0) == Identity("ann", Role.NODE, "n1")
    write_tokens(path, [])
    assert read_tokens(path) == []
    assert tokens.identify(token, LOOK_SECONDS / 2) is not None, "not looked at for each request"
    assert tokens.identify(token, LOOK_SECONDS) is None


def test_a_broken_token_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("{")
    with pytest.raises(TokensUnreadableError, match="repair it, or remove it"):
        Tokens(path).identify("x", 0.0)


async def test_a_watch_ends_when_its_token_is_revoked(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await rig.watch("/api/v1/namespaces/default/pods", token="viewer")
    other = await rig.watch("/api/v1/namespaces/default/pods", token="editor")
    await rig.clock.sleep(CREDENTIAL_SECONDS)
    await rig.add_pod("web")
    assert (await stream.next())["type"] == "ADDED"
    # The rig's tokens are the names in this table.
    monkeypatch.delitem(type(rig.app._authenticator).identify.__globals__["IDENTITIES"], "viewer")
    await rig.clock.sleep(CREDENTIAL_SECONDS)
    (last,) = await stream.rest()
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
    assert (await other.next())["type"] == "ADDED"
    assert not other.ended
