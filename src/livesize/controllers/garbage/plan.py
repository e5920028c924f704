"""Decides what happens to one object because of who owns it and what it owns. Pure.

    deleted in the background    gone at once; its dependents follow, when they see it gone
    deleted in the foreground    stays until every dependent that blocks it has gone
    deleted as orphan            its dependents forget it, then it goes

An object with several owners stays for as long as one of them does. Objects that own each other in
a circle would wait for each other for ever: who sees that waits no longer. Every prefix of a plan
is safe: nothing is deleted while an owner that keeps it is there; a finalizer is taken off last.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class OwnerState(enum.Enum):
    SOLID = "solid"  # there, and it keeps what it owns
    WAITING = "waiting"  # being deleted in the foreground: waits for what it owns to go
    ABSENT = "absent"
    UNKNOWN = "unknown"  # of a kind we do not serve: nothing can be said, so it keeps


class OwnerView(msgspec.Struct, frozen=True):
    uid: str
    state: OwnerState


class Dependent(msgspec.Struct, frozen=True):
    """``blocks``: its reference says that the owner has to wait for it. ``waits_for_owner``: and it
    waits for the owner to go, itself or through what it owns."""

    uid: str
    blocks: bool
    is_going: bool = False
    waits_for_owner: bool = False


class OwnedObject(msgspec.Struct, frozen=True):
    """One object, with what is above and below it."""

    owners: tuple[OwnerView, ...] = ()
    dependents: tuple[Dependent, ...] = ()
    finalizers: tuple[str, ...] = ()
    is_going: bool = False


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Delete the object itself."""

    propagation: str


class ForgetOwners(msgspec.Struct, frozen=True, tag=True):
    """Take these owners out of the object's references."""

    uids: tuple[str, ...]


class RemoveOwnerReference(msgspec.Struct, frozen=True, tag=True):
    """Take this object out of the references of a dependent."""

    dependent: str


class RequeueDependent(msgspec.Struct, frozen=True, tag=True):
    """The dependent's own turn: it sees that its owner waits for it to go."""

    dependent: str


class DropFinalizer(msgspec.Struct, frozen=True, tag=True):
    """Take this finalizer off the object."""

    finalizer: str


GarbageStep: TypeAlias = (
    Collect | ForgetOwners | RemoveOwnerReference | RequeueDependent | DropFinalizer
)


def plan_piece(piece: OwnedObject) -> tuple[GarbageStep, ...]:
    if piece.is_going:
        return (*_plan_orphan(piece), *_plan_foreground(piece))
    return _plan_owned(piece)


def _plan_orphan(piece: OwnedObject) -> tuple[GarbageStep, ...]:
    if ORPHAN not in piece.finalizers:
        return ()
    forgotten = tuple(RemoveOwnerReference(dependent.uid) for dependent in piece.dependents)
    return (*forgotten, DropFinalizer(ORPHAN))


def _plan_foreground(piece: OwnedObject) -> tuple[GarbageStep, ...]:
    if FOREGROUND not in piece.finalizers:
        return ()
    told = tuple(RequeueDependent(one.uid) for one in piece.dependents if not one.is_going)
    if any(one.blocks and not one.waits_for_owner for one in piece.dependents):
        return told
    return (*told, DropFinalizer(FOREGROUND))


def _plan_owned(piece: OwnedObject) -> tuple[GarbageStep, ...]:
    keeping = {OwnerState.SOLID, OwnerState.UNKNOWN}
    lost = tuple(owner.uid for owner in piece.owners if owner.state not in keeping)
    if not lost:
        return ()
    if len(lost) < len(piece.owners):
        return (ForgetOwners(lost),)
    return (Collect(_propagation(piece)),)


def _propagation(piece: OwnedObject) -> str:
    """What its own finalizers say; else foreground, where its owner waits for all of it."""
    if ORPHAN in piece.finalizers:
        return "Orphan"
    waited_for = any(owner.state is OwnerState.WAITING for owner in piece.owners)
    if FOREGROUND in piece.finalizers or (waited_for and piece.dependents):
        return "Foreground"
    return "Background"
