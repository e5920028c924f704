"""Each word sent as a method became a series of the metrics, also from people not let in."""

from __future__ import annotations

from typing import Any


async def test_words_nobody_knows_are_one_series(rig: Any) -> None:
    for number in range(50):
        answer = await rig.request(f"BREW{number}", "/api/v1/pods", token="")
        assert answer.status == 401
    text = (await rig.get("/metrics")).body
    assert b"BREW" not in text
    assert b'code="401",resource="",subresource="",verb="other"} 50.0' in text
