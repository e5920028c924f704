"""The agent's record of one pod's object: the newest known state, and all posts about the pod.

Only the pod's worker posts, so there is one writer and the latest wins. Each answer is the pod as
the API server has it now, and updates the record. ConnectionError and StatusError go to the
worker, which tries again. Events about the pod go along with the reports of its resize: one
request and one commit instead of several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.dependencies import AgentDependencies
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

    def __init__(self, dependencies: AgentDependencies, pod: Object, entry: SecuredEntry) -> None:
        self._dependencies = dependencies
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
    def is_leaving(self) -> bool:
        """It is being deleted, or gone."""
        return self.gone or bool(lookup(self.pod, "metadata", "deletionTimestamp"))

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

    async def post_resizing(self, body: Object, *events: tuple[EventReason, str]) -> None:
        """``events``: reason and message of each, true once the API server has taken ``body``.
        Waits until the promise is on disk; raises CheckpointError."""
        await self._entry.durable()
        await self._post(body, events)

    async def post_done(self, body: Object, *events: tuple[EventReason, str]) -> None:
        """The same, but the promise need not be on disk yet: a node that loses its power recalls it
        from the API server, which has all of it from this post."""
        await self._entry.reportable_as_done()
        await self._post(body, events)

    async def _post(self, body: Object, reasons: Sequence[tuple[EventReason, str]]) -> None:
        pod, dependencies = self.pod, self._dependencies
        is_done = body["phase"] == ResizePhase.DONE
        # The API server writes Accepted first, where it has not been reported.
        makes_two = is_done and phase_of(pod) not in APPLYING
        taken = dependencies.recorder.take_waiting(pod)
        events = taken.events + [dependencies.compose_event(pod, *one) for one in reasons]
        if events:
            body = {**body, "events": events}
        try:
            await self._answered(
                dependencies.client.post(PODS, name_of(pod), namespace_of(pod), "resizing", body),
                makes_two=makes_two,
            )
        except (ConnectionError, StatusError):
            dependencies.recorder.put_back(taken)
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
            self._dependencies.client.patch(
                PODS, name_of(pod), patch, namespace=namespace_of(pod), subresource="status"
            )
        )

    async def delete(self) -> None:
        """Let the object go; harmless where it is gone, or has made way for another."""
        pod = self.pod
        try:
            answer = await self._dependencies.client.delete(
                PODS, name_of(pod), namespace_of(pod), grace_period_seconds=0, uid=uid_of(pod)
            )
            if lookup(answer, "metadata", "uid"):  # the pod, which a finalizer keeps
                self._take_in(answer)
        except StatusError as refusal:
            if refusal.code not in _GONE:
                raise


def _nothing() -> None:
    """No callback was set."""


def _stored(pod: Object) -> Object:
    """Items of a list do not say what they are."""
    return strip_dialects({"kind": PODS.kind, "apiVersion": PODS.api_version, **pod})


def _version(pod: Object) -> int:
    """Versions of one server are numbers; without one (a pod we only remember) it is the oldest."""
    return int(version_of(pod) or 0)
