"""PUT and PATCH of an object itself: everything but its status."""

from __future__ import annotations

import msgspec

from livesize.api.defaults import default_object
from livesize.api.dialects import check_derived, node_allocation, strip_dialects
from livesize.api.errors import forbidden
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.resize_state import apply_resizing, request_resize
from livesize.api.roles import Role
from livesize.api.validation.objects import validate_update
from livesize.api.validation.resize import keep_policies
from livesize.api.vm_defaults import keep_vm_fixed
from livesize.api.workloads import template_of
from livesize.apiserver.admission.mutation import keep_priority
from livesize.apiserver.object_metadata import prepare_update, with_generation
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.change import (
    SentChange,
    folded,
    refuse_forbidden,
    refuse_invalid,
)


def update_object(change: SentChange) -> Object:
    resource = change.target.resource
    new = prepare_update(change.target, change.stored, change.incoming)
    new = default_object(resource, new)
    new = strategy_of(resource).adjusted(change.stored, new, change.identity)
    refuse_invalid(change.target, validate_update(resource, new, change.stored))
    return with_generation(resource, change.stored, new)


def update_workload(change: SentChange) -> Object:
    """A manifest that does not say the maxima of its virtual machines leaves them as they are."""
    template = lookup(change.incoming, "spec", "template")
    if not isinstance(template, dict):
        return update_object(change)
    kept = keep_vm_fixed(template_of(change.stored), template)
    incoming = evolve(change.incoming, ("spec", "template"), kept)
    return update_object(msgspec.structs.replace(change, incoming=incoming))


def update_pod(change: SentChange) -> Object:
    """Resources may be changed here as through pods/resize (ARK; decisions 3)."""
    change = folded(change)
    derived = check_derived(change.incoming, change.served, from_own_node=change.from_own_node)
    refuse_forbidden(change.target, derived)
    new = prepare_update(change.target, change.stored, strip_dialects(change.incoming))
    new = keep_priority(change.stored, new)
    if not change.knows_policies:
        new = keep_policies(change.stored, new)
    new = keep_vm_fixed(change.stored, new)
    new = default_object(PODS, new)
    if change.identity.role is Role.NODE:
        return _allocate(change, new)
    refuse_invalid(change.target, validate_update(PODS, new, change.stored))
    return ask_resize(change, new)


def ask_resize(change: SentChange, new: Object) -> Object:
    """``new`` with the resize it asks for, if any, and the generation of its spec."""
    after = request_resize(change.stored, new, requested_by=change.identity.name, now=change.now)
    return with_generation(PODS, change.stored, after)


def _allocate(change: SentChange, new: Object) -> Object:
    """A node changes nothing of a pod but what it has allocated (ARK; decisions 4)."""
    if _compared(new) != _compared(change.stored):
        why = f'node "{change.identity.node}" can only change resourcesAllocated of its pods'
        raise forbidden(PODS, change.target.name, why)
    allocated = node_allocation(change.incoming, change.served)
    if allocated is None:
        return change.stored
    body: Object = {"request": {"requestStatus": "Accepted"}, "allocated": allocated}
    return apply_resizing(change.stored, body, now=change.now)


def _compared(pod: Object) -> Object:
    return without(pod, ("metadata", "resourceVersion"))
