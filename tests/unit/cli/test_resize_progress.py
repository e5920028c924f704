"""When `livesize resize --wait` believes that it has happened: Kubernetes-shaped status only."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, evolve, without
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.progress import (
    FollowedProgress,
    ResizeDone,
    ResizeRefused,
    ResizeWaiting,
    progress_of,
)
from livesize.cli.resize.report import change_table, progress_line, verdict_words

APP = ("status", "containerStatuses", 0)
PATCH = ResizePatch("app", {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})


def pod(
    *, actual: str = "2", observed: int = 7, conditions: Any = (), desired: str = "2"
) -> Object:
    def sizes(cpu: str) -> Object:
        return {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu}}

    status = {
        "name": "app",
        "state": {"running": {}},
        "allocatedResources": {"cpu": actual, "memory": "1Gi"},
        "resources": sizes(actual),
    }
    return {
        "metadata": {"name": "db", "generation": 7},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "app", "resources": sizes(desired)}],
        },
        "status": {
            "phase": "Running",
            "observedGeneration": observed,
            "containerStatuses": [status],
            "conditions": list(conditions),
        },
    }


def pending(reason: str, generation: int = 7) -> Object:
    return {
        "type": "PodResizePending",
        "status": "True",
        "reason": reason,
        "message": "why",
        "observedGeneration": generation,
    }


NO_IMAGE = {"reason": "ErrImageNeverPull", "message": "image a is not here; `livesize guest build`"}
IMAGELESS = evolve(pod(actual="1"), (*APP, "state"), {"waiting": NO_IMAGE})
WHY = f"app (ErrImageNeverPull: {NO_IMAGE['message']})"


def with_condition(state: Object, condition: Object) -> Object:
    return evolve(state, ("status", "conditions"), [condition])


def in_progress(reason: str = "", message: str = "") -> Object:
    return {
        "type": "PodResizeInProgress",
        "status": "True",
        "reason": reason,
        "message": message,
    }


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (pod(), ResizeDone()),
        (pod(actual="2000m"), ResizeDone()),
        (pod(actual="1"), ResizeWaiting("InProgress")),
        (pod(observed=6), ResizeWaiting("Requested")),
        (pod(conditions=[in_progress()]), ResizeWaiting("InProgress")),
        (pod(conditions=[in_progress("Error", "busy")]), ResizeWaiting("Error", "busy")),
        (pod(actual="1", conditions=[pending("Deferred")]), ResizeWaiting("Deferred", "why")),
        (pod(actual="1", conditions=[pending("Infeasible")]), ResizeRefused("why")),
        (pod(actual="1", conditions=[pending("Infeasible", 6)]), ResizeWaiting("Requested")),
        (
            pod(desired="3"),
            ResizeRefused(
                "somebody else asked for another size meanwhile; theirs counts now",
                infeasible=False,
            ),
        ),
        (without(pod(), ("status", "observedGeneration")), ResizeDone()),
        (
            without(pod(actual="1"), ("spec", "nodeName")),
            ResizeDone("is on no node yet and will start with this size"),
        ),
        (
            evolve(pod(actual="1"), ("status", "phase"), "Failed"),
            ResizeDone("has ended (Failed); nothing runs that could be resized"),
        ),
        (
            without(pod(), ("status", "containerStatuses")),
            ResizeWaiting("NotRunning", "app (it is to start)"),
        ),
        (
            evolve(pod(), (*APP, "state"), {"waiting": {"reason": "CrashLoopBackOff"}}),
            ResizeWaiting("NotRunning", "app (CrashLoopBackOff)"),
        ),
        (with_condition(IMAGELESS, in_progress()), ResizeWaiting("NotRunning", WHY)),
        (
            with_condition(IMAGELESS, pending("Deferred")),
            ResizeWaiting("Deferred", f"why; nor does it run: {WHY}"),
        ),
        (
            evolve(
                evolve(pod(actual="1"), (*APP, "state"), {"terminated": {"exitCode": 0}}),
                ("spec", "restartPolicy"),
                "OnFailure",
            ),
            ResizeDone(),
        ),
    ],
    ids=[
        "actual is desired",
        "by value, not by text",
        "actual is not yet desired",
        "the node has not seen the generation",
        "a condition says it is in progress",
        "held up",
        "deferred",
        "infeasible",
        "a verdict on an older size does not count",
        "somebody else changed it",
        "an old server without observedGeneration",
        "not scheduled",
        "ended",
        "no status yet",
        "it does not run",
        "it is allocated, and its image is missing",
        "there is no room, and its image is missing",
        "it has ended for good",
    ],
)
def test_judge(state: Object, expected: FollowedProgress) -> None:
    assert progress_of(state, 7, PATCH) == expected


def test_what_was_refused_before_does_not_refuse_the_other_resource() -> None:
    """The node can never have that much CPU; then less memory was asked."""

    def state(allocated: str, actual: str) -> Object:
        size = {"requests": {"cpu": "1", "memory": actual}, "limits": {"cpu": "1"}}
        shown = pod(actual="1", desired="64", conditions=[pending("Infeasible")])
        shown = evolve(shown, ("spec", "containers", 0, "resources", "requests", "memory"), "2Gi")
        shown = evolve(shown, (*APP, "allocatedResources", "memory"), allocated)
        return evolve(shown, (*APP, "resources"), size)

    patch = ResizePatch("app", {"requests": {"memory": "2Gi"}})
    assert progress_of(state("1Gi", "1Gi"), 7, patch) == ResizeRefused("why")
    assert progress_of(state("2Gi", "1Gi"), 7, patch) == ResizeWaiting("InProgress")
    done = progress_of(state("2Gi", "2Gi"), 7, patch)
    assert done == ResizeDone("has this size; what was asked before is still refused: why")
    both = ResizePatch("app", {"requests": {"memory": "2Gi", "cpu": "64"}})
    assert progress_of(state("2Gi", "2Gi"), 7, both) == ResizeRefused("why")


def test_held_memory_is_said_in_one_line() -> None:
    held = "app holds 100Mi, 36Mi to free: x: memory limit (1) below current usage (2), 1 bytes"
    waiting = progress_of(pod(actual="1", conditions=[in_progress("Error", held)]), 7, PATCH)
    assert waiting == ResizeWaiting("Held", "app holds 100Mi, 36Mi to free")
    assert isinstance(waiting, ResizeWaiting)
    line = "pod/db: waiting for memory to be freed (app holds 100Mi, 36Mi to free)"
    assert progress_line("pod/db", waiting) == line


def test_the_report_shows_each_word_before_and_after() -> None:
    table = change_table("app", pod(actual="1", desired="1"), pod())
    assert table.header == ("", "DESIRED", "ALLOCATED", "ACTUAL")
    assert table.rows == (
        ("app cpu request", "1 → 2", "1 → 2", "1 → 2"),
        ("app cpu limit", "1 → 2", "-", "1 → 2"),
        ("app memory request", "1Gi", "1Gi", "1Gi"),
    )


def test_a_line_of_progress_says_what_holds_it_up() -> None:
    line = progress_line("pod/db", ResizeWaiting("Error", "12 MiB to go"))
    assert line == "pod/db: being applied, but held up (12 MiB to go)"


@pytest.mark.parametrize(
    ("online", "expected"), [("4", ResizeDone()), ("2", ResizeWaiting("InProgress"))]
)
def test_a_virtual_machine_is_done_when_its_own_status_says_so(
    online: str, expected: FollowedProgress
) -> None:
    def sizes(cpu: str) -> Object:
        return {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}

    vm_pod: Object = {
        "metadata": {"name": "vm1", "generation": 7},
        "spec": {"nodeName": "n1", "virtualMachine": {"resources": sizes("4")}},
        "status": {
            "phase": "Running",
            "observedGeneration": 7,
            "virtualMachineStatus": {"state": "Running", "resources": sizes(online)},
        },
    }
    assert progress_of(vm_pod, 7, ResizePatch("vm", sizes("4"), of_vm=True)) == expected


def test_a_size_that_another_replaced_is_not_called_infeasible() -> None:
    assert verdict_words(ResizeRefused("no node is so large")) == "infeasible: no node is so large"
    replaced = progress_of(pod(desired="3"), 7, PATCH)
    assert verdict_words(replaced).startswith("somebody else asked for another size")
