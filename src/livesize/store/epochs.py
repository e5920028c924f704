"""The epoch of a store's history, and how a revision carries it. Pure.

A revision is the epoch times 2**20, plus a count of the epoch's commits. An epoch is the second in
which a history began: that of an empty store, or of a copy that goes its own way. So revisions of
a copy are greater than any its original gave out, as long as a store has no million commits in a
second, and a revision from before the copy is older than all that the copy keeps. They stay below
2**53, which every client can hold in a number.
"""

from __future__ import annotations

EPOCH_BITS = 20
_FIRST_SECOND = 1_735_689_600  # 2025-01-01T00:00:00Z


def epoch_at(now: float) -> int:
    """The epoch of a history that begins at ``now``, in seconds since 1970."""
    return max(1, int(now) - _FIRST_SECOND)


def first_revision(epoch: int) -> int:
    """Where an epoch counts from: the revision of a store that is still empty."""
    return epoch << EPOCH_BITS


def epoch_of_copy(epoch: int, *revisions: int) -> int:
    """At least ``epoch``, and later than every history with one of these newest revisions: a
    clock that was set back must not take the revisions back."""
    return max([epoch, *((revision >> EPOCH_BITS) + 1 for revision in revisions)])
