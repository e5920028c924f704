"""Which containers run without a control group: another process removed it, or moved them out.

A runtime may remove the group of what has ended, and hear of the end a moment later. So only what
still runs after that moment is lost.
"""

from __future__ import annotations

from livesize.agent.observation import PodSnapshot, has_lost_group
from livesize.machinery.clock import Clock
from livesize.runtime.interface import ContainerView

LOST_SECONDS = 0.6
"""Longer than containerd takes to say that a container has ended, and why."""


class LostGroups:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}  # by the container's id

    def is_lost(self, view: ContainerView, snapshot: PodSnapshot) -> bool:
        if not has_lost_group(view, snapshot):
            self._since.pop(view.id, None)
            return False
        now = self._clock.monotonic()
        return now - self._since.setdefault(view.id, now) >= LOST_SECONDS

    def wait_seconds(self, snapshot: PodSnapshot) -> float:
        """Until the next one that has no group counts as lost; infinity: all have theirs."""
        views = snapshot.containers.values()
        missing = {view.id for view in views if has_lost_group(view, snapshot)}
        self._since = {one: since for one, since in self._since.items() if one in missing}
        first = min(self._since.values(), default=float("inf"))
        return max(0.0, first + LOST_SECONDS - self._clock.monotonic())
