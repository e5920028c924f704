"""kubectl debug asked for a subresource that is not served and fell over the answer: it looks into
the details of a 404 without asking whether there are any."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.conftest import Rig


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PATCH", "/api/v1/namespaces/default/pods/web/ephemeralcontainers", 404),
        ("GET", "/apis/unknown.io/v1/things", 404),
        ("POST", "/api/v1/namespaces/default/pods/web/resize", 405),
    ],
)
async def test_details_are_always_there(rig: Rig, method: str, path: str, code: int) -> None:
    await rig.add_pod("web")
    answer: Any = await rig.request(method, path, {})
    assert (answer.status, answer.json["details"]) == (code, {})
