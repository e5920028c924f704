"""One identity's requests and watches are bounded; others do not notice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.api.errors import StatusError
from livesize.apiserver.auth.identities import node_identity
from livesize.apiserver.http.app import App
from livesize.apiserver.http.limits import Budget, RequestLimits
from livesize.apiserver.http.node_join import JOIN_PATH, RENEW_PATH
from livesize.apiserver.http.responses import json_answer
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


class SlowBody:
    """A request whose body comes when it is told to; what was answered is kept."""

    def __init__(self, rig: Any, path: str, token: str, body: bytes, client: str = "") -> None:
        self.sent: list[Any] = []
        self._come = asyncio.Event()
        self._body = body
        scope = rig._scope("POST", path, {}, {"authorization": f"Bearer {token}"})
        if client:
            scope["client"] = (client, 40000)
        self._task = asyncio.create_task(rig.app(scope, self._receive, self._send))

    async def finish(self) -> int:
        self._come.set()
        await self._task
        status: int = self.sent[0]["status"]
        return status

    async def _receive(self) -> Any:
        await self._come.wait()
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


def refused_at_once(request: SlowBody) -> bool:
    """429 with Retry-After, though its body never came."""
    if not request.sent:
        return False
    start = request.sent[0]
    assert start["status"] == 429
    assert dict(start["headers"])[b"retry-after"] == b"1"
    return True


REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def test_reviews_are_requests_too(rig: Any) -> None:
    bounded(rig, requests=1)
    first = SlowBody(rig, REVIEW, "viewer", b"{}")
    await asyncio.sleep(0)
    second, other = (SlowBody(rig, REVIEW, token, b"{}") for token in ("viewer", "editor"))
    await asyncio.sleep(0)
    assert refused_at_once(second)
    assert not other.sent
    assert (await rig.get(PODS, token="viewer")).status == 429, "the same places"
    assert [await first.finish(), await other.finish()] == [201, 201]
    assert (await rig.request("POST", REVIEW, {}, token="viewer")).status == 201


class SlowJoining:
    """Says who asks, as the real one; whether it lets them in is tested elsewhere."""

    def admit(self, head: Any) -> None:
        assert head.bearer == "join"

    async def join(self, request: Any) -> Any:
        return node_identity("n9"), json_answer({}, 201)

    async def renew(self, identity: Any, request: Any) -> Any:
        return json_answer({}, 201)

    def authority(self) -> Any:
        return json_answer({})


async def test_joins_are_limited_by_address_and_renewals_by_node(rig: Any) -> None:
    bounded(rig, requests=1, joins=2)
    rig.app._joining = SlowJoining()
    join = [SlowBody(rig, JOIN_PATH, "join", b"{}", "10.0.0.1") for _ in range(3)]
    elsewhere = SlowBody(rig, JOIN_PATH, "join", b"{}", "10.0.0.2")
    renewals = [SlowBody(rig, RENEW_PATH, token, b"{}") for token in ("n1", "n1", "n2")]
    await asyncio.sleep(0)
    assert [refused_at_once(one) for one in join] == [False, False, True]
    assert b"10.0.0.1 has 2 joins in flight" in join[2].sent[1]["body"]
    assert not elsewhere.sent
    assert [refused_at_once(one) for one in renewals] == [False, True, False]
    assert b"inflight_requests 5.0" in (await rig.get("/metrics")).body
    for one in (*join[:2], elsewhere, renewals[0], renewals[2]):
        assert await one.finish() == 201
    assert await SlowBody(rig, JOIN_PATH, "join", b"{}", "10.0.0.1").finish() == 201
    assert b"inflight_requests 0.0" in (await rig.get("/metrics")).body


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_body_that_never_comes_gives_its_place_back(
    rig: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("livesize.apiserver.http.requests.BODY_SECONDS", 0.01)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"authorization": "Bearer editor", "content-length": "10"}
    await rig.app(rig._scope(method, PODS, {}, headers), receive, send)
    assert sent[0]["status"] == 408
    assert not rig.app._limits.in_flight()


MAPS = "/api/v1/namespaces/default/configmaps"


class Unread:
    """A GET of a long answer, of which nothing is read until it is told to."""

    def __init__(self, rig: Any, token: str) -> None:
        self.status = 0
        self.size = 0
        self.read = asyncio.Event()
        scope = rig._scope("GET", MAPS, {}, {"authorization": f"Bearer {token}"})
        self.task = asyncio.create_task(rig.app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if self.status == 200:
            await self.read.wait()
        self.size += len(message["body"])


async def large_maps(rig: Any) -> None:
    for name in "ab":
        body = {"metadata": {"name": name}, "data": {"a": "x" * 400_000}}
        assert (await rig.request("POST", MAPS, body)).status == 201


async def test_large_answers_that_are_not_read(rig: Any) -> None:
    bounded(rig, unread_bytes=1_700_000)
    await large_maps(rig)
    editor = [Unread(rig, "editor") for _ in range(3)]
    viewer = Unread(rig, "viewer")
    for _ in range(20):
        await asyncio.sleep(0)
    assert [one.status for one in (*editor, viewer)] == [200, 200, 429, 200]
    for one in (*editor, viewer):
        one.read.set()
        await one.task
    assert editor[0].size > 800_000
    assert not rig.app._limits._unread
    assert not rig.app._limits.in_flight()
    again = Unread(rig, "editor")
    again.read.set()
    await again.task
    assert again.status == 200


async def test_who_never_reads_gives_the_place_back(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.apiserver.http.responses.UNREAD_SECONDS", 0.01)
    await large_maps(rig)
    stuck = Unread(rig, "editor")
    async with asyncio.timeout(5):
        await stuck.task
    assert stuck.size == 0
    assert not rig.app._limits._unread
    assert not rig.app._limits.in_flight()


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
    limits = RequestLimits(Budget(requests=1))
    leave = limits.enter("a", "get")
    with pytest.raises(StatusError, match="a has 1 requests in flight"):
        limits.enter("a", "list")
    leave()
    assert limits.in_flight() == 0
    assert not limits._requests
