"""IBM's annotation resizeAction: what may be said, and what it means."""

from __future__ import annotations

import pytest

from livesize.api.objects import Object
from livesize.api.requested_action import ANNOTATION, RequestedAction, requested_action_of
from livesize.api.validation.pod import validate_pod_spec

FIELD = f"metadata.annotations[{ANNOTATION}]"


def pod(wish: str | None, policy: str = "Always") -> Object:
    metadata: Object = {"name": "db"}
    if wish is not None:
        metadata["annotations"] = {ANNOTATION: wish}
    containers = [{"name": "app", "image": "localhost/db:1"}]
    return {"metadata": metadata, "spec": {"restartPolicy": policy, "containers": containers}}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, None),
        ("Restart", RequestedAction.RESTART),
        ("InPlaceResize", RequestedAction.IN_PLACE),
        ("InPlaceResizePreferred", RequestedAction.IN_PLACE_PREFERRED),
        ("LiveResizePreferred", RequestedAction.IN_PLACE_PREFERRED),
        ("restart", None),
    ],
)
def test_what_is_said_and_meant(said: str | None, meant: RequestedAction | None) -> None:
    assert requested_action_of(pod(said)) is meant


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (pod("Restart"), []),
        (pod("LiveResizePreferred"), []),
        (pod("restart"), [FIELD]),
        (pod(""), [FIELD]),
        (pod("Restart", "Never"), [FIELD]),
        (pod("InPlaceResize", "Never"), []),
    ],
)
def test_what_may_be_said(given: Object, fields: list[str]) -> None:
    assert [error.field for error in validate_pod_spec(given)] == fields
