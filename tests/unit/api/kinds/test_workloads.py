"""The kinds of apps/v1: what is filled in, what is refused and in which words, what is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import models  # type: ignore[import-untyped]

from livesize.api.defaults import default_object
from livesize.api.errors import FieldError
from livesize.api.kinds.controller_revision import CONTROLLER_REVISIONS
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, evolve, without
from livesize.api.quota import recount
from livesize.api.schema.fields import Schema
from livesize.api.table import table_for
from livesize.api.workload_resize import POLICIES
from livesize.api.workloads import selects
from unit.api.kinds.workload_objects import LABELS, claim_template, template, workload
from unit.api.refusals import create_errors, update_errors

WORKLOADS = (STATEFUL_SETS, DEPLOYMENTS, REPLICA_SETS)
STRATEGY = ("spec", "updateStrategy")
TEMPLATE = ("spec", "template")
REVISION: Object = {"metadata": {"name": "r", "namespace": "default"}, "data": {}, "revision": 1}


def filled(resource: Resource, **fields: Any) -> Object:
    return default_object(resource, workload(resource, **fields))


def sentences(errors: list[FieldError]) -> str:
    return "; ".join(error.sentence() for error in errors)


def refusals(resource: Resource, **fields: Any) -> str:
    return sentences(create_errors(resource, workload(resource, **fields)))


def messages(schema: Schema) -> dict[str, Schema]:
    """This one and those below it, by name."""
    found = {schema.name: schema}
    for field in schema.own_fields.values():
        if isinstance(field.type, Schema) and field.type.package == schema.package:
            found |= messages(field.type)
    return found


@pytest.mark.parametrize("resource", [*WORKLOADS, CONTROLLER_REVISIONS])
def test_their_fields_are_those_of_kubernetes(resource: Resource) -> None:
    for name, schema in messages(kind_of(resource).schema).items():
        known = set(getattr(models, f"V1{name}").attribute_map.values())
        assert set(schema.fields) == known, name
        numbers = [one.number for one in schema.own_fields.values() if one.number]
        assert len(numbers) == len(set(numbers)), name


def test_defaults_of_a_deployment() -> None:
    spec = filled(DEPLOYMENTS)["spec"]
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    del spec["template"], spec["selector"]
    assert spec == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    }


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"type": "Recreate"}, {"type": "Recreate"}),
        (
            {"rollingUpdate": {"maxSurge": 0}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
        ),
    ],
)
def test_a_strategy_that_is_given_is_completed(given: Object, stored: Object) -> None:
    assert filled(DEPLOYMENTS, strategy=given)["spec"]["strategy"] == stored


def test_defaults_of_a_replica_set() -> None:
    spec = filled(REPLICA_SETS)["spec"]
    assert set(spec) == {"replicas", "selector", "template"}
    assert spec["replicas"] == 1
    assert filled(REPLICA_SETS, replicas=0)["spec"]["replicas"] == 0


def test_defaults_of_a_stateful_set() -> None:
    claims = [claim_template()]
    spec = filled(STATEFUL_SETS, volumeClaimTemplates=claims, ordinals={})["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    del spec["template"], spec["selector"]
    assert spec == {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "ordinals": {"start": 0},
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            }
        ],
    }


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"type": "OnDelete"}, {"type": "OnDelete"}),
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "partition": 0}},
        ),
    ],
)
def test_an_update_strategy_that_is_given_is_completed(given: Object, stored: Object) -> None:
    assert filled(STATEFUL_SETS, updateStrategy=given)["spec"]["updateStrategy"] == stored


@pytest.mark.parametrize("resource", WORKLOADS)
def test_what_is_right_passes_and_is_filled_in_once(resource: Resource) -> None:
    made = filled(resource)
    assert refusals(resource) == ""
    assert default_object(resource, made) == made
    assert update_errors(resource, made, made) == []


WRONG: list[tuple[Object, str]] = [
    ({"selector": None}, "spec.selector: Required value"),
    ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ({"minReadySeconds": -1}, "spec.minReadySeconds: Invalid value: -1"),
    (
        {"selector": {"matchLabels": {"app": "other"}}},
        (
            'spec.template.metadata.labels: Invalid value: {"app": "web"}: `selector` does not'
            " match template `labels`"
        ),
    ),
    (
        {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
        "spec.selector.matchExpressions[0].operator: Unsupported value",
    ),
    ({"template": None}, "spec.template.spec.containers: Required value"),
    (
        {"template": template(restartPolicy="OnFailure")},
        (
            'spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values:'
            ' "Always"'
        ),
    ),
    (
        {"template": template(ephemeralContainers=[{"name": "look"}])},
        (
            "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in"
            " pod template"
        ),
    ),
    (
        {"template": template(containers=[{"image": "busybox:1"}])},
        "spec.template.spec.containers[0].name: Required value",
    ),
    (
        {"template": template(containers=[{"name": f"c{n}", "image": "a"} for n in range(257)])},
        "spec.template.spec.containers: Too many: 257: must have at most 256 items",
    ),
    (
        {"template": template(setHostnameAsFQDN=True)},
        "spec.template.spec.setHostnameAsFQDN: Forbidden",
    ),
]
OF_REPLICAS = (
    {"template": template(activeDeadlineSeconds=9)},
    (
        "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet"
        " is not Supported"
    ),
)
EMPTY = (
    {"selector": {}},
    "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
)


@pytest.mark.parametrize("resource", WORKLOADS)
@pytest.mark.parametrize(("fields", "says"), WRONG)
def test_what_is_wrong_with_any_of_them(resource: Resource, fields: Object, says: str) -> None:
    assert says in refusals(resource, **fields)


@pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICA_SETS])
@pytest.mark.parametrize(("fields", "says"), [OF_REPLICAS, EMPTY])
def test_what_is_wrong_with_replicas(resource: Resource, fields: Object, says: str) -> None:
    assert says in refusals(resource, **fields)


def rolling(missing: Any, surge: Any) -> Object:
    return {"strategy": {"rollingUpdate": {"maxUnavailable": missing, "maxSurge": surge}}}


ROLLING = "spec.strategy.rollingUpdate"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            rolling("0%", 0),
            f'{ROLLING}.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0',
        ),
        (rolling("101%", 0), f'{ROLLING}.maxUnavailable: Invalid value: "101%": must not be'),
        (rolling("101%", 0), "must not be greater than 100%"),
        (rolling(1, "half"), f'{ROLLING}.maxSurge: Invalid value: "half": a valid percent string'),
        (rolling(1, "9" * 5000 + "%"), f"{ROLLING}.maxSurge: Invalid value"),
        (rolling(-1, 1), f"{ROLLING}.maxUnavailable: Invalid value: -1: must be greater than or"),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            f"{ROLLING}: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        ({"strategy": {"type": "Slow"}}, 'supported values: "Recreate", "RollingUpdate"'),
        (
            {"minReadySeconds": 600},
            (
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than"
                " minReadySeconds"
            ),
        ),
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit: Invalid value: -1"),
        ({"progressDeadlineSeconds": -1}, "spec.progressDeadlineSeconds: Invalid value: -1"),
    ],
)
def test_what_is_wrong_with_a_deployment(fields: Object, says: str) -> None:
    assert says in refusals(DEPLOYMENTS, **fields)


def test_more_pods_than_wanted_may_be_any_percentage() -> None:
    assert refusals(DEPLOYMENTS, **rolling(0, "300%")) == ""


UPDATING = "spec.updateStrategy.rollingUpdate"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for stat"),
        (
            {"podManagementPolicy": "Wild"},
            "must be 'OrderedReady' or 'Parallel'",
        ),
        ({"updateStrategy": {"type": "Never"}}, "must be 'RollingUpdate' or 'OnDelete'"),
        (
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
        (
            {"updateStrategy": {"rollingUpdate": {"partition": -1}}},
            f"{UPDATING}.partition: Invalid",
        ),
        (
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%"}}},
            f'{UPDATING}.maxUnavailable: Invalid value: "0%": cannot be 0',
        ),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}, "greater than 100%"),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Burn"}},
            (
                'spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Burn":'
                ' supported values: "Retain", "Delete"'
            ),
        ),
        ({"ordinals": {"start": -1}}, "spec.ordinals.start: Invalid value: -1"),
        ({"serviceName": "A_B"}, "spec.serviceName: Invalid value"),
        (
            {"template": template(activeDeadlineSeconds=9)},
            "activeDeadlineSeconds in StatefulSet is not Supported",
        ),
        (
            {"volumeClaimTemplates": [claim_template(accessModes=[])]},
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value",
        ),
        (
            {"volumeClaimTemplates": [claim_template("A")]},
            "spec.volumeClaimTemplates[0].metadata.name: Invalid value",
        ),
        (
            {"volumeClaimTemplates": [claim_template(), claim_template()]},
            'spec.volumeClaimTemplates[1].metadata.name: Duplicate value: "data"',
        ),
    ],
)
def test_what_is_wrong_with_a_stateful_set(fields: Object, says: str) -> None:
    assert says in refusals(STATEFUL_SETS, **fields)


def test_containers_of_a_stateful_set_mount_its_claims() -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    mounting = template(containers=[{"name": "a", "image": "b", "volumeMounts": mounts}])
    missing = refusals(STATEFUL_SETS, template=mounting)
    assert 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"' in missing
    claims = [claim_template()]
    assert refusals(STATEFUL_SETS, template=mounting, volumeClaimTemplates=claims) == ""
    # A claim stands for the volume of the same name.
    mounting["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    assert refusals(STATEFUL_SETS, template=mounting, volumeClaimTemplates=claims) == ""


@pytest.mark.parametrize(
    ("resource", "length", "says"),
    [
        (STATEFUL_SETS, 52, ""),
        (STATEFUL_SETS, 53, "must be no more than 52 characters"),
        (STATEFUL_SETS, 64, "must be no more than 63 characters"),
        (DEPLOYMENTS, 64, ""),
        (REPLICA_SETS, 254, "must be no more than 253 characters"),
    ],
)
def test_names_that_fit(resource: Resource, length: int, says: str) -> None:
    found = sentences(create_errors(resource, workload(resource, "a" * length)))
    assert found == "" if not says else says in found


FORBIDDEN = (
    "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals',"
    " 'template', 'updateStrategy', 'revisionHistoryLimit',"
    " 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"serviceName": "db"}, FORBIDDEN),
        ({"podManagementPolicy": "Parallel"}, FORBIDDEN),
        ({"volumeClaimTemplates": [claim_template()]}, FORBIDDEN),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, FORBIDDEN),
        (
            {
                "replicas": 3,
                "ordinals": {"start": 1},
                "template": template(terminationGracePeriodSeconds=1),
                "updateStrategy": {"type": "OnDelete"},
                "revisionHistoryLimit": 1,
                "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
                "minReadySeconds": 1,
            },
            "",
        ),
    ],
)
def test_what_of_a_stateful_set_never_changes(fields: Object, says: str) -> None:
    new, old = filled(STATEFUL_SETS, **fields), filled(STATEFUL_SETS)
    assert sentences(update_errors(STATEFUL_SETS, new, old)) == says


@pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICA_SETS])
def test_a_selector_never_changes(resource: Resource) -> None:
    other = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    errors = update_errors(resource, filled(resource, selector=other), filled(resource))
    assert [(one.field, one.detail) for one in errors] == [("spec.selector", "field is immutable")]


@pytest.mark.parametrize("resource", WORKLOADS)
def test_an_update_looks_only_at_what_it_changes(resource: Resource) -> None:
    """What an older version stored does not keep anybody from scaling a set away, or from removing
    its finalizer."""
    old = evolve(filled(resource), (*TEMPLATE, "spec", "restartPolicy"), "Never")
    new = evolve(old, ("metadata", "finalizers"), [])
    assert update_errors(resource, new, old) == []
    scaled = evolve(old, ("spec", "replicas"), 2)
    assert "spec.template.spec.restartPolicy" in sentences(update_errors(resource, scaled, old))


@pytest.mark.parametrize(
    ("resource", "status", "says"),
    [
        (STATEFUL_SETS, {"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}, ""),
        (STATEFUL_SETS, {"replicas": -1}, "status.replicas: Invalid value: -1"),
        (
            STATEFUL_SETS,
            {"replicas": 1, "currentReplicas": 2},
            "status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
        (
            DEPLOYMENTS,
            {"replicas": 2, "availableReplicas": 1},
            "status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas",
        ),
        (DEPLOYMENTS, {"unavailableReplicas": -2}, "status.unavailableReplicas: Invalid value: -2"),
        (DEPLOYMENTS, {"collisionCount": 1}, "status.collisionCount: Invalid value: 1: cannot be"),
        (
            REPLICA_SETS,
            {"fullyLabeledReplicas": 1},
            "status.fullyLabeledReplicas: Invalid value: 1",
        ),
    ],
)
def test_a_status_that_cannot_be(resource: Resource, status: Object, says: str) -> None:
    old = {
        **filled(resource),
        "status": {"collisionCount": 2} if status.get("collisionCount") else {},
    }
    found = sentences(update_errors(resource, {**old, "status": status}, old))
    assert found == "" if not says else says in found


ANNOTATIONS = [
    ("resizeAction", "InPlaceResizePreferred", ""),
    ("resizeAction", "LiveResizePreferred", ""),
    ("resizeAction", "Restart", ""),
    ("resizeAction", "Now", 'metadata.annotations[resizeAction]: Unsupported value: "Now"'),
    ("livesize.dev/resize-deadline", "1h30m", ""),
    (
        "livesize.dev/resize-deadline",
        "soon",
        (
            'metadata.annotations[livesize.dev/resize-deadline]: Invalid value: "soon": must be a'
            " duration such as 30s, 5m or 1h30m"
        ),
    ),
    ("livesize.dev/on-deadline", "Panic", "metadata.annotations[livesize.dev/on-deadline]: Unsup"),
    (POLICIES, '{"app": {"cpu": "LiveResizeable", "memory": "RestartOnly"}}', ""),
    (POLICIES, "{}", ""),
    (POLICIES, '"\ud800"', "must be JSON that names containers, resources and"),
    (POLICIES, "RestartOnly", f"metadata.annotations[{POLICIES}]: Invalid value: "),
    (POLICIES, '{"app": "RestartOnly"}', "must be JSON that names containers, resources and"),
    (POLICIES, '{"app": {"cpu": 1}}', "must be JSON that names containers, resources and"),
    (POLICIES, "[" * 100_000, "must be JSON that names containers, resources and"),
    (
        POLICIES,
        '{"other": {"cpu": "RestartOnly"}}',
        (
            f'metadata.annotations[{POLICIES}][other]: Not found: "other": the template has no'
            " container of this name"
        ),
    ),
    (
        POLICIES,
        '{"app": {"cpu": "Maybe"}}',
        (
            f'metadata.annotations[{POLICIES}][app][cpu]: Unsupported value: "Maybe":'
            ' supported values: "LiveResizeable", "ContainerRestartOnly", "RestartOnly"'
        ),
    ),
    (POLICIES, '{"app": {"disk": "RestartOnly"}}', "[app][disk]: Unsupported value"),
]


@pytest.mark.parametrize("where", [("metadata",), (*TEMPLATE, "metadata")])
@pytest.mark.parametrize(("name", "value", "says"), ANNOTATIONS)
def test_what_is_said_of_resizes(where: tuple[str, ...], name: str, value: str, says: str) -> None:
    said = evolve(workload(STATEFUL_SETS), (*where, "annotations"), {name: value})
    found = sentences(create_errors(STATEFUL_SETS, said))
    if says.startswith("metadata"):
        says = ".".join([*where[:-1], says])
    assert found == "" if not says else says in found
    # The same when it comes later, and the spec stays as it is.
    old = default_object(STATEFUL_SETS, workload(STATEFUL_SETS))
    later = sentences(update_errors(STATEFUL_SETS, default_object(STATEFUL_SETS, said), old))
    assert later == "" if not says else says in later


def test_what_is_done_at_a_deadline_is_the_workloads() -> None:
    note = {"livesize.dev/on-deadline": "Evict"}
    made = workload(STATEFUL_SETS)
    own = evolve(made, ("metadata", "annotations"), note)
    assert sentences(create_errors(STATEFUL_SETS, own)) == ""
    of_pods = evolve(made, (*TEMPLATE, "metadata", "annotations"), note)
    assert sentences(create_errors(STATEFUL_SETS, of_pods)) == (
        "spec.template.metadata.annotations[livesize.dev/on-deadline]: Forbidden: its pods would"
        " act on it one by one: say it on the workload"
    )


def with_policies(annotated: str, **container: Any) -> str:
    made = workload(DEPLOYMENTS, template=template(containers=[
        {"name": "app", "image": "busybox:1", **container}
    ]))  # fmt: skip
    note = {POLICIES: json.dumps({"app": {"cpu": annotated}})}
    return sentences(create_errors(DEPLOYMENTS, evolve(made, ("metadata", "annotations"), note)))


def test_policies_of_two_dialects_agree() -> None:
    """IBM's map stays in the template, and is validated as on pods."""
    mapped = {"resizePolicy": {"cpu": "RestartOnly"}}
    assert with_policies("RestartOnly", resources=mapped) == ""
    assert "contradicts resources.resizePolicy of the container" in with_policies(
        "LiveResizeable", resources=mapped
    )
    listed = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    assert with_policies("LiveResizeable", resizePolicy=listed) == ""
    assert "contradicts the container's resizePolicy for cpu" in with_policies(
        "RestartOnly", resizePolicy=listed
    )
    wrong = template(containers=[{"name": "a", "image": "b", "resources": {
        "resizePolicy": {"cpu": "Maybe"}
    }}])  # fmt: skip
    field = "spec.template.spec.containers[0].resources.resizePolicy[cpu]: Unsupported value"
    assert field in refusals(STATEFUL_SETS, template=wrong)
    kept = filled(STATEFUL_SETS, template=template(containers=[
        {"name": "a", "image": "b", "resources": mapped}
    ]))  # fmt: skip
    assert kept["spec"]["template"]["spec"]["containers"][0]["resources"] == mapped


