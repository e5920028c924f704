"""What a change of a workload's template is, who asks for it in place, and what stands on it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, evolve
from livesize.api.resize_policy import ResizeAction
from livesize.api.workload_resize import (
    HELD,
    Hold,
    TemplateChange,
    asks_in_place,
    format_sizes,
    held,
    hold_of,
    previous_sizes,
    recreates,
    strongest_policy,
    template_change,
)

CONTAINER = ("spec", "containers", 0)


def template(**container: Any) -> Object:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
    app = {"name": "app", "image": "busybox:1", "resources": resources, **container}
    return {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [app]}}


def workload(pods: Object, **annotations: str) -> Object:
    metadata = {"name": "db", "uid": "u1", "generation": 3, "annotations": annotations}
    return {"kind": "StatefulSet", "metadata": metadata, "spec": {"template": pods}}


def sized(pods: Object, side: str, name: str, amount: str) -> Object:
    return evolve(pods, (*CONTAINER, "resources", side, name), amount)


def with_map(pods: Object, **policies: str) -> Object:
    return evolve(pods, (*CONTAINER, "resources", "resizePolicy"), policies)


def annotated(pods: Object, name: str, value: str) -> Object:
    return evolve(pods, ("metadata", "annotations"), {name: value})


SIDECAR: Object = {"name": "proxy", "restartPolicy": "Always", "image": "p"}
STARTER: Object = {"name": "first", "image": "p"}
BIGGER: Object = {"resources": {"limits": {"cpu": "2"}}}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (template(), template(), TemplateChange.NONE),
        (template(), sized(template(), "limits", "cpu", "1000m"), TemplateChange.NONE),
        (template(), sized(template(), "limits", "cpu", "2"), TemplateChange.RESIZE),
        (template(), sized(template(), "requests", "memory", "1Gi"), TemplateChange.RESIZE),
        (template(), sized(template(), "limits", "nvidia.com/gpu", "1"), TemplateChange.ROLLOUT),
        (template(), template(image="busybox:2"), TemplateChange.ROLLOUT),
        (template(), with_map(template(), cpu="LiveResizeable"), TemplateChange.POLICY),
        (template(), annotated(template(), "resizeAction", "InPlaceResize"), TemplateChange.POLICY),
        (
            template(),
            annotated(template(), "kubectl.kubernetes.io/restartedAt", "now"),
            TemplateChange.ROLLOUT,
        ),
        (
            template(),
            evolve(template(), ("metadata", "labels", "pod-template-hash"), "5f"),
            TemplateChange.NONE,
        ),
        (
            evolve(template(), ("spec", "initContainers"), [SIDECAR]),
            evolve(template(), ("spec", "initContainers"), [SIDECAR | BIGGER]),
            TemplateChange.RESIZE,
        ),
        (
            evolve(template(), ("spec", "initContainers"), [STARTER]),
            evolve(template(), ("spec", "initContainers"), [STARTER | BIGGER]),
            TemplateChange.ROLLOUT,
        ),
        (
            {"spec": {"virtualMachine": {"image": "debian", "resources": {}}}},
            {"spec": {"virtualMachine": {"image": "debian", **BIGGER}}},
            TemplateChange.RESIZE,
        ),
        (
            template(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
            template(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
            TemplateChange.POLICY,
        ),
    ],
)
def test_what_a_template_change_is(before: Object, after: Object, change: TemplateChange) -> None:
    assert template_change(before, after) is change


RESTARTED = annotated(template(), "resizeAction", "Restart")
NOTED = '{"app":{"cpu":"LiveResizeable"}}'


@pytest.mark.parametrize(
    ("asking", "asks"),
    [
        (workload(template()), False),
        (workload(template(), resizeAction="InPlaceResize"), True),
        (workload(template(), resizeAction="LiveResizePreferred"), True),
        (workload(template(), resizeAction="Restart"), False),
        (workload(with_map(template(), cpu="LiveResizeable")), True),
        (workload(with_map(template(), cpu="LiveResizeable"), resizeAction="Restart"), False),
        (workload(RESTARTED, resizeAction="InPlaceResize"), False),
        (workload(template(), **{"livesize.dev/resize-policy": NOTED}), True),
        (workload(annotated(template(), "livesize.dev/resize-policy", NOTED)), True),
        (workload(template(), **{"livesize.dev/resize-policy": "no JSON"}), False),
    ],
)
def test_who_asks_for_a_resize_in_place(asking: Object, asks: bool) -> None:
    assert asks_in_place(asking) is asks


@pytest.mark.parametrize(
    ("asking", "policy"),
    [
        (workload(sized(template(), "limits", "cpu", "2")), ResizeAction.LIVE),
        (workload(template()), None),
        (
            workload(with_map(sized(template(), "limits", "cpu", "2"), cpu="LiveResizeable")),
            ResizeAction.LIVE,
        ),
        (
            workload(
                with_map(sized(template(), "requests", "memory", "1Gi"), cpu="LiveResizeable")
            ),
            ResizeAction.RESTART_POD,
        ),
        (
            workload(
                sized(template(), "requests", "memory", "1Gi"),
                **{"livesize.dev/resize-policy": NOTED},
            ),
            ResizeAction.RESTART_POD,
        ),
        (
            workload(
                sized(template(), "limits", "cpu", "2"),
                **{"livesize.dev/resize-policy": '{"app":{"cpu":"ContainerRestartOnly"}}'},
            ),
            ResizeAction.RESTART_CONTAINER,
        ),
        (
            workload(
                sized(template(), "limits", "cpu", "2"),
                **{"livesize.dev/resize-policy": '{"other":{"cpu":"RestartOnly"}}'},
            ),
            ResizeAction.LIVE,
        ),
    ],
)
def test_the_strongest_policy_of_what_changes(asking: Object, policy: ResizeAction | None) -> None:
    assert strongest_policy(asking, template()) is policy
    assert recreates(asking, template()) is (policy is ResizeAction.RESTART_POD)


def test_the_action_restart_recreates_whatever_the_policy_says() -> None:
    live = with_map(sized(template(), "limits", "cpu", "2"), cpu="LiveResizeable")
    assert recreates(workload(live, resizeAction="Restart"), template())


def test_a_hold_counts_on_the_object_that_it_names() -> None:
    hold = Hold("u1", 3, partition=5, strategy={"type": "RollingUpdate"})
    seen = held(workload(template()), hold)
    assert hold_of(seen) == hold
    assert hold_of(evolve(seen, ("metadata", "uid"), "u2")) is None
    assert hold_of(evolve(seen, ("metadata", "generation"), 2)) is None
    assert hold_of(workload(template(), **{HELD: "{}"})) is None
    assert hold_of(workload(template())) is None


def test_sizes_before_are_read_as_they_were_written() -> None:
    text = format_sizes(template())
    noted = workload(template(), **{"livesize.dev/previous": text})
    sizes = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
    assert previous_sizes(noted) == {"app": sizes}
    assert previous_sizes(workload(template())) is None
