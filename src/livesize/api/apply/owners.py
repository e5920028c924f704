"""metadata.managedFields: who owns which fields of an object, and how that changes with a write.

An entry belongs to a manager (a name the client chose), an operation (Apply or Update) and a
subresource. An Update takes what it changes from everybody else. An Apply owns exactly what it
says: changing a value that another manager owns is a conflict, unless forced; what it no longer
says goes away, unless another manager owns it too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from livesize.api.apply.comparison import Difference, fields_of, without_fields
from livesize.api.apply.field_sets import (
    NOTHING,
    FieldSet,
    cut,
    difference,
    intersection,
    is_field_set,
    is_nothing,
    ordered,
    overlap,
    paths,
    shared,
    union,
)
from livesize.api.apply.merge import merge_applied
from livesize.api.objects import Object
from livesize.api.schema.fields import Field

MAX_UPDATE_ENTRIES = 10
ANCIENT = "ancient-changes"
MAX_MANAGER_LENGTH = 128


class Operation(enum.StrEnum):
    APPLY = "Apply"
    UPDATE = "Update"


_OPERATIONS = {one.value: one for one in Operation}


class FieldOwner(msgspec.Struct, frozen=True):
    """One entry, without its fields. ``time`` is that of its last change."""

    manager: str
    operation: Operation
    api_version: str
    subresource: str = ""
    time: str = ""

    def is_same(self, other: FieldOwner) -> bool:
        return (
            self.manager == other.manager
            and self.operation is other.operation
            and self.subresource == other.subresource
        )


class OwnedFields(msgspec.Struct, frozen=True):
    """``stored``: the very item it was read from, as long as nothing of it has changed."""

    owner: FieldOwner
    fields: FieldSet
    stored: Object | None = None

    def replaced(self, fields: FieldSet) -> OwnedFields:
        return self if fields is self.fields else OwnedFields(self.owner, fields)


class Conflict(msgspec.Struct, frozen=True):
    """A field that ``owner`` has, and that an apply would change."""

    owner: FieldOwner
    path: str

    def words(self) -> str:
        """As Kubernetes names the other side."""
        owner = self.owner
        below = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        using = f" using {owner.api_version}" if owner.operation is Operation.UPDATE else ""
        return f'conflict with "{owner.manager}"{below}{using}'


class MergedObject(msgspec.Struct, frozen=True):
    """An object with a part applied to it, and the fields that part owns."""

    object: Object
    fields: FieldSet


def read_entries(managed: Sequence[Object]) -> tuple[OwnedFields, ...]:
    """The entries of a stored ``metadata.managedFields``, which are as we wrote them."""
    return tuple(
        OwnedFields(
            FieldOwner(
                item.get("manager", ""),
                _OPERATIONS[item["operation"]],
                item.get("apiVersion", ""),
                item.get("subresource", ""),
                item.get("time", ""),
            ),
            item["fieldsV1"],
            item,
        )
        for item in managed
    )


def parse_entries(managed: Any) -> tuple[OwnedFields, ...] | None:
    """The same from a client, in Kubernetes' order; None where it cannot be read as such."""
    if not isinstance(managed, list) or not all(map(_is_entry, managed)):
        return None
    entries = (OwnedFields(one.owner, ordered(one.fields)) for one in read_entries(managed))
    return tuple(sorted(entries, key=_order))


def write_entries(
    entries: Iterable[OwnedFields], before: Sequence[OwnedFields] = ()
) -> list[Object]:
    """``before``: entries whose sets are stored already, and need not be made again."""
    known = {id(entry.fields) for entry in before}
    return [
        entry.stored
        or _written(entry, entry.fields if id(entry.fields) in known else shared(entry.fields))
        for entry in entries
        if entry.fields is not NOTHING
    ]


def own_update(
    entries: Sequence[OwnedFields], change: Difference, owner: FieldOwner
) -> tuple[OwnedFields, ...]:
    """The entries after ``owner`` has made this change."""
    mine = NOTHING
    others = []
    for entry in entries:
        rest = cut(entry.fields, change.removed)
        if entry.owner.is_same(owner):
            mine = rest
        else:
            others.append(entry.replaced(difference(rest, change.changed)))
    return _bounded((*others, OwnedFields(owner, union(mine, change.changed))))


