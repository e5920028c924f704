"""What `livesize get pods` says below its table of pods that cannot start."""

from __future__ import annotations

import pytest

from livesize.api.objects import Object
from livesize.cli.get import print_failures


def waiting(name: str, reason: str, message: str) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"containerStatuses": [{"name": "app", "state": state}]},
    }


def test_only_what_could_not_start_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_failures(
        [
            waiting("made", "ContainerCreating", ""),
            waiting("ends", "CrashLoopBackOff", "back-off 10s restarting container app"),
            waiting("lacks", "CreateContainerConfigError", "there is no secret a: create it"),
        ]
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "pod/lacks: app does not start, CreateContainerConfigError: there is no secret a: create it"
    )


def test_of_many_the_first_five_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_failures([waiting(f"p{number}", "ErrImageNeverPull", "why") for number in range(7)])
    *first, last = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in first] == [f"pod/p{number}" for number in range(5)]
    assert last == "and 2 more: `livesize describe pod/NAME` says why"
