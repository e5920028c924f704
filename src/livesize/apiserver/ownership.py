"""Who owns the fields of an object after a write: metadata.managedFields. Pure.

Tracked are writes that name a manager: by fieldManager, or by the user agent of an HTTP client.
Not tracked are nodes and the scheduler, whose fields nobody else may write, events and leases,
which are rewritten all the time, and what the API server itself cleans up (ADR 0019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livesize.api.apply.comparison import SAME, Difference, compare, fields_of
from livesize.api.apply.field_sets import NOTHING
from livesize.api.apply.owners import (
    Conflict,
    FieldOwner,
    MergedObject,
    Operation,
    OwnedFields,
    conflicts_of,
    merge_part,
    own_again,
    own_apply,
    own_update,
    parse_entries,
    read_entries,
    write_entries,
)
from livesize.api.apply.size_comparison import compare_sizes
from livesize.api.defaults import default_object
from livesize.api.errors import Cause, StatusError, bad_request, invalid
from livesize.api.kinds.registry import kind_of
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.patch import PatchError
from livesize.api.resources import cells_of
from livesize.api.roles import Role
from livesize.api.schema.fields import Field
from livesize.api.write_options import WriteOptions
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.request_types import Target
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.scale import scale_paths

BEFORE_FIRST_APPLY = "before-first-apply"
_MANAGED = ("metadata", "managedFields")
_UNTRACKED_ROLES = frozenset({Role.NODE, Role.SCHEDULER})
_NOT_OWNED = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_RESIZED = ("name", "resources", "resizePolicy")


def updating_owner(identity: Identity, target: Target, options: WriteOptions) -> FieldOwner | None:
    """Who makes a change, if it is tracked at all; without the time."""
    if not options.manager or identity.role in _UNTRACKED_ROLES:
        return None
    if not kind_of(target.resource).tracks_updates:
        return None
    return _owner(target, options, Operation.UPDATE)


def applying_owner(target: Target, options: WriteOptions) -> FieldOwner:
    return _owner(target, options, Operation.APPLY)


def _owner(target: Target, options: WriteOptions, operation: Operation) -> FieldOwner:
    return FieldOwner(options.manager, operation, target.resource.api_version, target.subresource)


def without_owners(obj: Object) -> Object:
    """What rules and checks look at; owners may be half of an object, and are not their concern."""
    return without(obj, _MANAGED)


def keep_owners(old: Object, new: Object) -> Object:
    """``new`` after a change that is not tracked."""
    managed = lookup(old, *_MANAGED)
    return new if managed is None else evolve(new, _MANAGED, managed)


def names_owners(patch: Any) -> bool:
    """Whether a patch of any kind may be about the owners themselves."""
    if isinstance(patch, dict):
        metadata = patch.get("metadata", {})
        return not isinstance(metadata, dict) or "managedFields" in metadata
    return "managedFields" in str(patch)


def own_created(
    target: Target, new: Object, owner: FieldOwner, part: Object | None = None
) -> Object:
    """A new object, owned by whoever made it: all of it, or what was applied."""
    schema = _schema(target)
    owned = new if part is None else _applied(target, None, part)
    fields = fields_of(owned_part(target, owned), schema)
    return _with_entries(new, [OwnedFields(owner, fields)] if fields else [])


def own_changed(
    target: Target, old: Object, sent: Object, new: Object, owner: FieldOwner
) -> Object:
    """``new`` with what its change did to the owners. A client may also hand on ownership itself,
    by sending other managedFields, or drop all of it, by sending one empty entry."""
    handed_on = _entries_sent(old, sent)
    change = _change(target, old, new)
    if change is SAME:
        return keep_owners(old, new) if handed_on is None else _with_entries(new, handed_on)
    if handed_on is None and change.removed is NOTHING:
        managed = old["metadata"].get("managedFields") or ()
        again = own_again(managed, change.changed, owner)
        if again is not None:
            return evolve(new, _MANAGED, again)
    entries = _entries(old) if handed_on is None else handed_on
    return _with_entries(new, own_update(entries, change, owner), entries)


def _change(target: Target, old: Object, new: Object) -> Difference:
    if target.subresource == "resize":
        found = compare_sizes(old, new)
        if found is not None:
            return found
    return compare(owned_part(target, old), owned_part(target, new), _schema(target))


def merge_into(
    target: Target, stored: Object, served: Object, part: Object, owner: FieldOwner
) -> MergedObject:
    """What the object becomes when ``part`` is applied; raises StatusError where it cannot be."""
    entries = _entries_before_apply(target, stored)
    try:
        owned = owned_part(target, _applied(target, stored, part))
        return merge_part(served, owned, entries, owner, _schema(target))
    except PatchError as error:
        raise bad_request(f"failed to read the applied object: {error.message}") from None


def refuse_conflicts(target: Target, stored: Object, merged: Object, owner: FieldOwner) -> None:
    """409 with every field that others own and this apply would change."""
    would_be = default_object(target.resource, stripped(target, merged))
    change = compare(owned_part(target, stored), owned_part(target, would_be), _schema(target))
    conflicts = conflicts_of(_entries_before_apply(target, stored), change, owner)
    if conflicts:
        causes = [Cause("FieldManagerConflict", one.words(), one.path) for one in conflicts]
        raise StatusError(409, "Conflict", _conflict_message(conflicts), causes=causes)


def own_applied(
    target: Target, old: Object, new: Object, part: Object, owner: FieldOwner
) -> Object:
    schema = _schema(target)
    change = compare(owned_part(target, old), owned_part(target, new), schema)
    fields = fields_of(owned_part(target, _applied(target, old, part)), schema) or NOTHING
    entries = _entries_before_apply(target, old)
    return _with_entries(new, own_apply(entries, change, owner, fields), entries)


def owned_part(target: Target, obj: Object) -> Object:
    """What of a stored object can be owned through this subresource."""
    match target.subresource:
        case "status":
            status = lookup(obj, "status")
            if not isinstance(status, dict):
                return {}
            owned = {key: item for key, item in status.items() if key != "resizeState"}
            return {"status": owned} if owned else {}
        case "resize":
            return _resized_part(obj)
        case "scale":
            path = scale_paths(target.resource).replicas
            replicas = lookup(obj, *path)
            return {} if replicas is None else evolve({}, path, replicas)
        case _:
            owned = {
                key: item
                for key, item in obj.items()
                if key not in ("apiVersion", "kind", "metadata", "status")
            }
            given = obj.get("metadata") or {}
            metadata = {key: item for key, item in given.items() if key not in _NOT_OWNED}
            return {**owned, "metadata": metadata} if metadata else owned


def _resized_part(pod: Object) -> Object:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return {}
    owned: Object = {}
    for kind in ("containers", "initContainers"):
        items = spec.get(kind)
        if isinstance(items, list) and items:
            owned[kind] = [_picked(item) for item in items]
    vm = spec.get("virtualMachine")
    if isinstance(vm, dict):
        owned["virtualMachine"] = {**_picked(vm), **_picked_cells(vm)}
    return {"spec": owned} if owned else {}


def _picked(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return {key: item[key] for key in _RESIZED if key in item}


def _picked_cells(vm: Object) -> Object:
    """Of each NUMA cell the memory: what it boots with is not the resize's."""
    cells = [{key: cell[key] for key in ("id", "memory") if key in cell} for cell in cells_of(vm)]
    return {"numa": {"cells": cells}} if cells else {}


