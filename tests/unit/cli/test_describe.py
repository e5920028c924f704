"""What `livesize describe` says of a pod."""

from __future__ import annotations

from livesize.api.objects import Object, evolve
from livesize.cli.describe import resize_lines, size_table, step_table, summary_lines

SIZE: Object = {"cpu": "1", "memory": "64Mi"}
POD: Object = {
    "metadata": {"name": "db", "namespace": "default"},
    "spec": {
        "nodeName": "n1",
        "containers": [
            {
                "name": "app",
                "resources": {"requests": SIZE, "limits": SIZE},
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            },
            {"name": "old", "resources": {"resizePolicy": {"cpu": "LiveResizeable"}}},
            {"name": "side"},
        ],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": "app",
                "state": {"running": {}},
                "allocatedResources": SIZE,
                "resources": {"requests": SIZE, "limits": SIZE},
            }
        ],
        "resizeState": {
            "phase": "Done",
            "generation": 2,
            "requestedBy": "ann",
            "transitionTime": "2026-01-01T00:00:00Z",
            "message": "The machine reports the desired resources.",
            "steps": [{"name": "pod:cpu", "outcome": "Done", "seconds": 0.0004}],
        },
    },
}


def test_the_policy_is_shown_also_where_it_is_the_default() -> None:
    """ARK: NoRestart - the default value. IBM's map: what it does not name is RestartOnly."""
    rows = {row[0]: row[1:] for row in size_table(POD).rows}
    assert rows["app cpu"] == ("1", "1", "1", "NoRestart (default)")
    assert rows["app memory"] == ("64Mi", "64Mi", "64Mi", "RestartContainer")
    assert rows["old cpu"][-1] == "NoRestart"
    assert rows["old memory"][-1] == "RestartOnly"
    assert rows["side cpu"] == ("-", "-", "-", "NoRestart (default)")


def test_what_does_not_run_has_no_actual_size() -> None:
    """On the wire ``resources`` is then what is allocated, as Kubernetes has it."""
    state = ("status", "containerStatuses", 0, "state")
    dead = evolve(POD, state, {"waiting": {"reason": "CrashLoopBackOff"}})
    rows = {row[0]: row[1:] for row in size_table(dead).rows}
    assert rows["app cpu"][:3] == ("1", "1", "-")
    assert rows["app memory"][:3] == ("64Mi", "64Mi", "-")


def test_the_last_resize_is_told_step_by_step() -> None:
    assert summary_lines(POD)[0] == "pod/db in default, on node n1"
    assert resize_lines(POD)[1:] == [
        "Resize Done since 2026-01-01T00:00:00Z, asked by ann at generation 2",
        "The machine reports the desired resources.",
    ]
    assert step_table(POD).rows == (("pod:cpu", "0.4 ms", "Done"),)
    assert resize_lines({"status": {}}) == []
