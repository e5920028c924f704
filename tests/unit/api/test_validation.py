"""What is refused on create and on update, with the field and the sentence."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.defaults import default_object
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, Path, evolve
from livesize.api.validation.objects import validate_create
from unit.api.refusals import create_errors, update_errors

POD: Object = default_object(
    PODS,
    {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "image": "i:1",
                    "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}},
                },
                {"name": "b", "image": "i:1"},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "activeDeadlineSeconds": 100,
        },
    },
)
A: Path = ("spec", "containers", 0)


def refused(path: Path, value: Any) -> list[str]:
    return [error.sentence() for error in create_errors(PODS, evolve(POD, path, value))]


def test_a_good_pod() -> None:
    assert create_errors(PODS, POD) == []


LIVE = {"resourceName": "cpu", "restartPolicy": "NotRequired"}
RESTART = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}


@pytest.mark.parametrize(
    ("path", "value", "start"),
    [
        (("metadata", "name"), "Big_Name", 'metadata.name: Invalid value: "Big_Name": a lowercase'),
        (("metadata", "name"), "x" * 254, "metadata.name: Invalid value"),
        (("metadata", "name"), "a\n", "metadata.name: Invalid value"),
        (("metadata", "name"), None, "metadata.name: Required value: name or generateName"),
        (("metadata", "namespace"), "a.b", "metadata.namespace: Invalid value"),
        (("metadata", "labels"), {"a/b/c": "x"}, "metadata.labels: Invalid value"),
        (("metadata", "labels"), {"a": "-x"}, "metadata.labels: Invalid value"),
        (("metadata", "labels"), {"a": 1}, "metadata.labels[a]: Invalid value: 1: must be a str"),
        (("metadata", "annotations"), {"a": "x" * 2**18}, "metadata.annotations: Too long"),
        (("metadata", "ownerReferences"), [{"name": "x"}], "metadata.ownerReferences[0].apiV"),
        (("spec", "containers"), [], "spec.containers: Required value"),
        (("spec", "containers"), {}, "spec.containers: Invalid value: null: must be a list"),
        (("spec", "containers", 1, "name"), "a", 'spec.containers[1].name: Duplicate value: "a"'),
        ((*A, "name"), "", "spec.containers[0].name: Required value"),
        ((*A, "name"), 5, "spec.containers[0].name: Invalid value: 5: must be a string"),
        ((*A, "image"), None, "spec.containers[0].image: Required value"),
        ((*A, "image"), " i", "spec.containers[0].image: Invalid value"),
        ((*A, "imagePullPolicy"), "x", "spec.containers[0].imagePullPolicy: Unsupported value"),
        ((*A, "env"), [{"name": "a=b"}], "spec.containers[0].env[0].name: Invalid value"),
        ((*A, "ports"), [{"containerPort": 0}], "spec.containers[0].ports[0].containerPort: Inv"),
        (
            ("spec", "restartPolicy"),
            "Sometimes",
            (
                'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always",'
                ' "OnFailure", "Never"'
            ),
        ),
        (("spec", "terminationGracePeriodSeconds"), -1, "spec.terminationGracePeriodSeconds: Inv"),
        (("spec", "activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds: Invalid value: 0"),
        (("spec", "resources"), {"limits": {"cpu": "1"}}, "spec.resources: Forbidden: pod-level"),
        (("spec", "volumes"), [{"name": "v"}, {"name": "v"}], "spec.volumes[1].name: Duplicate"),
        (
            ("spec", "volumes"),
            [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}],
            "spec.volumes[0]: Forbidden: may not specify more than 1 volume type",
        ),
        (
            ("spec", "volumes"),
            [{"name": "v", "hostPath": {"path": "../x"}}],
            "spec.volumes[0].hostPath.path: Invalid value",
        ),
        (
            ("spec", "volumes"),
            [{"name": "v", "emptyDir": {"sizeLimit": "much"}}],
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value",
        ),
        (
            ("spec", "volumes"),
            [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../k"}]}}],
            "spec.volumes[0].configMap.items[0].path: Invalid value",
        ),
        (
            ("spec", "volumes"),
            [{"name": "v", "configMap": {"items": [{"key": 5}]}}],
            "spec.volumes[0].configMap.items[0].key: Invalid value: 5: must be a string",
        ),
        (
            ("spec", "initContainers"),
            [{"name": "i", "image": "i", "restartPolicy": "Sometimes"}],
            (
                'spec.initContainers[0].restartPolicy: Unsupported value: "Sometimes": supported'
                ' values: "Always", "Never", "OnFailure"'
            ),
        ),
        (
            (*A, "restartPolicyRules"),
            [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            (
                "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when"
                " restart rules are used"
            ),
        ),
        (
            ("spec", "initContainers"),
            [{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}}],
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init",
        ),
        ((*A, "livenessProbe"), {}, "spec.containers[0].livenessProbe: Required value: must spec"),
        (
            (*A, "livenessProbe"),
            {"tcpSocket": {"port": 70000}},
            "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 70000",
        ),
        (
            (*A, "startupProbe"),
            {"exec": {"command": ["x"]}, "successThreshold": 2},
            "spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            (*A, "lifecycle"),
            {"preStop": {"exec": {}}},
            "spec.containers[0].lifecycle.preStop.exec.command: Required value",
        ),
        (
            (*A, "volumeMounts"),
            [{"name": "v", "mountPath": "/v"}],
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            (*A, "resources", "requests", "cpu"),
            "2",
            (
                'spec.containers[0].resources.requests: Invalid value: "2": must be less than'
                " or equal to cpu limit of 1"
            ),
        ),
        (
            (*A, "resources", "requests", "cpu"),
            "-1",
            (
                'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be'
                " greater than or equal to 0"
            ),
        ),
        (
            (*A, "resources", "requests", "cpu"),
            "much",
            'spec.containers[0].resources.requests[cpu]: Invalid value: "much": quantities must',
        ),
        (
            (*A, "resources", "limits", "memory"),
            "1e30",
            'spec.containers[0].resources.limits[memory]: Invalid value: "1e30": must be less',
        ),
        (
            (*A, "resources", "requests", "cpu"),
            {},
            "spec.containers[0].resources.requests[cpu]: Invalid value: null: quantities must",
        ),
        (
            (*A, "resourcesAllocated"),
            {"cpu": "1"},
            "spec.containers[0].resourcesAllocated: Invalid value",
        ),
        ((*A, "resizePolicy"), [LIVE, RESTART], "spec.containers[0].resizePolicy: Duplicate value"),
        (
            (*A, "resizePolicy"),
            [{**LIVE, "resourceName": "gpu"}],
            (
                'spec.containers[0].resizePolicy: Unsupported value: "gpu": supported values:'
                ' "cpu", "memory"'
            ),
        ),
        ((*A, "resizePolicy"), [{}], "spec.containers[0].resizePolicy: Required value"),
        (
            (*A, "resizePolicy"),
            [{**LIVE, "policy": "RestartContainer"}],
            "spec.containers[0].resizePolicy[0].policy: Invalid value",
        ),
        (
            (*A, "resources", "resizePolicy"),
            {"cpu": "Perhaps"},
            "spec.containers[0].resources.resizePolicy[cpu]: Unsupported value",
        ),
    ],
)
def test_refused_on_create(path: Path, value: Any, start: str) -> None:
    errors = refused(path, value)
    assert errors
    assert errors[0].startswith(start)


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([RULE], None),
        (
            [{**RULE, "action": "RestartAllContainers"}],
            '[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"',
        ),
        (
            [RULE, {**RULE, "exitCodes": {"operator": "Equals"}}],
            '[1].exitCodes.operator: Unsupported value: "Equals": supported values: "In", "NotIn"',
        ),
        ([{"action": "Restart"}], "[0].exitCodes: Required value: must be specified"),
        ([RULE] * 21, ": Too many: 21: must have at most 20 items"),
        (
            [{**RULE, "exitCodes": {"operator": "In", "values": [1] * 256}}],
            "[0].exitCodes.values: Too many: 256: must have at most 255 items",
        ),
    ],
    ids=["fine", "action", "operator", "no exit codes", "too many rules", "too many codes"],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_restart_rules(kind: str, policy: str, rules: list[Object], sentence: str | None) -> None:
    name = "app" if kind == "containers" else "first"
    own = {"name": name, "image": "i", "restartPolicy": policy, "restartPolicyRules": rules}
    errors = refused(("spec", kind), [own])
    where = f"spec.{kind}[0].restartPolicyRules"
    assert errors == ([] if sentence is None else [f"{where}{sentence}"])


def test_all_errors_come_at_once() -> None:
    bad = evolve(evolve(POD, (*A, "image"), None), ("spec", "restartPolicy"), "x")
    assert len(create_errors(PODS, bad)) == 2


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        pytest.param(
            "resizePolicy",
            [RESTART],
            'spec.containers[0].resizePolicy: Invalid value: "RestartContainer": must be'
            " 'NotRequired' when pod `restartPolicy` is 'Never'",
            id="today's list",
        ),
        pytest.param(
            "resources",
            {"resizePolicy": {"cpu": "ContainerRestartOnly", "memory": "LiveResizeable"}},
            'spec.containers[0].resources.resizePolicy[cpu]: Invalid value: "ContainerRestartOnly":'
            " must be 'LiveResizeable' when pod `restartPolicy` is 'Never'",
            id="IBM's map",
        ),
        pytest.param(
            "resources",
            {"resizePolicy": {"cpu": "RestartOnly", "memory": "LiveResizeable"}},
            'spec.containers[0].resources.resizePolicy[cpu]: Invalid value: "RestartOnly":'
            " must be 'LiveResizeable' when pod `restartPolicy` is 'Never'",
            id="a restart of the pod",
        ),
        pytest.param(
            "resources",
            {"resizePolicy": {"cpu": "LiveResizeable"}},
            "spec.containers[0].resources.resizePolicy[memory]: Required value: must be"
            " 'LiveResizeable' when pod `restartPolicy` is 'Never'; what the map does not name is"
            " RestartOnly",
            id="what the map does not name",
        ),
        pytest.param("resizePolicy", [LIVE], None, id="live is fine"),
        pytest.param(
            "resources",
            {"resizePolicy": {"cpu": "LiveResizeable", "memory": "LiveResizeable"}},
            None,
            id="so is IBM's",
        ),
    ],
)
def test_never_refuses_a_restart_of_the_container(
    field: str, value: Any, sentence: str | None
) -> None:
    never = evolve(evolve(POD, ("spec", "restartPolicy"), "Never"), (*A, field), value)
    errors = [error.sentence() for error in create_errors(PODS, never)]
    assert errors == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(
    ("listed", "mapped", "refused"),
    [
        (LIVE, "LiveResizeable", False),
        (LIVE, "RestartOnly", True),
        (RESTART, "ContainerRestartOnly", False),
        (RESTART, "LiveResizeable", True),
    ],
)
def test_two_dialects_that_contradict_are_refused(
    listed: Object, mapped: str, refused: bool
) -> None:
    pod = evolve(POD, (*A, "resizePolicy"), [listed])
    pod = evolve(pod, (*A, "resources", "resizePolicy"), {"cpu": mapped})
    assert bool(create_errors(PODS, pod)) is refused


def test_allocated_may_say_the_requests_in_any_spelling() -> None:
    assert refused((*A, "resourcesAllocated"), {"cpu": "0.5"}) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param((*A, "image"), "i:2", id="image"),
        pytest.param((*A, "resources", "limits", "cpu"), "2", id="resources"),
        pytest.param((*A, "resizePolicy"), [RESTART], id="resizePolicy"),
        pytest.param(("metadata", "labels"), {"a": "b"}, id="labels"),
        pytest.param(("metadata", "uid"), None, id="absent uid"),
        pytest.param(("spec", "activeDeadlineSeconds"), 50, id="an earlier deadline"),
        pytest.param(
            ("spec", "tolerations"),
            [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}, {"operator": "Exists"}],
            id="more tolerations",
        ),
    ],
)
def test_may_change(path: Path, value: Any) -> None:
    assert update_errors(PODS, evolve(POD, path, value), POD) == []


@pytest.mark.parametrize(
    ("path", "value", "start"),
    [
        (("metadata", "name"), "q", 'metadata.name: Invalid value: "q": field is immutable'),
        (("metadata", "namespace"), "q", "metadata.namespace: Invalid value"),
        (("metadata", "uid"), "q", "metadata.uid: Invalid value"),
        ((*A, "command"), ["x"], "spec: Forbidden: pod updates may not change fields other than"),
        ((*A, "imagePullPolicy"), "Never", "spec: Forbidden: pod updates may not change"),
        (("spec", "nodeName"), "n", "spec: Forbidden: pod updates may not change"),
        (("spec", "containers"), POD["spec"]["containers"][:1], "spec: Forbidden: pod updates"),
        (("spec", "terminationGracePeriodSeconds"), 5, "spec: Forbidden: pod updates may not"),
        (("spec", "activeDeadlineSeconds"), 200, "spec.activeDeadlineSeconds: Invalid value: 200"),
        (("spec", "activeDeadlineSeconds"), None, "spec.activeDeadlineSeconds: Invalid value"),
        (("spec", "tolerations"), [], "spec.tolerations: Forbidden: existing toleration"),
        (("spec",), [], "spec: Invalid value: null: must be an object"),
        (
            (*A, "resources"),
            {"requests": {"cpu": "500m"}},
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
    ],
)
def test_may_not_change(path: Path, value: Any, start: str) -> None:
    errors = update_errors(PODS, evolve(POD, path, value), POD)
    assert errors
    assert errors[0].sentence().startswith(start)


def test_the_refusal_names_what_was_changed() -> None:
    (error,) = update_errors(PODS, evolve(POD, ("spec", "hostNetwork"), True), POD)
    assert error.sentence().endswith("changed: spec.hostNetwork")


def test_derived_fields_are_no_change() -> None:
    served = evolve(POD, ("spec", "resizeRequest"), {"requestStatus": "None"})
    served = evolve(served, (*A, "resourcesAllocated"), {"cpu": "500m"})
    assert update_errors(PODS, served, POD) == []


def test_the_smaller_kinds() -> None:
    def fields(resource: Any, obj: Object) -> list[str]:
        return [error.field for error in validate_create(resource, obj)]

    name = {"name": "x"}
    assert fields(NAMESPACES, {"metadata": {"name": "a.b"}}) == ["metadata.name"]
    assert fields(NAMESPACES, {"metadata": {**name, "namespace": "d"}}) == ["metadata.namespace"]
    assert fields(NODES, {"metadata": {"name": "a.b"}}) == []
    node = {
        "metadata": name,
        "spec": {"taints": [{"key": "k", "effect": "Hate"}]},
        "status": {"capacity": {"cpu": "-1"}},
    }
    assert fields(NODES, node) == ["status.capacity[cpu]", "spec.taints[0].effect"]
    lease = {"metadata": {**name, "namespace": "d"}, "spec": {"leaseDurationSeconds": 0}}
    assert fields(LEASES, lease) == ["spec.leaseDurationSeconds"]


@pytest.mark.parametrize("address", ["fe80::1%eth0", "fe80::1%x\n192.0.2.1 other", "", "host"])
def test_an_alias_has_a_plain_address(address: str) -> None:
    """It becomes a line of /etc/hosts."""
    aliases = [{"ip": address, "hostnames": ["db"]}]
    (error,) = refused(("spec", "hostAliases"), aliases)
    assert error.startswith("spec.hostAliases[0].ip: Invalid value")
