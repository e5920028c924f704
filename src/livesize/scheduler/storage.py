"""What the claims of a pod ask of its node, from claims, volumes and classes as they arrive.

A claim that has its volume sends its pods to where the volume is. One that waits for its first
consumer goes wherever its first pod goes: free if its volume is made then, else to a node for which
a volume is there. Does no IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.storage import (
    AccessMode,
    claim_key,
    class_of,
    is_going,
    is_local_class,
    is_set_aside_for,
    node_terms,
    volume_name,
    waits_for_consumer,
)
from livesize.api.volume_choice import choose_volume
from livesize.scheduler.demands import (
    ClaimDemand,
    ClaimKey,
    Free,
    Need,
    OneOf,
    OnNodesOf,
    Unmet,
    WithAnother,
    another_pod,
)

Users: TypeAlias = Mapping[str, str]
"""Pods that use a claim, by uid: the node each is on."""


class StorageIndex:
    """The newest known state of what pods' claims depend on."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, Object] = {}
        self._volumes: dict[str, Object] = {}
        self._classes: dict[str, Object] = {}
        self._reserved: dict[str, ClaimKey] = {}

    def set(self, resource: Resource, obj: Object) -> None:
        if resource == PERSISTENT_VOLUME_CLAIMS:
            self._claims[namespace_of(obj), name_of(obj)] = obj
            self._forget_reserved()
        elif resource == PERSISTENT_VOLUMES:
            self._volumes[name_of(obj)] = obj
        else:
            self._classes[name_of(obj)] = obj

    def drop(self, resource: Resource, obj: Object) -> None:
        if resource == PERSISTENT_VOLUME_CLAIMS:
            self._claims.pop((namespace_of(obj), name_of(obj)), None)
            self._forget_reserved()
        elif resource == PERSISTENT_VOLUMES:
            self._volumes.pop(name_of(obj), None)
        else:
            self._classes.pop(name_of(obj), None)

    def demands(
        self, namespace: str, names: Iterable[str], users: Mapping[ClaimKey, Users]
    ) -> tuple[ClaimDemand, ...]:
        """``users``: who uses each claim besides the pod itself."""
        keys = [(namespace, name) for name in names]
        return tuple(self._demand(key, users.get(key, {})) for key in keys)

    def reserve(self, key: ClaimKey, volume: str) -> None:
        """A pod goes where this volume is: no other claim is to count on it."""
        self._reserved[volume] = key

    def _demand(self, key: ClaimKey, users: Users) -> ClaimDemand:
        claim = self._claims.get(key)
        modes = lookup(claim, "spec", "accessModes", default=[])
        one_pod = AccessMode.ONE_POD in modes
        if one_pod and users:
            return ClaimDemand(key, Unmet(another_pod(key)), one_pod)
        return ClaimDemand(key, self._need(key, claim, users), one_pod)

    def _need(self, key: ClaimKey, claim: Object | None, users: Users) -> Need:
        name = key[1]
        if claim is None:
            return Unmet(f'persistentvolumeclaim "{name}" not found')
        if is_going(claim):
            return Unmet(f'persistentvolumeclaim "{name}" is being deleted')
        volume = self._volume_of(claim)
        if volume is not None:
            return OnNodesOf(name_of(volume), node_terms(volume))
        if volume_name(claim):
            missing = f'persistentvolume "{volume_name(claim)}" not found'
            return Unmet(f'persistentvolumeclaim "{name}": {missing}')
        return self._unbound(key, claim, users)

    def _volume_of(self, claim: Object) -> Object | None:
        """Named by the claim, or set aside for it for good."""
        named = self._volumes.get(volume_name(claim))
        if named is not None:
            return named if claim_key(named) is None or is_set_aside_for(named, claim) else None
        return next((one for one in self._volumes.values() if is_reserved_for(one, claim)), None)

    def _unbound(self, key: ClaimKey, claim: Object, users: Users) -> Need:
        storage_class = self._classes.get(class_of(claim))
        if not waits_for_consumer(storage_class):
            return Unmet(f'persistentvolumeclaim "{key[1]}" is not bound to a volume yet')
        if users:
            return WithAnother(min(users.values()))
        if is_local_class(storage_class):
            return Free()
        return OneOf(self._choices(key, claim))

    def _choices(self, key: ClaimKey, claim: Object) -> tuple[OnNodesOf, ...]:
        found: list[OnNodesOf] = []
        taken = {volume for volume, other in self._reserved.items() if other != key}
        while (volume := choose_volume(claim, self._volumes.values(), None, taken)) is not None:
            taken.add(name_of(volume))
            found.append(OnNodesOf(name_of(volume), node_terms(volume)))
        return tuple(found)

    def _forget_reserved(self) -> None:
        """A claim that is gone or has its volume counts on no other."""
        self._reserved = {
            volume: key
            for volume, key in self._reserved.items()
            if key in self._claims and not volume_name(self._claims[key])
        }


def is_reserved_for(volume: Object, claim: Object) -> bool:
    return is_set_aside_for(volume, claim) and bool(lookup(volume, "spec", "claimRef", "uid"))
