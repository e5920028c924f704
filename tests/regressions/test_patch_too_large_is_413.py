"""A patch with too many operations was answered 400 where its own error says 413."""

from __future__ import annotations

from livesize.api.patch.json_patch import MAXIMUM_OPERATIONS
from unit.apiserver.conftest import Rig


async def test_too_many_operations(rig: Rig) -> None:
    await rig.add_pod()
    operations = [{"op": "test", "path": "/kind", "value": "Pod"}] * (MAXIMUM_OPERATIONS + 1)
    answer = await rig.patch("/api/v1/namespaces/default/pods/web", operations, "json")
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert str(MAXIMUM_OPERATIONS) in answer.json["message"]
