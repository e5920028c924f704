"""The plan of the garbage collector: one row for each rule, and what no plan may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.controllers.garbage.plan import (
    FOREGROUND,
    ORPHAN,
    Collect,
    Dependent,
    DropFinalizer,
    ForgetOwners,
    GarbageStep,
    OwnedObject,
    OwnerState,
    OwnerView,
    RemoveOwnerReference,
    RequeueDependent,
    plan_piece,
)

SOLID, WAITING = OwnerView("s", OwnerState.SOLID), OwnerView("w", OwnerState.WAITING)
ABSENT, UNKNOWN = OwnerView("a", OwnerState.ABSENT), OwnerView("u", OwnerState.UNKNOWN)
FREE, BLOCKING = Dependent("d", blocks=False), Dependent("b", blocks=True)
LEAVING = Dependent("l", blocks=True, is_going=True)
CIRCLE = Dependent("c", blocks=True, is_going=True, waits_for_owner=True)

RULES: list[tuple[str, OwnedObject, tuple[GarbageStep, ...]]] = [
    ("nobody owns it", OwnedObject(), ()),
    ("its owner is there", OwnedObject((SOLID,)), ()),
    ("its owner is gone", OwnedObject((ABSENT,)), (Collect("Background"),)),
    ("one of two is gone", OwnedObject((SOLID, ABSENT)), (ForgetOwners(("a",)),)),
    ("what we do not know keeps", OwnedObject((UNKNOWN, ABSENT)), (ForgetOwners(("a",)),)),
    ("its owner waits for it", OwnedObject((WAITING,)), (Collect("Background"),)),
    ("and it owns others", OwnedObject((WAITING,), (FREE,)), (Collect("Foreground"),)),
    ("its own wish counts", OwnedObject((ABSENT,), (), (ORPHAN,)), (Collect("Orphan"),)),
    ("it goes already", OwnedObject((ABSENT,), is_going=True), ()),
    (
        "its dependents forget it, then it goes",
        OwnedObject((), (FREE, BLOCKING), (ORPHAN,), is_going=True),
        (RemoveOwnerReference("d"), RemoveOwnerReference("b"), DropFinalizer(ORPHAN)),
    ),
    (
        "it waits for those that block",
        OwnedObject((), (FREE, BLOCKING, LEAVING), (FOREGROUND,), is_going=True),
        (RequeueDependent("d"), RequeueDependent("b")),
    ),
    (
        "it does not wait for the others",
        OwnedObject((), (FREE,), (FOREGROUND,), is_going=True),
        (RequeueDependent("d"), DropFinalizer(FOREGROUND)),
    ),
    (
        "it does not wait for one that waits for it",
        OwnedObject((WAITING,), (CIRCLE,), (FOREGROUND,), is_going=True),
        (DropFinalizer(FOREGROUND),),
    ),
    (
        "but for the others it does",
        OwnedObject((WAITING,), (CIRCLE, LEAVING), (FOREGROUND,), is_going=True),
        (),
    ),
    ("finalizers of others are theirs", OwnedObject((), (), ("mine",), is_going=True), ()),
]


@pytest.mark.parametrize(("piece", "steps"), [row[1:] for row in RULES], ids=[r[0] for r in RULES])
def test_rules(piece: OwnedObject, steps: tuple[GarbageStep, ...]) -> None:
    assert plan_piece(piece) == steps


OWNERS = st.builds(OwnerView, st.text("abc", min_size=1, max_size=2), st.sampled_from(OwnerState))
DEPENDENTS = st.builds(
    Dependent,
    st.text("xyz", min_size=1, max_size=2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
PIECES = st.builds(
    OwnedObject,
    st.lists(OWNERS, max_size=3).map(tuple),
    st.lists(DEPENDENTS, max_size=3).map(tuple),
    st.sets(st.sampled_from([FOREGROUND, ORPHAN, "other"])).map(tuple),
    st.booleans(),
)


@given(PIECES)
def test_nothing_that_is_kept_is_deleted_and_finalizers_go_last(piece: OwnedObject) -> None:
    steps = plan_piece(piece)
    keeps = any(owner.state in (OwnerState.SOLID, OwnerState.UNKNOWN) for owner in piece.owners)
    collected = [step for step in steps if isinstance(step, Collect)]
    assert not (collected and (keeps or not piece.owners or piece.is_going))
    for index, step in enumerate(steps):
        if isinstance(step, DropFinalizer):
            assert step.finalizer in piece.finalizers
            assert not any(isinstance(later, RemoveOwnerReference) for later in steps[index:])
    if DropFinalizer(FOREGROUND) in steps:
        assert all(one.waits_for_owner for one in piece.dependents if one.blocks)
