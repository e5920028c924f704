"""The rows of facts D.4: what a real kube-apiserver answers to a resize."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.defaults import default_object
from livesize.api.errors import FieldError, StatusError, invalid
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, Path, evolve, without
from livesize.api.patch.merge import merge_patch
from livesize.api.validation.resize import prepare_resize, validate_pod_resize
from livesize.api.write_options import PLAIN_WRITE
from livesize.apiserver.request_body import take_object
from unit.api.refusals import shape_errors

SIZE = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def container(name: str, **fields: Any) -> Object:
    return {"name": name, "image": "i:1", "resources": SIZE, **fields}


OLD: Object = default_object(
    PODS,
    {
        "metadata": {"name": "u", "namespace": "d", "labels": {"x": "y"}},
        "spec": {"containers": [container("a"), container("b")], "nodeName": "n"},
    },
)
A: Path = ("spec", "containers", 0)


def resize(incoming: Object, old: Object = OLD) -> tuple[Object, list[FieldError]]:
    """What the API server does: check types, keep what may change, fill in, judge."""
    if errors := shape_errors(PODS, incoming):
        return incoming, errors
    new = default_object(PODS, prepare_resize(old, incoming))
    return new, validate_pod_resize(new, old)


def refused(incoming: Object, old: Object = OLD) -> list[str]:
    _, errors = resize(incoming, old)
    return [error.sentence() for error in errors]


def resources(**sides: Object) -> Object:
    """OLD with container a's resources patched; null removes."""
    return evolve(OLD, (*A, "resources"), merge_patch(SIZE, sides))


def test_image_and_labels_also_in_the_body_are_silently_unchanged() -> None:
    incoming = resources(limits={"cpu": "2"})
    incoming = evolve(incoming, (*A, "image"), "evil")
    incoming = evolve(incoming, ("metadata", "labels"), {"other": "label"})
    incoming = evolve(incoming, ("spec", "nodeName"), "elsewhere")
    new, errors = resize(incoming)
    assert errors == []
    assert new == evolve(OLD, (*A, "resources", "limits", "cpu"), "2")


def test_removing_a_request_whose_limit_exists_defaults_it_to_the_limit() -> None:
    new, errors = resize(resources(requests={"cpu": None}))
    assert errors == []
    assert new["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


REQUEST_ONLY = evolve(OLD, (*A, "resources"), {"requests": {"cpu": "500m"}})


def test_removing_a_request_with_no_limit() -> None:
    assert refused(evolve(REQUEST_ONLY, (*A, "resources"), {}), REQUEST_ONLY) == [
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"
    ]


def test_removing_a_limit() -> None:
    assert refused(resources(limits={"cpu": None})) == [
        "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"
    ]


def test_request_above_limit() -> None:
    assert refused(resources(requests={"cpu": "2"})) == [
        (
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or'
            " equal to cpu limit of 1"
        )
    ]


def test_errors_accumulate_in_one_list() -> None:
    _, errors = resize(resources(requests={"cpu": "2", "memory": "1Gi"}))
    message = invalid("Pod", "", "u", errors).message
    assert message == (
        'Pod "u" is invalid: [spec.containers[0].resources.requests: Invalid value: "2": must be'
        " less than or equal to cpu limit of 1, spec.containers[0].resources.requests: Invalid"
        ' value: "1Gi": must be less than or equal to memory limit of 128Mi]'
    )


def test_qos_change_prints_the_old_class() -> None:
    guaranteed = {"cpu": "1", "memory": "128Mi"}
    new = evolve(OLD, (*A, "resources", "requests"), guaranteed)
    new = evolve(new, ("spec", "containers", 1, "resources", "requests"), guaranteed)
    assert refused(new) == [
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
    ]


def test_negative() -> None:
    assert refused(resources(requests={"cpu": "-1"})) == [
        (
            'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater'
            " than or equal to 0"
        )
    ]


def test_bad_quantity_in_a_patch() -> None:
    patched = resources(requests={"cpu": "abc"})
    with pytest.raises(StatusError) as refusal:
        take_object(PODS, patched, PLAIN_WRITE, patch={"spec": patched["spec"]})
    status = refusal.value
    assert (status.code, status.causes[0].field) == (422, "patch")
    assert status.message.startswith(' "" is invalid: patch: Invalid value: "map[')
    assert status.message.endswith(
        "quantities must match the regular expression"
        " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    assert take_object(PODS, OLD, PLAIN_WRITE, patch={}) == OLD


CONTAINERS = OLD["spec"]["containers"]


@pytest.mark.parametrize(
    ("containers", "sentences"),
    [
        pytest.param(
            CONTAINERS[:1],
            ["spec.containers: Forbidden: containers may not be added or removed on resize"],
            id="removed",
        ),
        pytest.param(
            [*CONTAINERS, container("c")],
            ["spec.containers: Forbidden: containers may not be added or removed on resize"],
            id="added",
        ),
        pytest.param(
            CONTAINERS[::-1],
            [
                f"spec.containers[{index}].name: Forbidden: containers may not be renamed or"
                " reordered on resize"
                for index in (0, 1)
            ],
            id="reordered",
        ),
        pytest.param(
            [container("z"), CONTAINERS[1]],
            [
                (
                    "spec.containers[0].name: Forbidden: containers may not be renamed or reordered"
                    " on resize"
                )
            ],
            id="renamed",
        ),
        pytest.param("x", ['spec.containers: Invalid value: "x": must be a list'], id="not a list"),
    ],
)
def test_the_set_of_containers_is_fixed(containers: Any, sentences: list[str]) -> None:
    assert refused(evolve(OLD, ("spec", "containers"), containers)) == sentences


@pytest.mark.parametrize(
    ("old", "sentence"),
    [
        pytest.param(
            evolve(OLD, ("spec", "os"), {"name": "windows"}),
            "[]: Forbidden: windows pods cannot be resized",
            id="windows pod",
        ),
        pytest.param(
            evolve(OLD, ("metadata", "annotations"), {"kubernetes.io/config.mirror": "h"}),
            "[]: Forbidden: static pods cannot be resized",
            id="mirror pod",
        ),
        pytest.param(
            evolve(OLD, ("status", "containerStatuses"), [{"name": "a", "state": {"running": {}}}]),
            "spec: Forbidden: Pod running on node without support for resize",
            id="running container without status.resources",
        ),
    ],
)
def test_pods_that_cannot_be_resized(old: Object, sentence: str) -> None:
    bigger = evolve(old, (*A, "resources", "limits", "cpu"), "2")
    assert refused(bigger, old) == [sentence]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("requests", "nvidia.com/gpu"), "1", id="an extended resource"),
        pytest.param(("limits", "hugepages-2Mi"), "2Mi", id="hugepages"),
        pytest.param(("claims",), [{"name": "c"}], id="claims"),
    ],
)
def test_only_cpu_and_memory_are_mutable(path: Path, value: Any) -> None:
    changed = evolve(OLD, (*A, "resources", *path), value)
    assert refused(changed) == ["spec: Forbidden: only cpu and memory resources are mutable"]