def own_again(
    managed: Sequence[Object], fields: FieldSet, owner: FieldOwner
) -> list[Object] | None:
    """The entries, as stored, after ``owner`` has changed the values of fields it has had before,
    and no other manager: the time of its own is new. None where that is not all."""
    mine: Object | None = None
    others = []
    for item in managed:
        if _is_of(item, owner):
            mine = item
        elif overlap(item["fieldsV1"], fields):
            return None
        else:
            others.append(item)
    if mine is None or union(mine["fieldsV1"], fields) is not mine["fieldsV1"]:
        return None
    if len(others) >= MAX_UPDATE_ENTRIES:
        return None  # some may have to be put together
    if others and _place(others[-1]) >= (owner.operation, owner.time):
        return None  # it is not the last for sure
    return [*others, {**mine, "time": owner.time}]


def merge_part(
    live: Object, part: Object, entries: Sequence[OwnedFields], owner: FieldOwner, schema: Field
) -> MergedObject:
    """``live`` with ``part`` applied by ``owner``, and without what it used to apply."""
    fields = fields_of(part, schema) or NOTHING
    before, others = NOTHING, NOTHING
    for entry in entries:
        if entry.owner.is_same(owner):
            before = entry.fields
        else:
            others = union(others, entry.fields)
    merged = merge_applied(live, part, schema)
    kept = union(fields, others)
    gone = difference(before, kept)
    if not is_nothing(gone):
        merged = without_fields(merged, gone, kept, schema)
    return MergedObject(merged, fields)


def conflicts_of(
    entries: Sequence[OwnedFields], change: Difference, owner: FieldOwner
) -> tuple[Conflict, ...]:
    """What an apply that makes this change would take from others."""
    return tuple(
        Conflict(entry.owner, path)
        for entry in entries
        if not entry.owner.is_same(owner)
        for path in paths(intersection(entry.fields, change.changed))
    )


def own_apply(
    entries: Sequence[OwnedFields], change: Difference, owner: FieldOwner, fields: FieldSet
) -> tuple[OwnedFields, ...]:
    """The entries after ``owner`` has applied ``fields``, which made this change. The time of an
    apply that changed nothing stays what it was."""
    others = []
    at = owner
    for entry in entries:
        if not entry.owner.is_same(owner):
            rest = difference(cut(entry.fields, change.removed), change.changed)
            others.append(entry.replaced(rest))
        elif entry.fields == fields and is_nothing(union(change.changed, change.removed)):
            at = entry.owner
    return _bounded((*others, OwnedFields(at, fields)))


def _bounded(entries: tuple[OwnedFields, ...]) -> tuple[OwnedFields, ...]:
    """In Kubernetes' order, and with the oldest of too many Updates put together."""
    kept = sorted((one for one in entries if one.fields is not NOTHING), key=_order)
    if len(kept) <= MAX_UPDATE_ENTRIES:
        return tuple(kept)
    updates = [one for one in kept if one.owner.operation is Operation.UPDATE]
    surplus = updates[: max(0, len(updates) - MAX_UPDATE_ENTRIES)]
    if not surplus:
        return tuple(kept)
    # One more goes, because they need an entry of their own.
    surplus = updates[: len(surplus) + 1]
    together = NOTHING
    for one in surplus:
        together = union(together, one.fields)
    last = surplus[-1].owner
    ancient = msgspec.structs.replace(last, manager=ANCIENT, subresource="")
    rest = [one for one in kept if all(one is not gone for gone in surplus)]
    return tuple(sorted((*rest, OwnedFields(ancient, together)), key=_order))


def _is_of(item: Object, owner: FieldOwner) -> bool:
    """As ``Owner.is_same``, of an entry as stored."""
    mine = (owner.manager, owner.operation, owner.subresource, owner.api_version)
    return mine == (
        item["manager"],
        item["operation"],
        item.get("subresource", ""),
        item["apiVersion"],
    )


def _place(item: Object) -> tuple[str, str]:
    """How ``_order`` begins, of an entry as stored."""
    return item["operation"], item.get("time", "")


def _order(entry: OwnedFields) -> tuple[Operation, str, str, str]:
    owner = entry.owner
    return owner.operation, owner.time, owner.manager, owner.subresource


def _is_entry(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("fieldsType") != "FieldsV1":
        return False
    texts = (item.get(key, "") for key in ("manager", "apiVersion", "subresource", "time"))
    return (
        item.get("operation") in list(Operation)
        and all(isinstance(text, str) for text in texts)
        and is_field_set(item.get("fieldsV1"))
    )


def _written(entry: OwnedFields, fields: FieldSet) -> Object:
    owner = entry.owner
    written: Object = {
        "manager": owner.manager,
        "operation": str(owner.operation),
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if owner.subresource:
        written["subresource"] = owner.subresource
    return written
