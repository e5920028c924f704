"""Posts about one pod, and takes in the answers: each is the pod as the API server has it now.

Only the pod's worker posts, so there is one writer and the latest wins. ConnectionError and
StatusError go to the caller, who tries again. Events about the pod go along with what is said of
its resize: one request and one commit instead of several, and they tell no more than happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.outside import Outside
from livesize.api.dialects import strip_dialects
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of, version_of
from livesize.api.reasons import EventReason
from livesize.api.resize_phase import APPLYING, ResizePhase
from livesize.api.resize_state import phase_of

_GONE = (404, 409)


class PodRecord:
    """The newest known state of the pod's object, without derived fields. ``gone``: the API
    server has it no more; ``pod`` is then the last that was seen."""

    def __init__(self, outside: Outside, pod: Object, entry: SecuredEntry) -> None:
        self._outside = outside
        self._entry = entry
        self.pod = _stored(pod)
        self.gone = False
        self.changed = asyncio.Event()  # set with every news; who waits for it clears it
        self.on_late_news: Callable[[], None] = _nothing
        self._posts = 0  # under way
        self._own: list[int] = []  # versions that those which are answered have made
        self._brought: list[int] = []  # versions that the watch brought meanwhile

    def vanished(self) -> None:
        """The API server has it no more."""
        self.gone = True
        self.changed.set()

    @property
    def is_let_go(self) -> bool:
        """We have let it go, and others' finalizers keep it."""
        metadata = self.pod["metadata"]
        return metadata.get("deletionGracePeriodSeconds") == 0 and bool(metadata.get("finalizers"))

    def seen(self, pod: Object) -> bool:
        """Take in what the watch brought; True where it is news. The watch often brings what we
        post before the answer does: what comes meanwhile is called news (``on_late_news``) when
        the answer has shown that it was not ours."""
        if not self._take_in(pod):
            return False
        if self._posts:
            self._brought.append(_version(pod))
        return not self._posts

    def _take_in(self, pod: Object) -> bool:
        if uid_of(pod) != uid_of(self.pod) or _version(pod) <= _version(self.pod):
            return False
        self.pod = _stored(pod)
        self.changed.set()
        return True

    async def _answered(self, post: Awaitable[Object], *, makes_two: bool = False) -> None:
        """``makes_two``: the API server makes two versions of it, one right after the other."""
        self._posts += 1
        try:
            answer = await post
            self._own.append(_version(answer))
            if makes_two:
                self._own.append(_version(answer) - 1)
            self._take_in(answer)
        finally:
            self._posts -= 1
            if not self._posts:
                foreign = set(self._brought).difference(self._own)
                self._own, self._brought = [], []
                if foreign:
                    self.on_late_news()

    async def post_resizing(self, body: Object, *told: tuple[EventReason, str]) -> None:
        """``told``: events, reason and message, that are true once the API server has taken it.
        What was promised is on disk before anybody hears of it; raises CheckpointError."""
        await self._entry.durable()
        await self._post(body, told)

    async def post_done(self, body: Object, *told: tuple[EventReason, str]) -> None:
        """The same, but it need not be on disk yet: a node that loses power hears of it from the
        API server, which has it all from here."""
        await self._entry.kept()
        await self._post(body, told)

    async def _post(self, body: Object, told: Sequence[tuple[EventReason, str]]) -> None:
        pod, outside = self.pod, self._outside
        is_done = body["phase"] == ResizePhase.DONE
        makes_two = is_done and phase_of(pod) not in APPLYING  # Accepted is told on the way
        taken = outside.recorder.take_waiting(pod)
        events = taken.events + [outside.compose(pod, *one) for one in told]
        if events:
            body = {**body, "events": events}
        try:
            await self._answered(
                outside.client.post(PODS, name_of(pod), namespace_of(pod), "resizing", body),
                makes_two=makes_two,
            )
        except (ConnectionError, StatusError):
            outside.recorder.put_back(taken)
            raise

    async def patch_status(self, changed: Object) -> None:
        pod = self.pod
        # The uid keeps a late status off a new pod of the same name.
        metadata = {"uid": uid_of(pod)}
        if "conditions" in changed and lookup(pod, "spec", "readinessGates"):
            # Others write conditions too: none that came meanwhile is written over.
            metadata["resourceVersion"] = version_of(pod)
        patch = {"metadata": metadata, "status": changed}
        await self._answered(
            self._outside.client.patch(
                PODS, name_of(pod), patch, namespace=namespace_of(pod), subresource="status"
            )
        )

    async def delete(self) -> None:
        """Let the object go; harmless where it is gone, or has made way for another."""
        pod = self.pod
        try:
            answer = await self._outside.client.delete(
                PODS, name_of(pod), namespace_of(pod), grace_period_seconds=0, uid=uid_of(pod)
            )
            if lookup(answer, "metadata", "uid"):  # the pod, which a finalizer keeps
                self._take_in(answer)
        except StatusError as refusal:
            if refusal.code not in _GONE:
                raise


def _nothing() -> None:
    """Nobody wants to know."""


def _stored(pod: Object) -> Object:
    """Items of a list do not say what they are."""
    return strip_dialects({"kind": PODS.kind, "apiVersion": PODS.api_version, **pod})


def _version(pod: Object) -> int:
    """Versions of one server are numbers; without one (a pod we only remember) it is the oldest."""
    return int(version_of(pod) or 0)
