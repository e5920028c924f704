"""Watches and lists: where they begin, what they show, how they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.apiserver.http.responses import PIECE_BYTES
from unit.apiserver.conftest import Rig
from virtual_time import virtual_time

PODS = "/api/v1/namespaces/default/pods"
ALL_PODS = "/api/v1/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def kinds(events: list[Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def label(rig: Any, name: str, value: str | None) -> Any:
    patch = {"metadata": {"labels": {"tier": value}}}
    return (await rig.patch(f"{PODS}/{name}", patch)).json


async def test_changes_after_a_version_in_order(rig: Any) -> None:
    made = await rig.add_pod("a")
    await label(rig, "a", "1")
    watch = await rig.watch(PODS, resourceVersion=made["metadata"]["resourceVersion"])
    await rig.add_pod("b")
    await rig.request("DELETE", f"{PODS}/a")
    events = [await watch.next() for _ in range(3)]
    assert kinds(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[-1] == rig.cache.revision
    await watch.hang_up()


@pytest.mark.parametrize("version", ["", "0"])
async def test_without_a_version_the_state_comes_first(rig: Any, version: str) -> None:
    await rig.add_pod("a")
    query = {"resourceVersion": version} if version else {}
    watch = await rig.watch(PODS, **query)
    await rig.add_pod("b")
    assert kinds([await watch.next(), await watch.next()]) == [("ADDED", "a"), ("ADDED", "b")]
    await watch.hang_up()


async def test_initial_events_end_with_a_bookmark(rig: Any) -> None:
    await rig.add_pod("a")
    watch = await rig.watch(
        PODS,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    first, end = await watch.next(), await watch.next()
    assert first["type"] == "ADDED"
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end["object"]["metadata"]["resourceVersion"] == str(rig.cache.revision)
    await watch.hang_up()


async def test_objects_enter_and_leave_a_selection(rig: Any) -> None:
    await rig.add_pod("a")
    version = str(rig.cache.revision)
    watch = await rig.watch(PODS, labelSelector="tier=front", resourceVersion=version)
    await label(rig, "a", "front")
    await label(rig, "a", "back")
    await label(rig, "a", "front")
    await rig.request("DELETE", f"{PODS}/a")
    types = [(await watch.next())["type"] for _ in range(4)]
    assert types == ["ADDED", "DELETED", "ADDED", "DELETED"]
    await watch.hang_up()


async def test_field_selectors_and_namespaces(rig: Any) -> None:
    await rig.add_pod("a", node="n1")
    await rig.add_pod("b")
    for selector, names in (
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName!=n1", ["b"]),
        ("metadata.name=b,status.phase=Pending", ["b"]),
    ):
        items = (await rig.get(ALL_PODS, fieldSelector=selector)).json["items"]
        assert [item["metadata"]["name"] for item in items] == names
    refused = await rig.get(ALL_PODS, fieldSelector="spec.color=red")
    assert refused.status == 400
    assert refused.json["message"] == "field label not supported: spec.color"
    assert (await rig.get(ALL_PODS, labelSelector="a in (")).status == 400
    assert (await rig.get("/api/v1/namespaces/other/pods")).json["items"] == []


async def test_time_is_up_with_a_bookmark_and_a_clean_end(rig: Any) -> None:
    watch = await rig.watch(
        PODS, timeoutSeconds="5", allowWatchBookmarks="True", resourceVersion="1"
    )
    await rig.clock.sleep(4.9)
    assert not watch.ended
    events = await watch.rest()
    assert [event["type"] for event in events] == ["BOOKMARK"]
    assert watch.ended


async def test_the_server_ends_watches_cleanly_when_it_stops(rig: Any) -> None:
    watch = await rig.watch(PODS, resourceVersion="1")
    rig.cache.close_watchers()
    assert await watch.rest() == []
    assert watch.ended
    assert rig.cache.watcher_count() == 0


async def test_a_client_that_hangs_up_leaves_no_watcher(rig: Any) -> None:
    before = rig.cache.watcher_count()
    watch = await rig.watch(PODS)
    assert rig.cache.watcher_count() == before + 1
    await watch.hang_up()
    assert rig.cache.watcher_count() == before


async def test_table_events(rig: Any) -> None:
    await rig.add_pod("a")
    watch = await rig.watch(PODS, accept=TABLE)
    event = await watch.next()
    assert event["object"]["kind"] == "Table"
    row = event["object"]["rows"][0]
    assert row["cells"][0] == "a"
    assert row["object"]["kind"] == "PartialObjectMetadata"
    await watch.hang_up()


async def test_a_version_that_is_too_new_or_no_number(rig: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("livesize.apiserver.objects_cache.AHEAD_TIMEOUT_SECONDS", 0.01)
    answer = await rig.get(PODS, resourceVersion="9999", resourceVersionMatch="NotOlderThan")
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert (await rig.get(PODS, resourceVersion="new")).status == 400


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
    ],
)
async def test_initial_events_need_their_parameters(rig: Any, query: Any) -> None:
    answer = await rig.get(PODS, watch="1", **query)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")


async def test_pages_show_one_moment(rig: Any) -> None:
    for name in "abcde":
        await rig.add_pod(name)
    first = (await rig.get(PODS, limit="2")).json
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    await rig.request("DELETE", f"{PODS}/c")
    await rig.add_pod("cc")
    await label(rig, "d", "late")
    second = (await rig.get(PODS, limit="9", **{"continue": first["metadata"]["continue"]})).json
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d", "e"]
    assert "tier" not in second["items"][1]["metadata"]["labels"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]
    token = first["metadata"]["continue"]
    version = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    assert (await rig.get(PODS, **version, **{"continue": token})).status == 400
    broken = await rig.get(PODS, **{"continue": "!!"})
    assert (broken.status, broken.json["reason"]) == (410, "Expired")


async def test_exact_lists_an_earlier_moment(rig: Any) -> None:
    made = await rig.add_pod("a")
    await rig.add_pod("b")
    answer = await rig.get(
        PODS,
        resourceVersion=made["metadata"]["resourceVersion"],
        resourceVersionMatch="Exact",
    )
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a"]


async def test_tables_of_lists_and_objects(rig: Any) -> None:
    await rig.add_pod("a")
    listed = (await rig.get(PODS, accept=TABLE)).json
    assert listed["apiVersion"] == "meta.k8s.io/v1"
    assert [column["name"] for column in listed["columnDefinitions"]][:3] == [
        "Name", "Ready", "Status",
    ]  # fmt: skip
    beta = TABLE.replace("v=v1", "v=v1beta1")
    assert (await rig.get(PODS, accept=beta)).json["apiVersion"] == "meta.k8s.io/v1beta1"
    whole = (await rig.get(f"{PODS}/a", accept=TABLE, includeObject="Object")).json
    assert whole["rows"][0]["object"]["kind"] == "Pod"
    none = (await rig.get(PODS, accept=TABLE, includeObject="None")).json
    assert "object" not in none["rows"][0]
    assert (await rig.get(PODS, accept=TABLE, includeObject="Half")).status == 400


async def test_a_long_beginning_comes_in_pieces_that_wait_for_the_reader(rig: Any) -> None:
    for number in range(20):
        data = {"metadata": {"name": f"c{number:02}"}, "data": {"a": "x" * 60_000}}
        await rig.request("POST", MAPS, data)
    pieces: list[bytes] = []
    room = asyncio.Semaphore(3)
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await room.acquire()
        pieces.append(message.get("body", b""))

    query = {"watch": "true", "labelSelector": "!x"}
    scope = rig._scope("GET", MAPS, query, {"authorization": "Bearer admin"})
    first = {"type": "http.request", "body": b"", "more_body": False}
    messages = iter([first])

    async def once() -> Any:
        return next(messages, None) or await receive()

    watching = asyncio.create_task(rig.app(scope, once, send))
    async with asyncio.timeout(5):
        while len(pieces) < 3:
            await asyncio.sleep(0)
        assert len(b"".join(pieces)) < 400_000, "no more than one piece is made ahead"
        for _ in range(20):
            room.release()
        while b"".join(pieces).count(b"\n") < 21:  # with the cluster's CA
            await asyncio.sleep(0)
    assert max(map(len, pieces)) < PIECE_BYTES + 70_000
    gone.set()
    await watching


@virtual_time
async def test_a_version_that_is_gone_is_told_in_the_stream() -> None:
    """As Kubernetes does; there are clients that look for it nowhere else."""
    rig = Rig(ring_events=2)
    await rig.start()
    made = await rig.add_pod("a")
    for number in range(4):
        await label(rig, "a", str(number))
    version = made["metadata"]["resourceVersion"]
    answer = await rig.get(PODS, watch="true", resourceVersion=version)
    assert answer.status == 200
    assert (answer.json["type"], answer.json["object"]["code"]) == ("ERROR", 410)
    assert answer.json["object"]["reason"] == "Expired"
    await rig.stop()
