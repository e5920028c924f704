"""Judging a commit: against a model that says the same in three lines of dict."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from livesize.store.commits import plan_commit
from livesize.store.interface import (
    ChangeKind,
    Check,
    ConflictError,
    Delete,
    Put,
    StoreEntry,
    Write,
)

KEYS = st.sampled_from("abcd")
CHECKS = st.lists(st.builds(Check, KEYS, st.integers(0, 8)), max_size=2)
WRITES = st.lists(
    st.one_of(st.builds(Put, KEYS, st.binary(max_size=2)), st.builds(Delete, KEYS)),
    max_size=3,
    unique_by=lambda write: write.key,
)


@given(st.lists(st.tuples(CHECKS, WRITES), max_size=12))
def test_a_commit_does_all_of_it_or_nothing(
    commits: list[tuple[list[Check], list[Write]]],
) -> None:
    entries: dict[str, StoreEntry] = {}
    model: dict[str, tuple[bytes, int]] = {}
    revision = 0
    for checks, writes in commits:
        holds = all(model.get(check.key, (b"", 0))[1] == check.mod_revision for check in checks)
        judged = False
        with contextlib.suppress(ConflictError):
            changes = plan_commit(entries.get, checks, writes, revision + 1)
            judged = True
            revision += bool(changes)
            for change in changes:
                assert change.previous == entries.get(change.entry.key)
                assert change.revision == revision
                if change.kind is ChangeKind.PUT:
                    entries[change.entry.key] = change.entry
                else:
                    assert entries.pop(change.entry.key) == change.entry
        assert judged == holds
        if holds:
            for write in writes:
                model.pop(write.key, None)
                if isinstance(write, Put):
                    model[write.key] = (write.value, revision)
        assert {key: (e.value, e.mod_revision) for key, e in entries.items()} == model
