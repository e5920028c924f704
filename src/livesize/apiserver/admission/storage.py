"""What admission gives to new claims and volumes, and what it lets whom do to them. Pure.

- A claim or volume in use is not deleted: both get the finalizer that says so.
- A claim that names no class gets the default one.
- Only a volume whose class allows it grows.
- A node changes nothing of a volume but that its folder needs no more looking after.
"""

from __future__ import annotations

from livesize.api.objects import Object, evolve, lookup, name_of, without
from livesize.api.storage import (
    CLAIM_PROTECTION,
    FOLDER_FINALIZER,
    NODE_LABEL,
    class_of,
    default_class,
    requested,
)

_FINALIZERS = ("metadata", "finalizers")


def fill_claim(claim: Object, classes: tuple[Object, ...]) -> Object:
    """``claim`` was defaulted."""
    claim = protected(claim, CLAIM_PROTECTION)
    if lookup(claim, "spec", "storageClassName") is not None or not claim.get("spec"):
        return claim
    default = default_class(classes)
    return evolve(claim, ("spec", "storageClassName"), default) if default else claim


def protected(obj: Object, protection: str) -> Object:
    """``obj`` with the finalizer that keeps it while it is in use."""
    finalizers = lookup(obj, *_FINALIZERS, default=[])
    return obj if protection in finalizers else evolve(obj, _FINALIZERS, [*finalizers, protection])


def forbids_growth(old: Object, new: Object, classes: tuple[Object, ...]) -> str:
    """Why a claim may not ask for more than before; empty where it may."""
    if requested(new) <= requested(old):
        return ""
    named = [one for one in classes if name_of(one) == class_of(old)]
    if any(one.get("allowVolumeExpansion") for one in named):
        return ""
    return (
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the"
        " pvc must support resize: set allowVolumeExpansion of the class, or make a larger claim"
    )


def forbids_volume(node: str, old: Object | None, new: Object | None) -> str:
    """Why a node may not make this change to a volume."""
    if old is None or new is None or lookup(old, "metadata", "labels", NODE_LABEL) != node:
        return f'node "{node}" can only update volumes whose folder it keeps'
    before, after = (lookup(one, *_FINALIZERS, default=[]) for one in (old, new))
    remaining = [one for one in before if one != FOLDER_FINALIZER]
    if after not in (before, remaining) or _compared(old) != _compared(new):
        return f'node "{node}" can only take {FOLDER_FINALIZER} off its volumes'
    return ""


def _compared(volume: Object) -> Object:
    for path in (_FINALIZERS, ("metadata", "resourceVersion"), ("metadata", "managedFields")):
        volume = without(volume, path)
    return volume