def stripped(target: Target, obj: Object) -> Object:
    return strategy_of(target.resource).stripped(obj)


def _applied(target: Target, stored: Object | None, part: Object) -> Object:
    """What is applied, where it is stored."""
    applied, errors = strategy_of(target.resource).applied(part, stored)
    if errors:
        raise invalid(target.resource.kind, target.resource.group, target.name, errors)
    return applied


def _schema(target: Target) -> Field:
    return kind_of(target.resource).schema.root


def _entries(obj: Object) -> tuple[OwnedFields, ...]:
    return read_entries(lookup(obj, *_MANAGED, default=()))


def _entries_sent(old: Object, sent: Object) -> tuple[OwnedFields, ...] | None:
    """The entries the client wants instead; None where it sent none, the same, or nonsense."""
    given = None if sent is old else lookup(sent, *_MANAGED)
    if not given or given == lookup(old, *_MANAGED):
        return None
    return () if given == [{}] else parse_entries(given)


def _entries_before_apply(target: Target, stored: Object) -> tuple[OwnedFields, ...]:
    """An object nobody has been tracked on belongs to whoever wrote it before."""
    entries = _entries(stored)
    if entries:
        return entries
    fields = fields_of(owned_part(target, stored), _schema(target))
    if not fields:
        return ()
    made = lookup(stored, "metadata", "creationTimestamp", default="")
    api_version = target.resource.api_version
    owner = FieldOwner(BEFORE_FIRST_APPLY, Operation.UPDATE, api_version, target.subresource, made)
    return (OwnedFields(owner, fields),)


def _with_entries(
    obj: Object, entries: Sequence[OwnedFields], before: Sequence[OwnedFields] = ()
) -> Object:
    written = write_entries(entries, before)
    return evolve(obj, _MANAGED, written) if written else without(obj, _MANAGED)


def _conflict_message(conflicts: Sequence[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: {conflicts[0].words()}: {conflicts[0].path}"
    by_owner: dict[str, list[str]] = {}
    for one in conflicts:
        by_owner.setdefault(one.words(), []).append(f"- {one.path}")
    lines = [
        line
        for words in sorted(by_owner)
        for line in (f"{words.replace('conflict', 'conflicts', 1)}:", *by_owner[words])
    ]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
