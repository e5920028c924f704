"""Waiting for a resize survives a server that restarts, forgets, or loses the pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from livesize.api.errors import StatusError, expired, not_found
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import WatchEvent, WatchEventType
from livesize.api.objects import Object, evolve
from livesize.cli.resize.follower import ResizeFollower
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.progress import ResizeDone, ResizeWaiting
from virtual_time import CLOCK, virtual_time

pytestmark = virtual_time

PATCH = ResizePatch("app", {"limits": {"cpu": "2"}})


def pod(actual: str, version: int, uid: str = "u1") -> Object:
    return {
        "metadata": {
            "name": "db",
            "namespace": "default",
            "uid": uid,
            "generation": 2,
            "resourceVersion": str(version),
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "app", "resources": {"limits": {"cpu": "2"}}}],
        },
        "status": {
            "observedGeneration": 2,
            "containerStatuses": [
                {"name": "app", "state": {"running": {}}, "resources": {"limits": {"cpu": actual}}}
            ],
        },
    }


def changed(to: Object) -> WatchEvent:
    return WatchEvent(WatchEventType.MODIFIED, to)


class Script:
    """A client that plays what the test wrote: one list of steps per watch."""

    def __init__(
        self, watches: list[list[WatchEvent | Exception]], gets: list[Object | Exception]
    ) -> None:
        self.watches = watches
        self.gets = gets
        self.versions: list[str] = []
        self.waited_seconds = 0.0

    async def watch(
        self, resource: Any, selection: Any, *, resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        assert selection.fields == "metadata.name=db"
        self.versions.append(resource_version)
        for step in self.watches.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step

    async def get(self, resource: Any, name: str, namespace: str = "") -> Object:
        step = self.gets.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def follow(self) -> tuple[ResizeFollower, list[str]]:
        client: Any = self
        following = ResizeFollower(client, CLOCK, pod("1", 5), PATCH)
        told: list[ResizeWaiting] = []
        began = CLOCK.monotonic()
        async with asyncio.timeout(5):
            await following.run(told.append)
        self.waited_seconds = CLOCK.monotonic() - began
        return following, [waiting.word for waiting in told]


async def test_it_follows_the_watch_from_the_answer_and_tells_each_step_once() -> None:
    script = Script([[changed(pod("1", 6)), changed(pod("1500m", 7)), changed(pod("2", 8))]], [])
    following, told = await script.follow()
    assert following.progress == ResizeDone()
    assert following.pod == pod("2", 8)
    assert (told, script.versions) == (["InProgress"], ["5"])


@pytest.mark.parametrize(
    ("interruption", "seconds"), [(ConnectionError("restarting"), 0.25), (expired("too old"), 0)]
)
async def test_an_interruption_is_bridged_by_looking_again(
    interruption: Exception, seconds: float
) -> None:
    script = Script([[changed(pod("1", 6)), interruption], [changed(pod("2", 9))]], [pod("1", 8)])
    following, _ = await script.follow()
    assert following.progress == ResizeDone()
    assert (script.versions, script.waited_seconds) == (["5", "8"], seconds)


async def test_a_server_that_is_down_for_long_is_waited_for() -> None:
    down = ConnectionError("refused")
    script = Script([[down]], [down, down, pod("2", 8)])
    following, _ = await script.follow()
    assert (following.progress, script.waited_seconds) == (ResizeDone(), 0.75)


@pytest.mark.parametrize(
    "script",
    [
        Script([[WatchEvent(WatchEventType.DELETED, pod("1", 6))]], []),
        Script([[ConnectionError("cut")]], [not_found(PODS, "db")]),
        Script([[ConnectionError("cut")]], [pod("2", 9, uid="u2")]),
    ],
    ids=["seen", "while not looking", "and made again"],
)
async def test_a_pod_that_was_deleted_ends_it(script: Script) -> None:
    with pytest.raises(StatusError) as caught:
        await script.follow()
    assert caught.value.code == 404


async def test_a_change_that_is_there_already_needs_no_watch() -> None:
    client: Any = Script([], [])
    following = ResizeFollower(
        client, CLOCK, evolve(pod("2", 5), ("metadata", "labels"), {}), PATCH
    )
    await following.run(lambda _: None)
    assert following.progress == ResizeDone()
