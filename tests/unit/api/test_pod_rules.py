"""Small rules about pods: QoS class, resize policy, hashes, conditions."""

from __future__ import annotations

import pytest

from livesize.api.conditions import find_condition, is_true, set_condition
from livesize.api.hashes import container_hash, container_hash_without_resources
from livesize.api.objects import Object
from livesize.api.qos import qos_class
from livesize.api.reasons import EventReason, EventType, event_type
from livesize.api.resize_policy import (
    ResizeAction,
    action_for,
    normalize_policy_item,
    policy_of,
    strongest,
)
from livesize.api.resources import Amounts, ResourceName, Resources

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
FULL = {"cpu": "1", "memory": "1Gi"}
LIVE, RESTART, RECREATE = ResizeAction


def pod(*containers: Object, init: Object | None = None) -> Object:
    spec: Object = {"containers": [{"name": "c", "resources": one} for one in containers]}
    if init is not None:
        spec["initContainers"] = [{"name": "i", "resources": init}]
    return {"spec": spec}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod({}), "BestEffort", id="nothing asked"),
        pytest.param(pod({"requests": {"cpu": "0"}}), "BestEffort", id="zero asks for nothing"),
        pytest.param(pod({"limits": FULL}), "Guaranteed", id="requests default to limits"),
        pytest.param(
            pod({"limits": FULL, "requests": {"cpu": "1000m", "memory": "1024Mi"}}),
            "Guaranteed",
            id="equal in another spelling",
        ),
        pytest.param(pod({"limits": {"cpu": "1"}}), "Burstable", id="only cpu"),
        pytest.param(pod({"limits": FULL}, {}), "Burstable", id="one container without"),
        pytest.param(
            pod({"limits": FULL, "requests": {"cpu": "500m"}}), "Burstable", id="less than limit"
        ),
        pytest.param(pod({"limits": FULL}, init={}), "Burstable", id="init containers count"),
        pytest.param(pod({"requests": {"x/y": "1"}}), "BestEffort", id="other resources do not"),
    ],
)
def test_qos_class(given: Object, expected: str) -> None:
    assert qos_class(given) == expected


@pytest.mark.parametrize(
    ("container", "cpu", "memory"),
    [
        pytest.param({}, LIVE, LIVE, id="no policy at all: live"),
        pytest.param(
            {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]},
            LIVE,
            RESTART,
            id="today's list",
        ),
        pytest.param(
            {"resizePolicy": [{"name": "cpu", "policy": "RestartContainer"}]},
            RESTART,
            LIVE,
            id="ARK's list",
        ),
        pytest.param(
            {"resources": {"resizePolicy": {"cpu": "LiveResizeable"}}},
            LIVE,
            RECREATE,
            id="IBM's map: what it does not name is RestartOnly",
        ),
        pytest.param(
            {"resources": {"resizePolicy": {"cpu": "ContainerRestartOnly"}}},
            RESTART,
            RECREATE,
            id="IBM's container restart",
        ),
        pytest.param(
            {
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "NotRequired"}],
                "resources": {"resizePolicy": {"cpu": "LiveResizeable"}},
            },
            LIVE,
            LIVE,
            id="the list speaks for what the map leaves out",
        ),
    ],
)
def test_policy(container: Object, cpu: ResizeAction, memory: ResizeAction) -> None:
    assert policy_of(container, CPU) is cpu
    assert policy_of(container, MEMORY) is memory


def test_the_strongest_policy_of_what_changes_wins() -> None:
    container = {"resources": {"resizePolicy": {"cpu": "LiveResizeable", "memory": "RestartOnly"}}}
    before = Resources(Amounts(100, 100), Amounts(200, 200))
    cpu_only = Resources(Amounts(150, 100), Amounts(200, 200))
    both = Resources(Amounts(150, 100), Amounts(200, 300))
    assert action_for(container, before, before) is None
    assert action_for(container, before, cpu_only) is LIVE
    assert action_for(container, before, both) is RECREATE
    assert strongest([None, LIVE, RESTART]) is RESTART
    assert strongest([None]) is None


def test_old_words_of_the_policy_are_answered_in_todays() -> None:
    assert normalize_policy_item({"name": "cpu", "policy": "NoRestart"}) == {
        "resourceName": "cpu",
        "restartPolicy": "NotRequired",
    }


def test_two_spellings_that_contradict_both_stay() -> None:
    item = {"name": "cpu", "resourceName": "memory", "restartPolicy": "NotRequired"}
    assert normalize_policy_item(item) == item


CONTAINER = {"name": "a", "image": "i", "env": [{"name": "x"}], "resources": {"limits": FULL}}


@pytest.mark.parametrize(
    ("changed", "whole", "without_resources"),
    [
        pytest.param({"resourcesAllocated": {"cpu": "1"}}, False, False, id="allocated: neither"),
        pytest.param({"resources": {}}, True, False, id="resources: only the whole"),
        pytest.param({"resizePolicy": []}, True, False, id="policy: only the whole"),
        pytest.param({"numa": {"cells": []}}, True, False, id="memory of cells: only the whole"),
        pytest.param({"image": "j"}, True, True, id="image: both"),
        pytest.param({"unknown": 1}, True, True, id="a field we do not know: both"),
    ],
)
def test_hashes(changed: Object, whole: bool, without_resources: bool) -> None:
    other = {**CONTAINER, **changed}
    assert (container_hash(other) != container_hash(CONTAINER)) is whole
    other_hash = container_hash_without_resources(other)
    assert (other_hash != container_hash_without_resources(CONTAINER)) is without_resources


def test_hashes_do_not_depend_on_the_order_of_fields() -> None:
    turned = dict(reversed(CONTAINER.items()))
    assert container_hash(turned) == container_hash(CONTAINER)
    assert len(container_hash(CONTAINER)) == 16


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        pytest.param("a", "1f939456873035ef", id="plain"),
        pytest.param("ä", "3918821278329b4f", id="other letters"),
    ],
)
def test_hashes_stay_what_they_are(name: str, hashed: str) -> None:
    """They stand on containers that run: another hash would start them all again."""
    assert container_hash({**CONTAINER, "name": name}) == hashed


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = set_condition([], {"type": "Ready", "status": "False"}, "t1")
    same = set_condition(first, {"type": "Ready", "status": "False", "reason": "R"}, "t2")
    assert same == [{"type": "Ready", "status": "False", "reason": "R", "lastTransitionTime": "t1"}]
    other = set_condition(same, {"type": "Ready", "status": "True"}, "t3")
    assert other == [{"type": "Ready", "status": "True", "lastTransitionTime": "t3"}]
    both = set_condition(other, {"type": "Mine", "status": "True"}, "t4")
    assert [one["type"] for one in both] == ["Ready", "Mine"]
    assert is_true({"status": {"conditions": both}}, "Mine")
    assert find_condition({}, "Ready") is None


def test_refusals_are_warnings() -> None:
    assert event_type(EventReason.RESIZE_DEFERRED) is EventType.WARNING
    assert event_type(EventReason.RESIZE_COMPLETED) is EventType.NORMAL
