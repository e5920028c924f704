"""What the watch brings while a post is under way: our own change wakes nobody, others' do."""

from __future__ import annotations

from typing import Any, cast

import pytest

from livesize.agent.pods.pod_record import PodRecord
from livesize.api.errors import StatusError
from livesize.api.objects import Object


def pod(version: int) -> Object:
    return {"metadata": {"uid": "u", "name": "db", "resourceVersion": str(version)}, "spec": {}}


class Scene:
    """``meanwhile``: versions that the watch brings before the answer comes."""

    def __init__(self, answer: Object | Exception, *meanwhile: int) -> None:
        self.client = self
        self.answer = answer
        self.meanwhile = meanwhile
        self.woken = 0
        self.record = PodRecord(cast("Any", self), pod(1), cast("Any", None))
        self.record.on_late_news = self.wake

    def wake(self) -> None:
        self.woken += 1

    async def patch(self, *_: object, **__: object) -> Object:
        for version in self.meanwhile:
            assert not self.record.seen(pod(version)), "not known yet whose it is"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("meanwhile", "woken", "newest"),
    [
        pytest.param((), 0, "2", id="the answer comes first"),
        pytest.param((2,), 0, "2", id="the watch brings our own change first"),
        pytest.param((2, 3), 1, "3", id="and somebody else's after it"),
        pytest.param((3,), 1, "3", id="or without it"),
    ],
)
async def test_only_what_others_changed_is_news(
    meanwhile: tuple[int, ...], woken: int, newest: str
) -> None:
    scene = Scene(pod(2), *meanwhile)
    await scene.record.patch_status({})
    assert scene.woken == woken
    assert scene.record.pod["metadata"]["resourceVersion"] == newest
    assert scene.record.seen(pod(9)), "with no post under way it is news at once"


async def test_done_that_was_never_accepted_makes_two_versions_of_ours() -> None:
    scene = Scene(pod(3), 2, 3)
    await scene.record._answered(scene.patch(), makes_two=True)
    assert scene.woken == 0
    scene = Scene(pod(3), 2, 3)
    await scene.record._answered(scene.patch())
    assert scene.woken == 1, "of any other post the one before is somebody else's"


async def test_a_post_that_failed_has_made_no_change() -> None:
    scene = Scene(StatusError(409, "Conflict", "no"), 2)
    with pytest.raises(StatusError):
        await scene.record.patch_status({})
    assert scene.woken == 1
