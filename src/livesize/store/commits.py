"""Plans one commit on the state it meets: what it changes, or why it cannot. Pure.

Memory and SQLite call the same function, so that they cannot disagree on what a commit means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from livesize.store.interface import (
    Change,
    ChangeKind,
    Check,
    ConflictError,
    Delete,
    Put,
    StoreEntry,
    Write,
)

Commit: TypeAlias = tuple[Change, ...]
"""What one revision changed, in the order of its writes. Never empty once it happened."""

WRITES_LIMIT = 65_536
VALUE_LIMIT_BYTES = 16 * 1024 * 1024


def plan_commit(
    latest: Callable[[str], StoreEntry | None],
    checks: Sequence[Check],
    writes: Sequence[Write],
    revision: int,
) -> Commit:
    """The changes this commit makes at ``revision``; empty if it changes nothing.

    Raises ConflictError where a check does not hold, ValueError where it can never be written.
    """
    require_writable(writes)
    for check in checks:
        entry = latest(check.key)
        if check.mod_revision != (entry.mod_revision if entry is not None else 0):
            raise ConflictError(check.key)
    return tuple(_changes(latest, writes, revision))


def plan_two_commits(
    latest: Callable[[str], StoreEntry | None],
    checks: Sequence[Check],
    first: Sequence[Write],
    second: Sequence[Write],
    revision: int,
) -> tuple[Commit, Commit]:
    """The changes of ``first`` at ``revision`` and of ``second`` at the next, on top of it."""
    require_writable(second)
    before = plan_commit(latest, checks, first, revision)
    written = {change.entry.key: change for change in before}

    def latest_after(key: str) -> StoreEntry | None:
        change = written.get(key)
        if change is None:
            return latest(key)
        return change.entry if change.kind is ChangeKind.PUT else None

    after = plan_commit(latest_after, (), second, revision + 1)
    if not before or not after:
        raise ValueError("of two commits in a row each has to write something")
    return before, after


def require_past(revision: int, newest: int) -> None:
    if revision > newest:
        raise ValueError(f"revision {revision} has not happened yet; the newest is {newest}")


def _changes(
    latest: Callable[[str], StoreEntry | None], writes: Sequence[Write], revision: int
) -> Iterable[Change]:
    for write in writes:
        previous = latest(write.key)
        match write:
            case Put():
                created = previous.create_revision if previous is not None else revision
                entry = StoreEntry(write.key, write.value, created, revision)
                yield Change(ChangeKind.PUT, revision, entry, previous)
            case Delete():
                if previous is not None:
                    yield Change(ChangeKind.DELETE, revision, previous, previous)


def require_writable(writes: Sequence[Write]) -> None:
    """Raises ValueError where it can never be written."""
    if len(writes) > WRITES_LIMIT:
        raise ValueError(f"a commit of {len(writes)} writes is over the limit of {WRITES_LIMIT}")
    if len(writes) > 1 and len({write.key for write in writes}) < len(writes):
        raise ValueError("a commit may write each key only once")
    for write in writes:
        _require_key(write.key)
        if isinstance(write, Put) and len(write.value) > VALUE_LIMIT_BYTES:
            raise ValueError(
                f"the value of {write.key} has {len(write.value)} bytes,"
                f" over the limit of {VALUE_LIMIT_BYTES}"
            )


def _require_key(key: str) -> None:
    """Refuse what SQLite or etcd could not keep, before it can spoil a shared transaction."""
    if not key or "\0" in key:
        raise ValueError(f"{key!r} is not a key: it is empty or has a zero character")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError as failure:
            raise ValueError(f"{key!r} is not a key: it is not Unicode text") from failure
