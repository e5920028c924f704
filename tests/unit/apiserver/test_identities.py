"""Names, roles, namespaces and the file that binds them; reviews answer from the same table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.secret import SECRETS
from livesize.api.pod_references import references_of
from livesize.api.roles import ALL, Role
from livesize.apiserver.auth.authorize import Access, allows, refusal
from livesize.apiserver.auth.identities import (
    LIMITABLE,
    Identity,
    IdentityError,
    identity_of_groups,
    make_identity,
    node_identity,
    role_groups,
)
from livesize.apiserver.auth.node_reads import Cluster, NodeRead, forbids_reading, selected_name
from livesize.apiserver.auth.records import (
    CredentialRecords,
    TokenEntry,
    TokensUnreadableError,
    change_records,
    read_records,
    without_expired,
    write_records,
)
from livesize.apiserver.auth.tokens import LOOK_SECONDS, Tokens, issue_token

TEAM = Identity("ann", Role.EDITOR, "", ("team-a", "team-b"))


@pytest.mark.parametrize(
    ("access", "allowed"),
    [
        (Access("create", PODS, "", "team-a", "x"), True),
        (Access("patch", PODS, "resize", "team-b", "x"), True),
        (Access("get", PODS, "", "other", "x"), False),
        (Access("list", PODS, "", "team-a"), True),
        (Access("list", PODS), False),
        (Access("watch", PODS), False),
        (Access("get", NAMESPACES, "", "", "team-a"), True),
        (Access("get", NAMESPACES, "", "", "other"), False),
        (Access("delete", NAMESPACES, "", "", "team-a"), False),
        (Access("list", NAMESPACES), False),
        (Access("get", NODES, "", "", "n1"), False),
    ],
)
def test_an_editor_of_two_namespaces(access: Access, allowed: bool) -> None:
    assert allows(TEAM, access) is allowed


@given(
    role=st.sampled_from(sorted(LIMITABLE)),
    verb=st.sampled_from(sorted(ALL)),
    resource=st.sampled_from(REGISTRY.stored()),
    namespace=st.sampled_from(["", "team-a", "other"]),
)
def test_a_limit_never_adds_rights(
    role: Role, verb: str, resource: Resource, namespace: str
) -> None:
    access = Access(verb, resource, "", namespace if resource.namespaced else "", "x")
    limited = Identity("ann", role, "", ("team-a",))
    if allows(limited, access):
        assert allows(Identity("ann", role), access)
        assert not resource.namespaced or namespace == "team-a"


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        (
            Access("list", PODS),
            (
                'pods is forbidden: User "ann" cannot list resource "pods" in API group ""'
                " at the cluster scope"
            ),
        ),
        (
            Access("create", LEASES, "", "other", "mine"),
            (
                'leases.coordination.k8s.io is forbidden: User "ann" cannot create resource'
                ' "leases" in API group "coordination.k8s.io" in the namespace "other"'
            ),
        ),
        (
            Access("get", NAMESPACES, "", "", "other"),
            (
                'namespaces "other" is forbidden: User "ann" cannot get resource "namespaces"'
                ' in API group "" in the namespace "other"'
            ),
        ),
    ],
)
def test_refusals_have_kubernetes_words(access: Access, sentence: str) -> None:
    assert refusal(TEAM, access).message == sentence


@pytest.mark.parametrize("role", Role)
def test_only_editors_and_viewers_are_limited(role: Role) -> None:
    node = "n1" if role is Role.NODE else ""
    if role in LIMITABLE:
        assert Identity("x", role, node, ("a",)).namespaces == ("a",)
    else:
        with pytest.raises(IdentityError, match="reaches everywhere"):
            Identity("x", role, node, ("a",))


@given(
    role=st.sampled_from([role for role in Role if role is not Role.NODE]),
    namespaces=st.lists(st.sampled_from(["a", "b", "c"]), unique=True),
)
def test_groups_carry_a_role_there_and_back(role: Role, namespaces: list[str]) -> None:
    limits = tuple(sorted(namespaces)) if role in LIMITABLE else ()
    identity = Identity("ann", role, "", limits)
    assert identity_of_groups("ann", role_groups(role, limits)) == identity


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("ann", []),
        ("ann", ["developers"]),
        ("ann", ["livesize:viewer", "system:masters"]),
        ("ann", ["system:nodes"]),
        ("system:node:", ["system:nodes"]),
        ("system:node:n1", ["livesize:editor"]),
        ("ann", ["system:masters", "livesize:namespace:a"]),
        ("", ["system:masters"]),
    ],
)
def test_groups_that_mean_nobody(name: str, groups: list[str]) -> None:
    assert identity_of_groups(name, groups) is None


def test_what_a_person_types() -> None:
    assert make_identity("x", "node:n1") == node_identity("n1")
    assert make_identity("x", "viewer", ["b", "a", "b"]).namespaces == ("a", "b")
    for wrong in ("root", "node", "node:", "editor:x"):
        with pytest.raises(IdentityError):
            make_identity("x", wrong)


def test_an_older_file_of_tokens_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('[{"name": "ann", "role": "editor", "hash": "00"}]')
    assert read_records(path) == CredentialRecords((TokenEntry("ann", Role.EDITOR, "00"),))


def test_a_binding_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('[{"name": "ann", "role": "admin", "hash": "00", "namespaces": ["a"]}]')
    with pytest.raises(TokensUnreadableError, match="only an editor or a viewer"):
        read_records(path)


def test_a_limit_that_is_mistyped_does_not_become_a_right(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('[{"name": "ann", "role": "editor", "hash": "00", "namespace": ["a"]}]')
    with pytest.raises(TokensUnreadableError, match="unknown field"):
        read_records(path)


def test_the_file_is_replaced_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    _, entry = issue_token("ann", Role.VIEWER, namespaces=("a",))
    change_records(path, lambda records: (CredentialRecords((*records.tokens, entry)), None))
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_records(path).tokens == (entry,)

    def fail(records: CredentialRecords) -> tuple[CredentialRecords, None]:
        raise KeyError("no")

    with pytest.raises(KeyError):
        change_records(path, fail)
    assert read_records(path).tokens == (entry,)


def test_what_root_writes_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    write_records(folder / "tokens", CredentialRecords())
    change_records(folder / "tokens", lambda records: (records, None))
    assert {path.stat().st_uid for path in folder.iterdir()} == {folder.stat().st_uid}


def test_a_slip_in_the_file_shuts_nobody_out_and_its_loss_everybody(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token, entry = issue_token("ann", Role.VIEWER)
    write_records(path, CredentialRecords((entry,)))
    tokens = Tokens(path)
    assert tokens.identify(token, 0.0) is not None
    path.write_text("{")
    assert tokens.identify(token, LOOK_SECONDS) is not None
    path.unlink()
    assert tokens.identify(token, 2 * LOOK_SECONDS) is None


def test_a_clock_that_goes_back_does_not_keep_the_file_from_being_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token, entry = issue_token("ann", Role.VIEWER)
    write_records(path, CredentialRecords((entry,)))
    tokens = Tokens(path)
    assert tokens.identify(token, 1000.0) is not None
    write_records(path, CredentialRecords())
    assert tokens.identify(token, 10.0) is None


def test_what_has_expired_is_forgotten() -> None:
    token = TokenEntry("ann", Role.VIEWER, "00", expires=10.0)
    forever = msgspec.structs.replace(token, expires=None)
    assert without_expired(CredentialRecords((token, forever)), 10.0) == CredentialRecords(
        (forever,)
    )


# Nodes and the Secrets of their pods

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "d"},
    "spec": {
        "nodeName": "n1",
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"secret": {"secretName": "in-volume"}},
            {"configMap": {"name": "settings"}},
            {"projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {}}]}},
            "nonsense",
        ],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}]}],
        "containers": [
            {
                "env": [
                    {"valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}},
                    {"valueFrom": {"configMapKeyRef": {"name": "map", "key": "a"}}},
                    {"value": "plain"},
                ],
                "envFrom": [{"configMapRef": {"name": "all"}}],
            }
        ],
    },
}


def test_what_a_pod_uses() -> None:
    assert references_of(POD) == {
        *(("secrets", name) for name in ("pull", "in-volume", "projected", "from", "key")),
        *(("configmaps", name) for name in ("settings", "map", "all")),
    }
    assert references_of({"spec": {"volumes": None, "containers": "x"}}) == frozenset()


@pytest.mark.parametrize(
    ("access", "node", "why"),
    [
        (Access("get", SECRETS, "", "d", "key"), "n1", ""),
        (Access("watch", SECRETS, "", "d", "key"), "n1", ""),
        (Access("get", SECRETS, "", "d", "other"), "n1", "no relationship"),
        (Access("get", SECRETS, "", "e", "key"), "n1", "no relationship"),
        (Access("get", SECRETS, "", "d", "key"), "n2", "no relationship"),
        (Access("list", SECRETS, "", "d"), "n1", "No Object name"),
        (Access("list", SECRETS), "n1", "can only read namespaced"),
        (Access("delete", SECRETS, "", "d", "key"), "n1", "can only read resources"),
    ],
)
def test_a_node_reads_the_secrets_of_its_pods(access: Access, node: str, why: str) -> None:
    read = NodeRead(node, access)
    assert read.is_limited
    assert forbids_reading(read, Cluster([POD])).startswith(why)
    assert bool(forbids_reading(read, Cluster([POD]))) is bool(why)


@pytest.mark.parametrize(
    ("access", "labels", "why"),
    [
        (Access("get", PERSISTENT_VOLUMES, name="used"), "", ""),
        (Access("get", PERSISTENT_VOLUMES, name="mine"), "", ""),
        (Access("patch", PERSISTENT_VOLUMES, name="mine"), "", ""),
        (Access("watch", PERSISTENT_VOLUMES), "livesize.dev/node=n1", ""),
        (Access("get", PERSISTENT_VOLUMES, name="other"), "", "no relationship"),
        (Access("patch", PERSISTENT_VOLUMES, name="used"), "", "no relationship"),
        (Access("delete", PERSISTENT_VOLUMES, name="mine"), "", "no relationship"),
        (Access("list", PERSISTENT_VOLUMES), "livesize.dev/node=n2", "can only list"),
        (Access("list", PERSISTENT_VOLUMES), "", "can only list"),
    ],
)
def test_a_node_sees_the_volumes_of_its_claims_and_its_own_folders(
    access: Access, labels: str, why: str
) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    claims = [
        {"metadata": {"name": "data", "namespace": "d"}, "spec": {"volumeName": "used"}},
        {"metadata": {"name": "data", "namespace": "e"}, "spec": {"volumeName": "other"}},
    ]
    kept = [{"metadata": {"name": "mine", "labels": {"livesize.dev/node": "n1"}}}]
    found = forbids_reading(NodeRead("n1", access, labels), Cluster([pod], claims, kept))
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_the_name_a_field_selector_lets_through() -> None:
    assert selected_name("metadata.name=key") == "key"
    assert selected_name("metadata.name!=key") == ""
    assert selected_name("spec.nodeName=n1") == ""
    assert selected_name("") == ""


def test_a_token_made_now_counts_now(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write_records(path, CredentialRecords())
    tokens = Tokens(path)
    assert tokens.identify("guess", 0.0) is None
    token, entry = issue_token("ann", Role.VIEWER)
    write_records(path, CredentialRecords((entry,)))
    assert tokens.identify(token, 0.0) == Identity("ann", Role.VIEWER)