def with_init(**fields: Any) -> Object:
    return default_object(PODS, evolve(OLD, ("spec", "initContainers"), [container("i", **fields)]))


INIT: Path = ("spec", "initContainers", 0)


@pytest.mark.parametrize("policy", [{}, {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("resources", "limits", "cpu"), "2", id="resources"),
        pytest.param(
            ("resizePolicy",),
            [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            id="the policy",
        ),
    ],
)
def test_an_init_container_that_is_no_sidecar_cannot_be_resized(
    policy: Object, path: Path, value: Any
) -> None:
    old = with_init(**policy)
    assert refused(evolve(old, (*INIT, *path), value), old) == [
        "spec.initContainers[0]: Forbidden: resources for non-sidecar init containers are immutable"
    ]


def test_a_sidecar_is_resized_like_a_container() -> None:
    old = with_init(restartPolicy="Always")
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    asked = evolve(old, (*INIT, "resources", "limits", "cpu"), "2")
    new, errors = resize(evolve(asked, (*INIT, "resizePolicy"), policy), old)
    assert errors == []
    assert new["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] == "2"
    assert new["spec"]["initContainers"][0]["resizePolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        pytest.param(
            {"limits": {"cpu": None}},
            "spec.initContainers[0].resources.limits: Forbidden: resource limits cannot be removed",
            id="removed",
        ),
        pytest.param(
            {"requests": {"cpu": "2"}},
            "spec.initContainers[0].resources.requests: Invalid value: "
            '"2": must be less than or equal to cpu limit of 1',
            id="a request above its limit",
        ),
        pytest.param(
            {"limits": {"ephemeral-storage": "1Gi"}},
            "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar"
            " containers are mutable",
            id="another resource",
        ),
    ],
)
def test_what_a_sidecar_is_refused(resources: Object, sentence: str) -> None:
    old = with_init(restartPolicy="Always")
    asked = evolve(old, (*INIT, "resources"), merge_patch(SIZE, resources))
    assert refused(asked, old) == [sentence]


def test_the_policy_may_change_and_is_checked() -> None:
    policy = [{"name": "cpu", "policy": "RestartContainer"}]
    new, errors = resize(evolve(OLD, (*A, "resizePolicy"), policy))
    assert errors == []
    assert new["spec"]["containers"][0]["resizePolicy"] == [
        {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
    ]
    assert refused(evolve(OLD, (*A, "resizePolicy"), [{"name": "cpu", "policy": "x"}]))
    older_client = without(
        evolve(new, (*A, "resources", "limits", "cpu"), "2"), (*A, "resizePolicy")
    )
    kept, _ = resize(older_client, new)
    assert kept["spec"]["containers"][0]["resizePolicy"]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(without(OLD, ("spec", "nodeName")), id="unscheduled pod to 200 CPUs"),
        pytest.param(evolve(OLD, ("status", "phase"), "Succeeded"), id="terminal pod"),
        pytest.param(OLD, id="over the node's allocatable: stored, and judged later"),
    ],
)
def test_accepted(old: Object) -> None:
    assert refused(evolve(old, (*A, "resources", "limits", "cpu"), "200"), old) == []


def test_another_spelling_is_no_change() -> None:
    new, errors = resize(resources(requests={"cpu": "0.5"}))
    assert errors == []
    assert new == OLD


@pytest.mark.parametrize("body", [{}, {"spec": []}, {"spec": {"containers": [5]}}, {"spec": {}}])
def test_bodies_of_the_wrong_shape_do_not_crash(body: Object) -> None:
    resize(body)
