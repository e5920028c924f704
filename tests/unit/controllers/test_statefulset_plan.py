"""What a stateful set does next: each rule by its name, and what is true of every course."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.kinds.stateful_set import default_stateful_set
from livesize.api.objects import Object, name_of
from livesize.api.times import format_time
from livesize.controllers.kit.hashes import short_hash
from livesize.controllers.statefulset.members import (
    make_claims,
    make_member,
    ordinal_of,
    revision_of,
)
from livesize.controllers.statefulset.plan import (
    CreateClaim,
    CreatePod,
    DeletePod,
    LabelPod,
    OwnClaim,
    Revision,
    SetStep,
    SetView,
    claims_needed,
    plan_stateful_set,
    plan_status,
)
from livesize.controllers.statefulset.revisions import (
    KeepRevision,
    NewRevision,
    RaiseRevision,
    make_revision,
    outdated,
    plan_revision,
    stored_template,
)

NOW = 1_700_000_000.0
LABELS = {"app": "db"}
DELETED = {"whenDeleted": "Delete", "whenScaled": "Retain"}
SCALED = {"whenDeleted": "Retain", "whenScaled": "Delete"}
BOTH = {"whenDeleted": "Delete", "whenScaled": "Delete"}


def template(image: str = "a:1", **spec: Any) -> Object:
    containers = [{"name": "app", "image": image}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **spec}}


OLD, NEW = Revision("db-old", template("a:1")), Revision("db-new", template("a:2"))


def a_set(replicas: int = 3, status: Object | None = None, **spec: Any) -> Object:
    whole = {
        "replicas": replicas,
        "selector": {"matchLabels": LABELS},
        "template": template("a:2"),
        "serviceName": "dbs",
        **spec,
    }
    metadata = {"name": "db", "namespace": "default", "uid": "uid-db", "generation": 4}
    made: Object = {"metadata": metadata, "spec": whole, "status": status or {}}
    return default_stateful_set(made)


def rolling(**how: Any) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": how}


def a_pod(ordinal: int, words: str = "ready new", since: float = NOW - 100) -> Object:
    """``words``: how it is (ready, starting, pending, leaving, Failed, Succeeded), and of which
    revision."""
    state, revision = words.split()
    of = NEW if revision == "new" else OLD
    pod = make_member(a_set(), of.template, ordinal, of.name)
    pod["metadata"]["uid"] = f"uid-{ordinal}"
    if state == "leaving":
        pod["metadata"]["deletionTimestamp"] = format_time(NOW)
    ready = "True" if state in ("ready", "leaving") else "False"
    phase = {"pending": "Pending"}.get(state, state if state[0].isupper() else "Running")
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(since)}
    return {**pod, "status": {"phase": phase, "conditions": [condition]}}


def view(stateful_set: Object, pods: dict[int, str], claims: list[Object] | None = None) -> SetView:
    made = tuple(a_pod(ordinal, words) for ordinal, words in pods.items())
    named = {name_of(claim): claim for claim in claims or []}
    return SetView(stateful_set, made, named, OLD, NEW)


def said(steps: tuple[SetStep, ...]) -> list[str]:
    words = []
    for step in steps:
        match step:
            case CreatePod(pod):
                words.append(f"create {name_of(pod)[3:]} {revision_of(pod)[3:]}")
            case DeletePod(pod):
                words.append(f"delete {name_of(pod)[3:]}")
            case LabelPod(pod):
                words.append(f"label {name_of(pod)[3:]}")
            case CreateClaim(claim, _):
                words.append(f"claim {name_of(claim)}")
            case OwnClaim(claim):
                owners = [one["kind"] for one in claim["metadata"]["ownerReferences"]]
                words.append(f"own {name_of(claim)} {owners}")
    return words


ALL = {0: "ready new", 1: "ready new", 2: "ready new"}
PAR = {"podManagementPolicy": "Parallel"}
OLDS = dict.fromkeys(range(3), "ready old")


@pytest.mark.parametrize(("rule", "spec", "pods", "steps"), [
    ("in order: the first", {}, {}, ["create 0 new"]),
    ("in order: a pod that starts is waited for", {}, {0: "starting new"}, []),
    ("in order: a pod that is pending is waited for", {}, {0: "pending new"}, []),
    ("in order: the next when it is ready", {}, {0: "ready new"}, ["create 1 new"]),
    ("in order: a gap before all else", {}, {1: "ready new", 2: "ready old"}, ["create 0 new"]),
    ("in order: one that leaves is waited for", {}, {**ALL, 0: "leaving new"}, []),
    ("in order: one that has failed goes", {}, {**ALL, 1: "Failed new"}, ["delete 1"]),
    ("in order: one that has succeeded goes", {}, {**ALL, 1: "Succeeded new"}, ["delete 1"]),
    ("all there: nothing", {}, ALL, []),
    ("all at once: all that are missing", PAR, {1: "starting new"},
     ["create 0 new", "create 2 new"]),
    ("all at once: failed ones go beside", PAR, {0: "Failed new"},
     ["delete 0", "create 1 new", "create 2 new"]),
    ("start: numbers begin there", {"ordinals": {"start": 5}}, {}, ["create 5 new"]),
    ("start: what is below is condemned", {"ordinals": {"start": 1}, "replicas": 2}, ALL,
     ["delete 0"]),
    ("start: after what is new is ready", {"ordinals": {"start": 1}}, ALL, ["create 3 new"]),
    ("down: the highest goes", {"replicas": 1}, ALL, ["delete 2"]),
    ("down: one after the other", {"replicas": 1}, {**ALL, 2: "leaving new"}, []),
    ("down: waits for the replicas", {"replicas": 1}, {**ALL, 0: "starting new"}, []),
    ("down: waits for an unhealthy one below", {"replicas": 1},
     {0: "ready new", 1: "starting new", 2: "starting new"}, []),
    ("down: the only unhealthy one may go", {"replicas": 1}, {**ALL, 2: "starting new"},
     ["delete 2"]),
    ("down: a healthy one above it may go", {"replicas": 1}, {**ALL, 1: "starting new"},
     ["delete 2"]),
    ("down: all at once", {"replicas": 1, **PAR}, ALL, ["delete 2", "delete 1"]),
    ("down: to nothing", {"replicas": 0, **PAR}, {**ALL, 1: "leaving new"},
     ["delete 2", "delete 0"]),
    ("down: before the update", {"replicas": 2}, OLDS, ["delete 2"]),
    ("update: the highest first", {}, OLDS, ["delete 2"]),
    ("update: the next when it is back", {}, {**OLDS, 2: "ready new"}, ["delete 1"]),
    ("update: not while it starts", {}, {**OLDS, 2: "starting new"}, []),
    ("update: in order, a broken old pod stops it for ever", {}, {**OLDS, 0: "starting old"}, []),
    ("update: in order, a broken new pod stops it for ever", {}, {**OLDS, 2: "starting new"}, []),
    ("update: all at once, a broken old pod is replaced", PAR, {**OLDS, 2: "starting old"},
     ["delete 2"]),
    ("update: all at once, the order counts all the same", PAR, {**OLDS, 0: "starting old"},
     ["delete 2"]),
    ("update: all at once, not while it starts", PAR, {**OLDS, 2: "starting new"}, []),
    ("update: all at once, not while it leaves", PAR, {**OLDS, 2: "leaving old"}, []),
    ("partition: nothing below", {"updateStrategy": rolling(partition=2)}, OLDS, ["delete 2"]),
    ("partition: what is above is done", {"updateStrategy": rolling(partition=2)},
     {**OLDS, 2: "ready new"}, []),
    ("partition: as many as there are", {"updateStrategy": rolling(partition=3)}, OLDS, []),
    ("partition: more than there are", {"updateStrategy": rolling(partition=9)}, OLDS, []),
    ("partition: below it, the old template", {"updateStrategy": rolling(partition=2)}, {},
     ["create 0 old"]),
    ("partition: from it on, the new one", {"updateStrategy": rolling(partition=2)},
     {0: "ready old", 1: "ready old"}, ["create 2 new"]),
    ("partition: counts from the start", {"updateStrategy": rolling(partition=1),
     "ordinals": {"start": 5}, **PAR}, {}, ["create 5 old", "create 6 new", "create 7 new"]),
    ("partition: the update does, too", {"updateStrategy": rolling(partition=1),
     "ordinals": {"start": 5}}, dict.fromkeys((5, 6, 7), "ready old"), ["delete 7"]),
    ("partition: and ends there", {"updateStrategy": rolling(partition=1),
     "ordinals": {"start": 5}}, {5: "ready old", 6: "ready new", 7: "ready new"}, []),
    ("no rollingUpdate: no partition", {"updateStrategy": {"type": "RollingUpdate"}}, OLDS,
     ["delete 2"]),
    ("on delete: nothing is deleted", {"updateStrategy": {"type": "OnDelete"}}, OLDS, []),
    ("on delete: a new pod is of the new template", {"updateStrategy": {"type": "OnDelete"}},
     {0: "ready old"}, ["create 1 new"]),
    ("unavailable: two at once", {"updateStrategy": rolling(maxUnavailable=2)}, OLDS,
     ["delete 2", "delete 1"]),
    ("unavailable: a percentage, rounded up", {"updateStrategy": rolling(maxUnavailable="34%")},
     OLDS, ["delete 2", "delete 1"]),
    ("unavailable: at least one", {"updateStrategy": rolling(maxUnavailable="1%")}, OLDS,
     ["delete 2"]),
    ("unavailable: not below the partition",
     {"updateStrategy": rolling(maxUnavailable=3, partition=2)}, OLDS, ["delete 2"]),
    ("unavailable: all that are count", {"updateStrategy": rolling(maxUnavailable=2), **PAR},
     {**OLDS, 2: "starting new"}, ["delete 1"]),
    ("unavailable: also those below the partition",
     {"updateStrategy": rolling(maxUnavailable=1, partition=1), **PAR},
     {**OLDS, 0: "starting old"}, []),
    ("unavailable: broken old ones cost nothing and go first",
     {"updateStrategy": rolling(maxUnavailable=2), **PAR}, {**OLDS, 0: "starting old"},
     ["delete 0", "delete 2"]),
    ("unavailable: broken old ones go even when all are",
     {"updateStrategy": rolling(maxUnavailable=1), **PAR}, dict.fromkeys(OLDS, "starting old"),
     ["delete 2", "delete 1", "delete 0"]),
])  # fmt: skip
def test_rules(rule: str, spec: Any, pods: Any, steps: list[str]) -> None:
    stateful_set = a_set(**{"replicas": 3, **spec})
    assert said(plan_stateful_set(view(stateful_set, pods), NOW)) == steps, rule


def test_without_a_partition_field_pods_of_the_current_revision_come_back_as_such() -> None:
    stateful_set = a_set(status={"currentReplicas": 1}, updateStrategy={"type": "RollingUpdate"})
    assert said(plan_stateful_set(view(stateful_set, {}), NOW)) == ["create 0 old"]
    assert said(plan_stateful_set(view(stateful_set, {0: "ready old"}), NOW)) == ["create 1 new"]


def test_a_set_that_is_being_deleted_does_nothing() -> None:
    going = a_set()
    going["metadata"]["deletionTimestamp"] = format_time(NOW)
    assert plan_stateful_set(view(going, {0: "Failed old"}), NOW) == ()


@pytest.mark.parametrize(("seconds", "steps"), [(99, ["create 1 new"]), (101, [])])
def test_a_pod_is_available_when_it_was_ready_long_enough(seconds: int, steps: list[str]) -> None:
    stateful_set = a_set(minReadySeconds=seconds)
    shown = view(stateful_set, {0: "ready new"})
    assert said(plan_stateful_set(shown, NOW)) == steps
    status = plan_status(shown, set(), NOW)
    assert status is not None
    assert (status["readyReplicas"], status["availableReplicas"]) == (1, len(steps))


@pytest.mark.parametrize(
    "key", ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"]
)
def test_a_pod_gets_its_identity_back(key: str) -> None:
    shown = view(a_set(1), {0: "ready new"})
    (pod,) = shown.pods
    del pod["metadata"]["labels"][key]
    (step,) = plan_stateful_set(shown, NOW)
    assert isinstance(step, LabelPod)
    assert step.pod["metadata"]["labels"] == a_pod(0)["metadata"]["labels"]


# Pods and claims


def with_claims(**spec: Any) -> Object:
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    names = ({"name": "data", "labels": {"of": "db"}, "annotations": {"a": "b"}}, {"name": "log"})
    templates = [{"metadata": metadata, "spec": size} for metadata in names]
    return a_set(**{"volumeClaimTemplates": templates, **spec})


def test_a_pod_has_its_name_its_host_name_and_its_claims() -> None:
    stateful_set = with_claims()
    own = [{"name": "log", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    made = make_member(stateful_set, template(volumes=own, subdomain="other"), 2, "db-x")
    assert name_of(made) == made["spec"]["hostname"] == "db-2"
    assert made["spec"]["subdomain"] == "dbs"
    assert made["metadata"]["labels"] == {
        **LABELS,
        "statefulset.kubernetes.io/pod-name": "db-2",
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": "db-x",
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("StatefulSet", "uid-db", True)
    assert made["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-2"}},
        {"name": "log", "persistentVolumeClaim": {"claimName": "log-db-2"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    first, second = make_claims(stateful_set, 2)
    assert first["metadata"] == {
        "name": "data-db-2",
        "namespace": "default",
        "labels": {"of": "db", **LABELS},
        "annotations": {"a": "b"},
    }
    assert (second["metadata"]["name"], "status" in second) == ("log-db-2", False)
    unnamed = make_member(a_set(serviceName=""), template(subdomain="other"), 0, "db-x")
    assert "subdomain" not in unnamed["spec"]


@pytest.mark.parametrize(("name", "ordinal"), [
    ("db-0", 0), ("db-10", 10), ("db-01", None), ("db-", None), ("db", None), ("db-x", None),
    ("db-1-1", None), ("web-1", None), ("db-\u0661", None),
])  # fmt: skip
def test_whose_name_it_is(name: str, ordinal: int | None) -> None:
    assert ordinal_of(a_set(), {"metadata": {"name": name}}) == ordinal


def test_claims_come_before_their_pod_and_again_while_it_is_pending() -> None:
    stateful_set = with_claims(replicas=1)
    created = ["claim data-db-0", "claim log-db-0"]
    assert said(plan_stateful_set(view(stateful_set, {}), NOW)) == [*created, "create 0 new"]
    assert said(plan_stateful_set(view(stateful_set, {0: "pending new"}), NOW)) == created
    assert said(plan_stateful_set(view(stateful_set, {0: "ready new"}), NOW)) == []
    claims = list(make_claims(stateful_set, 0))
    assert said(plan_stateful_set(view(stateful_set, {}, claims[:1]), NOW)) == [
        "claim log-db-0",
        "create 0 new",
    ]
    names = claims_needed(stateful_set, [a_pod(7)])
    assert sorted(names) == ["data-db-0", "data-db-7", "log-db-0", "log-db-7"]


def owned(claim: Object, kind: str, uid: str, name: str, *, controls: bool = True) -> Object:
    owner = {"apiVersion": "v1", "kind": kind, "uid": uid, "name": name, "controller": controls}
    return {**claim, "metadata": {**claim["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(("policy", "replicas", "pods", "steps"), [
    ({}, 1, {0: "ready new"}, []),
    (DELETED, 1, {0: "ready new"}, ["own data-db-0 ['StatefulSet']"]),
    (SCALED, 1, {0: "ready new"}, []),
    ({}, 0, {0: "ready new"}, ["delete 0"]),
    (DELETED, 0, {0: "ready new"}, ["own data-db-0 ['StatefulSet']", "delete 0"]),
    (SCALED, 0, {0: "ready new"}, ["own data-db-0 ['Pod']", "delete 0"]),
    (BOTH, 0, {0: "ready new"}, ["own data-db-0 ['Pod']", "delete 0"]),
])  # fmt: skip
def test_what_becomes_of_claims(policy: Any, replicas: int, pods: Any, steps: list[str]) -> None:
    """A claim has its owner before the pod goes with which it goes."""
    claims = with_claims()["spec"]["volumeClaimTemplates"][:1]
    stateful_set = a_set(
        replicas, volumeClaimTemplates=claims, persistentVolumeClaimRetentionPolicy=policy
    )
    (there,) = make_claims(a_set(volumeClaimTemplates=claims), 0)
    shown = view(stateful_set, pods, [there])
    assert said(plan_stateful_set(shown, NOW)) == steps
    after = {name_of(step.claim): step.claim for step in plan_stateful_set(shown, NOW)
             if isinstance(step, OwnClaim)}  # fmt: skip
    again = SetView(stateful_set, shown.pods, {name_of(there): there, **after}, OLD, NEW)
    assert not [step for step in said(plan_stateful_set(again, NOW)) if step.startswith("own")]


def test_owners_that_are_wrong_are_taken_off_and_those_of_others_stay() -> None:
    claims = with_claims()["spec"]["volumeClaimTemplates"][:1]
    kept = a_set(1, volumeClaimTemplates=claims)
    (claim,) = make_claims(kept, 0)
    for owner in (("StatefulSet", "uid-db", "db"), ("Pod", "uid-0", "db-0")):
        shown = view(kept, {0: "ready new"}, [owned(claim, *owner)])
        assert said(plan_stateful_set(shown, NOW)) == ["own data-db-0 []"]
    gone_with_set = a_set(
        1, volumeClaimTemplates=claims, persistentVolumeClaimRetentionPolicy=DELETED
    )
    others = owned(claim, "Backup", "uid-b", "b")
    assert said(plan_stateful_set(view(gone_with_set, {0: "ready new"}, [others]), NOW)) == []
    beside = owned(claim, "Backup", "uid-b", "b", controls=False)
    shown = view(gone_with_set, {0: "ready new"}, [beside])
    assert said(plan_stateful_set(shown, NOW)) == ["own data-db-0 ['Backup', 'StatefulSet']"]


def test_a_pod_waits_until_the_claim_of_its_predecessor_is_gone() -> None:
    claims = with_claims()["spec"]["volumeClaimTemplates"][:1]
    stateful_set = a_set(1, volumeClaimTemplates=claims)
    (claim,) = make_claims(stateful_set, 0)
    stale = owned(claim, "Pod", "uid-before", "db-0")
    going = {**claim, "metadata": {**claim["metadata"], "deletionTimestamp": format_time(NOW)}}
    for there in (stale, going):
        assert said(plan_stateful_set(view(stateful_set, {}, [there]), NOW)) == []
    assert said(plan_stateful_set(view(stateful_set, {}, [claim]), NOW)) == ["create 0 new"]


# Status


def counted(stateful_set: Object, pods: dict[int, str], *deleted: str) -> Object:
    status = plan_status(view(stateful_set, pods), set(deleted), NOW)
    assert status is not None
    assert plan_status(view({**stateful_set, "status": status}, pods), set(deleted), NOW) is None
    return status


def test_what_is_counted() -> None:
    pods = {0: "ready old", 1: "leaving old", 2: "starting new", 7: "ready new"}
    assert counted(a_set(), pods) == {
        "observedGeneration": 4,
        "replicas": 4,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 1,
        "updatedReplicas": 2,
        "currentRevision": "db-old",
        "updateRevision": "db-new",
        "collisionCount": 0,
    }
    assert "readyReplicas" not in counted(a_set(), {0: "starting new"})
    assert "currentReplicas" not in counted(a_set(), pods, "uid-0"), "it has been deleted just now"


@pytest.mark.parametrize(("spec", "pods", "revision"), [
    ({}, ALL, "db-new"),
    ({}, {**ALL, 0: "ready old"}, "db-old"),
    ({}, {**ALL, 0: "starting new"}, "db-old"),
    ({"replicas": 2}, ALL, "db-old"),
    ({"updateStrategy": rolling(partition=3)}, ALL, "db-new"),
    ({"updateStrategy": {"type": "OnDelete"}}, ALL, "db-old"),
])  # fmt: skip
def test_when_an_update_is_complete(spec: Any, pods: Any, revision: str) -> None:
    status = counted(a_set(**{"replicas": 3, **spec}), pods)
    assert (status["currentRevision"], status["updateRevision"]) == (revision, "db-new")
    if revision == "db-new":
        assert status["currentReplicas"] == 3


def test_pods_that_others_have_relabelled_are_never_counted_below_nothing() -> None:
    """The labels are counted: what the update deletes need not be of the current revision."""
    shown = view(a_set(**PAR), dict.fromkeys(range(3), "ready old"))
    for pod in shown.pods:
        pod["metadata"]["labels"]["controller-revision-hash"] = "db-third"
    (step,) = plan_stateful_set(shown, NOW)
    assert isinstance(step, DeletePod)
    status = plan_status(shown, {step.pod["metadata"]["uid"]}, NOW)
    assert status is not None
    assert "currentReplicas" not in status


# Revisions


def revision(stateful_set: Object, number: int, collisions: int = 0) -> Object:
    return make_revision(stateful_set, number, collisions)


def test_a_template_finds_its_revision_again() -> None:
    one, two, three = (a_set(template=template(f"a:{number}")) for number in (1, 2, 3))
    assert plan_revision(one, []) == NewRevision(1)
    history = [revision(two, 5), revision(one, 4)]
    assert plan_revision(two, history) == KeepRevision(history[0])
    assert plan_revision(one, history) == RaiseRevision(history[1], 6)
    assert plan_revision(three, history) == NewRevision(6)
    assert stored_template(history[1]) == one["spec"]["template"]
    assert history[0]["data"]["spec"]["template"]["$patch"] == "replace"


def test_a_revision_is_named_by_its_contents() -> None:
    told = a_set()
    told["metadata"]["annotations"] = {"kubernetes.io/change-cause": "why"}
    made = revision(told, 1)
    hashed = made["metadata"]["labels"]["controller.kubernetes.io/hash"]
    assert name_of(made) == f"db-{hashed}"
    assert made["metadata"]["annotations"] == {"kubernetes.io/change-cause": "why"}
    assert made["metadata"]["labels"]["app"] == "db"
    assert name_of(revision(a_set(), 2)) == name_of(made) != name_of(revision(a_set(), 2, 1))
    assert name_of(revision(a_set(template=template("b")), 1)) != name_of(made)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 9)), st.integers(0, 3))
def test_a_hash_is_short_and_does_not_depend_on_the_order(contents: Any, collisions: int) -> None:
    turned = dict(reversed(contents.items()))
    assert short_hash(contents, collisions) == short_hash(turned, collisions)
    assert 1 <= len(short_hash(contents, collisions)) <= 10
    assert set(short_hash(contents, collisions)) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_the_oldest_revisions_go_and_those_that_are_used_stay() -> None:
    history = [revision(a_set(template=template(f"a:{number}")), number) for number in range(5)]
    used = [name_of(history[0])]
    assert outdated(history, used, 2) == history[1:3]
    assert outdated(history, used, 4) == []
    assert outdated(history, [], 0) == history


# Every course


class World:
    """A set, its pods and its claims; what a node does, and what users do, is up to chance."""

    def __init__(self, seed: int, policy: str, most: Any) -> None:
        self.chance = random.Random(seed)
        self.most = most
        self.policy = policy
        self.pods: dict[str, Object] = {}
        self.claims: dict[str, Object] = {}
        self.names = {"db-r0": template("a:0")}
        self.current = self.update = "db-r0"
        self.status: Object = {}
        self.made = 0
        self.replicas, self.start, self.partition = 3, 0, 0

    def spec(self) -> Object:
        how = {"partition": self.partition}
        if self.most is not None:
            how["maxUnavailable"] = self.most
        return a_set(
            self.replicas,
            self.status,
            podManagementPolicy=self.policy,
            updateStrategy=rolling(**how),
            ordinals={"start": self.start},
            template=self.names[self.update],
            volumeClaimTemplates=with_claims()["spec"]["volumeClaimTemplates"][:1],
        )

    def view(self) -> SetView:
        revisions = (Revision(name, self.names[name]) for name in (self.current, self.update))
        return SetView(self.spec(), tuple(self.pods.values()), dict(self.claims), *revisions)

    def disturb(self) -> None:
        match self.chance.randrange(7):
            case 0:
                self.replicas = self.chance.randrange(5)
            case 1:
                self.update = f"db-r{self.chance.randrange(3)}"
                self.names.setdefault(self.update, template(f"a:{self.update}"))
            case 2:
                self.partition = self.chance.randrange(4)
            case 3:
                self.start = self.chance.randrange(2)
            case 4 if self.pods:
                self.become(self.chance.choice(sorted(self.pods)), "Failed")
            case 5 if self.pods:
                name = self.chance.choice(sorted(self.pods))
                labels = self.pods[name]["metadata"]["labels"]
                labels["controller-revision-hash"] = self.chance.choice(sorted(self.names))
            case _:
                self.nodes(0.5)

    def nodes(self, how_likely: float) -> None:
        for name in sorted(self.pods):
            if self.chance.random() > how_likely:
                continue
            if "deletionTimestamp" in self.pods[name]["metadata"]:
                del self.pods[name]
            elif self.pods[name]["status"]["phase"] != "Failed":
                self.become(name, "Running")

    def become(self, name: str, phase: str) -> None:
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        self.pods[name] = {**self.pods[name], "status": {"phase": phase, "conditions": [ready]}}

    def is_settled(self, name: str) -> bool:
        pod = self.pods.get(name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return False
        return bool(pod["status"]["phase"] == "Running")

    def wanted(self) -> list[str]:
        return [f"db-{self.start + index}" for index in range(self.replicas)]

    def turn(self, stop_after: int = 99) -> int:
        """One plan, or a prefix of it; each step is looked at before it is done."""
        steps = plan_stateful_set(self.view(), NOW)
        unsettled = [name for name in self.wanted() if not self.is_settled(name)]
        taken: list[str] = []
        for step in steps[:stop_after]:
            match step:
                case CreateClaim(claim, _):
                    assert name_of(claim) not in self.claims
                    self.claims[name_of(claim)] = claim
                case CreatePod(pod):
                    self.create(pod)
                case DeletePod(pod):
                    name = name_of(pod)
                    if name in self.wanted() and self.is_settled(name):
                        assert revision_of(pod) != self.update
                        assert self.wanted().index(name) >= self.partition
                        taken.append(name)
                    metadata = {**pod["metadata"], "deletionTimestamp": format_time(NOW)}
                    self.pods[name] = {**self.pods[name], "metadata": metadata}
                case LabelPod(pod):
                    self.pods[name_of(pod)] = pod
                case OwnClaim():
                    raise AssertionError("nothing owns claims here")
        if self.most is None:
            assert len(taken) <= 1
            above = [name for name in unsettled if taken and self.above(name, taken[0])]
            assert not [name for name in above if self.is_new(name)]
        else:
            assert not taken or len(taken) + len(unsettled) <= self.most
        status = plan_status(self.view(), set(), NOW) or self.status
        for part in ("currentReplicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
            assert 0 <= status.get(part, 0) <= status["replicas"] == len(self.pods)
        self.status = status
        self.current = status["currentRevision"]
        return len(steps)

    def create(self, pod: Object) -> None:
        name, wanted = name_of(pod), self.wanted()
        assert name not in self.pods, "one pod for each number"
        assert {f"data-{name}"} <= self.claims.keys()
        if self.policy == "OrderedReady":
            below = wanted[: wanted.index(name)]
            assert all(map(self.is_settled, below)), "in order"
        self.made += 1
        metadata = {**pod["metadata"], "uid": f"uid-{self.made}"}
        self.pods[name] = {**pod, "metadata": metadata, "status": {"phase": "Pending"}}

    def above(self, one: str, other: str) -> bool:
        return self.wanted().index(one) > self.wanted().index(other)

    def is_new(self, name: str) -> bool:
        return name in self.pods and revision_of(self.pods[name]) == self.update


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["OrderedReady", "Parallel"]),
    st.sampled_from([None, 1, 2, 3]),
)
def test_whatever_happens_the_rules_hold_and_it_ends_well(
    seed: int, policy: str, most: int | None
) -> None:
    world = World(seed, policy, most)
    for _ in range(30):
        world.disturb()
        world.turn(world.chance.randrange(1, 4))
    for _ in range(60):
        world.nodes(1.0)
        world.turn()
    world.nodes(1.0)
    assert world.turn() == 0
    assert sorted(world.pods) == sorted(world.wanted())
    staged = world.wanted()[world.partition :]
    assert {revision_of(world.pods[name]) for name in staged} <= {world.update}
    if len(staged) == world.replicas:
        assert world.status["currentRevision"] == world.status["updateRevision"]
