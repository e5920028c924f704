"""Decides what becomes of a folder whose volume is to go. Pure.

A folder is removed only if its volume was made here, says that it goes with it, and lies exactly
where this node keeps such folders; and only when nothing holds the volume but this node.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup, name_of
from livesize.api.storage import (
    FOLDER_FINALIZER,
    NODE_LABEL,
    VOLUME_PROTECTION,
    ReclaimPolicy,
    is_going,
    is_ours,
)


class KeepVolume(msgspec.Struct, frozen=True, tag=True):
    """Nothing to do, or not yet."""


class ReleaseVolume(msgspec.Struct, frozen=True, tag=True):
    """The volume goes, its folder stays."""


class RemoveFolder(msgspec.Struct, frozen=True, tag=True):
    """Remove the folder, then let the volume go."""

    folder: str


class Refuse(msgspec.Struct, frozen=True, tag=True):
    why: str


Reclaim: TypeAlias = KeepVolume | ReleaseVolume | RemoveFolder | Refuse


def plan_reclaim(volume: Object, node: str, folders: str) -> Reclaim:
    """``folders``: where this node keeps folders."""
    finalizers = lookup(volume, "metadata", "finalizers", default=[])
    mine = lookup(volume, "metadata", "labels", NODE_LABEL) == node
    if not mine or not is_going(volume) or FOLDER_FINALIZER not in finalizers:
        return KeepVolume()
    if VOLUME_PROTECTION in finalizers:
        return KeepVolume()  # a claim has it still
    if lookup(volume, "spec", "persistentVolumeReclaimPolicy") != ReclaimPolicy.DELETE:
        return ReleaseVolume()
    name, path = name_of(volume), lookup(volume, "spec", "local", "path", default="")
    if not is_ours(volume) or path != f"{folders}/{name}":
        return Refuse(
            f"{path or 'what it names'} is not a folder that node {node} keeps in {folders}: remove"
            f" it by hand, and take {FOLDER_FINALIZER} off the volume"
        )
    return RemoveFolder(name)