def test_a_template_may_be_of_virtual_machines() -> None:
    machine = {"resources": {"limits": {"cpu": "1", "memory": "512Mi"}}, "kernel": {"image": "k"}}
    vms = {"metadata": {"labels": LABELS}, "spec": {"virtualMachine": machine}}
    made = workload(STATEFUL_SETS, template=vms)
    assert sentences(create_errors(STATEFUL_SETS, made)) == ""
    policy = {POLICIES: '{"vm": {"memory": "RestartOnly"}}'}
    said = evolve(made, ("metadata", "annotations"), policy)
    assert sentences(create_errors(STATEFUL_SETS, said)) == ""
    columns = [column.name for column in kind_of(STATEFUL_SETS).columns]
    cells = table_for(STATEFUL_SETS, [made], now=0.0)["rows"][0]["cells"]
    assert dict(zip(columns, cells, strict=True))["Containers"] == "vm"


def test_a_workload_selects_pods_by_labels() -> None:
    made = workload(DEPLOYMENTS)
    assert selects(made, made["spec"]["template"])
    assert not selects(made, {"metadata": {}})


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        (REVISION, ""),
        (without(REVISION, ("data",)), "data: Required value: data is mandatory"),
        ({**REVISION, "data": "x"}, "data: Invalid value"),
        (
            {**REVISION, "revision": -1},
            "revision: Invalid value: -1: must be greater than or equal",
        ),
    ],
)
def test_revisions(revision: Object, says: str) -> None:
    found = sentences(create_errors(CONTROLLER_REVISIONS, revision))
    assert found == "" if not says else found.startswith(says)


