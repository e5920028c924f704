"""What one reconcile says about its key."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Done(msgspec.Struct, frozen=True, tag=True):
    """Nothing is left to do until an event brings the key again."""


class Again(msgspec.Struct, frozen=True, tag=True):
    """The key comes again after this time, or sooner with an event."""

    after_seconds: float


class Never(msgspec.Struct, frozen=True, tag=True):
    """The request is wrong for good. The kit logs the reason, and only an event brings the key
    again."""

    reason: str


Result: TypeAlias = Done | Again | Never
