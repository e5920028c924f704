"""Watches one pod, never polling, until a resize has happened or will not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from livesize.api.errors import StatusError
from livesize.api.kinds.pod_resource import PODS
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, generation_of, name_of, namespace_of, uid_of, version_of
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.progress import (
    FollowedProgress,
    ResizeDone,
    ResizeRefused,
    ResizeWaiting,
    progress_of,
)
from livesize.client.interface import Client
from livesize.machinery.clock import Clock

_AGAIN_SECONDS = 0.25


class ResizeFollower:
    """The newest state seen, also when a time-out ends it."""

    def __init__(self, client: Client, clock: Clock, pod: Object, patch: ResizePatch) -> None:
        self._client = client
        self._clock = clock
        self._patch = patch
        self._generation = generation_of(pod)
        self.pod = pod
        self.progress: FollowedProgress = progress_of(pod, self._generation, patch)

    async def run(
        self,
        tell: Callable[[ResizeWaiting], None],
        until: Callable[[ResizeWaiting], bool] = lambda _: False,
    ) -> None:
        """Return when it is done or refused, or waits for something that ``until`` is content
        with; ``tell`` hears of every step on the way."""
        told: FollowedProgress | None = None
        async for pod in self._states():
            self.pod = pod
            self.progress = progress_of(pod, self._generation, self._patch)
            match self.progress:
                case ResizeDone() | ResizeRefused():
                    return
                case ResizeWaiting():
                    if until(self.progress):
                        return
                    if self.progress != told:
                        tell(self.progress)
                        told = self.progress

    async def _states(self) -> AsyncIterator[Object]:
        yield self.pod
        while True:
            try:
                async for pod in self._changes():
                    yield pod
            except StatusError as refusal:
                if refusal.code != 410:
                    raise
            except ConnectionError:
                await self._clock.sleep(_AGAIN_SECONDS)  # it may only be restarting
            yield await self._look_again()

    async def _changes(self) -> AsyncIterator[Object]:
        selection = Selection(
            namespace=namespace_of(self.pod), fields=f"metadata.name={name_of(self.pod)}"
        )
        stream = self._client.watch(PODS, selection, resource_version=version_of(self.pod))
        async with aclosing(stream):
            async for event in stream:
                if event.type is WatchEventType.DELETED:
                    raise _gone(self.pod)
                if event.type is not WatchEventType.BOOKMARK:
                    yield event.object

    async def _look_again(self) -> Object:
        while True:
            try:
                pod = await self._client.get(PODS, name_of(self.pod), namespace_of(self.pod))
            except ConnectionError:
                await self._clock.sleep(_AGAIN_SECONDS)
            else:
                if uid_of(pod) != uid_of(self.pod):
                    raise _gone(self.pod)
                return pod


def _gone(pod: Object) -> StatusError:
    message = f"pod/{name_of(pod)} was deleted before it was resized"
    return StatusError(404, "NotFound", message)