def test_of_a_revision_only_its_place_changes() -> None:
    later = update_errors(CONTROLLER_REVISIONS, {**REVISION, "revision": 7}, REVISION)
    assert later == []
    other = update_errors(CONTROLLER_REVISIONS, {**REVISION, "data": {"a": 1}}, REVISION)
    assert sentences(other) == 'data: Invalid value: {"a": 1}: field is immutable'


OWNED = {"name": "r", "ownerReferences": [
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}
]}  # fmt: skip
COUNTED = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}


@pytest.mark.parametrize(
    ("resource", "obj", "shown", "wide"),
    [
        (
            DEPLOYMENTS,
            {**workload(DEPLOYMENTS, replicas=4), "status": COUNTED},
            {"Name": "web", "Ready": "2/4", "Up-to-date": 1, "Available": 2, "Age": "<unknown>"},
            {"Containers": "app", "Images": "busybox:1", "Selector": "app=web"},
        ),
        (
            REPLICA_SETS,
            {**workload(REPLICA_SETS, replicas=4), "status": COUNTED},
            {"Name": "web", "Desired": 4, "Current": 3, "Ready": 2, "Age": "<unknown>"},
            {"Containers": "app", "Images": "busybox:1", "Selector": "app=web"},
        ),
        (
            STATEFUL_SETS,
            workload(STATEFUL_SETS, replicas=4),
            {"Name": "web", "Ready": "0/4", "Age": "<unknown>"},
            {"Containers": "app", "Images": "busybox:1"},
        ),
        (
            CONTROLLER_REVISIONS,
            {**REVISION, "metadata": OWNED},
            {"Name": "r", "Controller": "statefulset.apps/web", "Revision": 1, "Age": "<unknown>"},
            {},
        ),
        (
            CONTROLLER_REVISIONS,
            REVISION,
            {"Name": "r", "Controller": "<none>", "Revision": 1, "Age": "<unknown>"},
            {},
        ),
    ],
)
def test_columns(resource: Resource, obj: Object, shown: Object, wide: Object) -> None:
    table = table_for(resource, [obj], now=0.0)
    cells = dict(
        zip(
            [one["name"] for one in table["columnDefinitions"]],
            table["rows"][0]["cells"],
            strict=True,
        )
    )
    assert cells == {**shown, **wide}
    priorities = [one["priority"] for one in table["columnDefinitions"]]
    assert priorities == [0] * len(shown) + [1] * len(wide)


def test_quotas_count_them() -> None:
    hard = {"count/deployments.apps": "5", "count/controllerrevisions.apps": "5"}
    objects = [(DEPLOYMENTS, workload(DEPLOYMENTS)), (CONTROLLER_REVISIONS, REVISION)]
    used = recount({"spec": {"hard": hard}}, objects)["status"]["used"]
    assert used == {"count/deployments.apps": "1", "count/controllerrevisions.apps": "1"}
