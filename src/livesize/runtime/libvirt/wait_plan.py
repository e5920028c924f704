"""Decides what to do next while a caller waits for a VM: look, pause, or return. Pure.

A domain's memory moves without a word for up to a second, so a wait looks again, less and less
often. To look takes the domain's time: one whose guest speaks up by itself is looked at when the
guest has said what is waited for, or now and then. What the guest said before the wait began is not
relied on. observer.py looks and pauses; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from livesize.api.vm_changes import Unplug, VmBalloon
from livesize.runtime.vm import VmView

FIRST_LOOK_SECONDS = 0.02
LAST_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 0.25


class Look(msgspec.Struct, frozen=True, tag=True):
    """Read the domain, and ask the guest too or keep what it said last."""

    ask_guest: bool


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Until something is heard of the VM, and no longer than this."""

    seconds: float


class Return(msgspec.Struct, frozen=True, tag=True):
    """The wait is over, with the view there is."""


WaitAction: TypeAlias = Look | Pause | Return


class WaitObservation(msgspec.Struct, frozen=True):
    """``view``: the newest, None before the first look. ``said``: how often the guest has spoken,
    or did not answer when it was asked. ``woken``: whether the last pause ended early."""

    now: float
    view: VmView | None
    said: int
    speaks_up: bool
    woken: bool = False


class WaitPlan:
    """One wait, from its beginning to its ``Return``."""

    def __init__(
        self, holds: Callable[[VmView], bool], timeout_seconds: float, first: WaitObservation
    ) -> None:
        self._holds = holds
        self._deadline = first.now + timeout_seconds
        self._said = first.said
        self._polling = GuestPolling(speaks_up=first.speaks_up, now=first.now)
        self._pause_seconds = FIRST_LOOK_SECONDS
        self._looked_at = first.now
        self._last: WaitAction | None = None

    def next_action(self, seen: WaitObservation) -> WaitAction:
        """After the action before it was done, and ``seen`` was seen."""
        self._last = action = self._after(seen)
        return action

    def _after(self, seen: WaitObservation) -> WaitAction:
        match self._last:
            case None if seen.speaks_up and seen.view is not None:
                self._pause_seconds = LAST_LOOK_SECONDS
            case None:
                return Look(ask_guest=not seen.speaks_up)
            case Look():
                self._looked_at = seen.now
            case Pause():
                look = self._after_pause(seen)
                if look is not None:
                    return look
            case Return():
                raise AssertionError("the wait is over")
        return self._judge(seen)

    def _after_pause(self, seen: WaitObservation) -> Look | None:
        assert seen.view is not None
        if not seen.woken:
            self._pause_seconds = min(self._pause_seconds * 1.5, LAST_LOOK_SECONDS)
            settled = is_settled(seen.view)
            return Look(ask_guest=self._polling.is_due(settled=settled, now=seen.now))
        self._polling.spoke(seen.now)
        is_recent = seen.now - self._looked_at < LAST_LOOK_SECONDS
        if is_recent and seen.speaks_up and not may_hold(self._holds, seen.view):
            return None
        return Look(ask_guest=False)

    def _judge(self, seen: WaitObservation) -> WaitAction:
        assert seen.view is not None
        left_seconds = self._deadline - seen.now
        if left_seconds <= 0:
            return Return()
        if not self._holds(seen.view):
            return Pause(min(self._pause_seconds, left_seconds))
        return Return() if seen.said != self._said else Look(ask_guest=True)


class GuestPolling:
    """Decides when a guest is asked during a wait. Asking holds it up: one that speaks up by itself
    is asked when its memory has come to rest, or when it has been quiet for long."""

    def __init__(self, *, speaks_up: bool, now: float) -> None:
        self._speaks_up = speaks_up
        self._quiet_since = now
        self._moved = False

    def spoke(self, now: float) -> None:
        self._quiet_since = now

    def is_due(self, *, settled: bool, now: float) -> bool:
        if not settled:
            self._moved = True
            return False
        came_to_rest, self._moved = self._moved, False
        if self._speaks_up and not came_to_rest and now - self._quiet_since < _QUIET_SECONDS:
            return False
        self._quiet_since = now
        return True


def may_hold(holds: Callable[[VmView], bool], known: VmView) -> bool:
    """By what the guest has said, if the domain has done by now all that it was asked to: else
    there is no use in looking at the domain yet."""
    moved = tuple(
        msgspec.structs.replace(one, current_bytes=one.requested_bytes)
        for one in known.devices
        if one.unplug is not Unplug.PENDING
    )
    balloon = known.balloon and VmBalloon(*(2 * [known.balloon.requested_bytes]))
    return holds(known) or holds(msgspec.structs.replace(known, devices=moved, balloon=balloon))


def is_settled(view: VmView) -> bool:
    return view.plugged_memory_bytes == view.requested_memory_bytes
