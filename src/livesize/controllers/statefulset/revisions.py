"""The history of a stateful set's template: which revision is the newest, and which go. Pure.

A ControllerRevision keeps the template as the patch that brings it back. Its number is its place in
the history: a set that goes back to a template has the old revision under a higher number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from livesize.api.kinds.controller_revision import CONTROLLER_REVISIONS
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.workloads import template_of
from livesize.controllers.kit.hashes import short_hash
from livesize.controllers.kit.owned_pods import owner_reference

HASH_LABEL = "controller.kubernetes.io/hash"


class KeepRevision(msgspec.Struct, frozen=True, tag=True):
    """The newest revision is that of the set's template."""

    revision: Object


class RaiseRevision(msgspec.Struct, frozen=True, tag=True):
    """An older revision is, and becomes the newest."""

    revision: Object
    number: int


class NewRevision(msgspec.Struct, frozen=True, tag=True):
    """None is."""

    number: int


RevisionStep: TypeAlias = KeepRevision | RaiseRevision | NewRevision


def plan_revision(stateful_set: Object, history: Iterable[Object]) -> RevisionStep:
    in_order = sorted(history, key=_place)
    data = _data(stateful_set)
    if not in_order:
        return NewRevision(1)
    equal = [one for one in in_order if one.get("data") == data]
    number = _place(in_order[-1])[0] + 1
    if not equal:
        return NewRevision(number)
    return (
        KeepRevision(equal[-1]) if equal[-1] is in_order[-1] else RaiseRevision(equal[-1], number)
    )


def make_revision(stateful_set: Object, number: int, collisions: int) -> Object:
    """``collisions``: how many names turned out to be another revision's."""
    data = _data(stateful_set)
    hashed = short_hash(data, collisions)
    labels = lookup(template_of(stateful_set), "metadata", "labels", default={})
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{name_of(stateful_set)}-{hashed}",
            "namespace": namespace_of(stateful_set),
            "labels": {**labels, HASH_LABEL: hashed},
            "annotations": lookup(stateful_set, "metadata", "annotations", default={}),
            "ownerReferences": [owner_reference(STATEFUL_SETS, stateful_set)],
        },
        "data": data,
        "revision": number,
    }


def stored_template(revision: Object) -> Object:
    """The template that a revision stores."""
    stored = template_of(revision["data"])
    return {key: part for key, part in stored.items() if key != "$patch"}


def outdated(history: Iterable[Object], used: Iterable[str], limit: int) -> Sequence[Object]:
    """Revisions beyond the ``limit``, the oldest first; those that are used do not count."""
    in_use = frozenset(used)
    unused = [one for one in sorted(history, key=_place) if name_of(one) not in in_use]
    return unused[: max(0, len(unused) - limit)]


def _data(stateful_set: Object) -> Object:
    return {"spec": {"template": {**template_of(stateful_set), "$patch": "replace"}}}


def _place(revision: Object) -> tuple[int, str, str]:
    created = lookup(revision, "metadata", "creationTimestamp", default="")
    return int(revision.get("revision") or 0), str(created), name_of(revision)
