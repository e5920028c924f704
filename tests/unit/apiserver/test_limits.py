"""One identity's requests and watches are bounded; others do not notice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.api.errors import StatusError
from livesize.apiserver.http.app import App
from livesize.apiserver.http.limits import Budget, Limits
from unit.apiserver.conftest import TokenNames

PODS = "/api/v1/namespaces/default/pods"


def bounded(rig: Any, **budget: int) -> None:
    rig.app = App(
        rig.service,
        TokenNames(),
        rig.clock,
        version="test",
        is_ready=lambda: True,
        budget=Budget(**budget),
    )


async def test_requests_in_flight(rig: Any) -> None:
    bounded(rig, requests=2)
    body = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> Any:
        await body.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = rig._scope("POST", PODS, {}, {"authorization": "Bearer editor"})
    waiting = [asyncio.create_task(rig.app(scope, receive, send)) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await rig.get(PODS, token="editor")
    assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
    assert refused.headers["retry-after"] == "1"
    assert (await rig.get(PODS, token="viewer")).status == 200
    assert b"inflight_requests 2.0" in (await rig.get("/metrics")).body
    body.set()
    await asyncio.gather(*waiting)
    assert (await rig.get(PODS, token="editor")).status == 200, "refused ones gave theirs back"
    assert b"inflight_requests 0.0" in (await rig.get("/metrics")).body


async def test_open_watches(rig: Any) -> None:
    bounded(rig, watches=1)
    first = await rig.watch(PODS, token="viewer")
    refused = await rig.get(PODS, token="viewer", watch="true")
    assert refused.status == 429
    assert (await rig.get(PODS, token="viewer")).status == 200
    other = await rig.watch(PODS, token="editor")
    await first.hang_up()
    again = await rig.watch(PODS, token="viewer")
    assert again.status == 200
    for stream in (other, again):
        await stream.hang_up()


def test_places_are_given_back_and_names_forgotten() -> None:
    limits = Limits(Budget(requests=1))
    leave = limits.enter("a", "get")
    with pytest.raises(StatusError, match="a has 1 requests in flight"):
        limits.enter("a", "list")
    leave()
    assert limits.in_flight() == 0
    assert not limits._requests
