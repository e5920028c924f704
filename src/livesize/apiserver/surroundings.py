"""Collects from the cache what admission has to know beside the object itself."""

from __future__ import annotations

from livesize.api.kinds.limit_range import LIMIT_RANGES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.priority_class import PRIORITY_CLASSES
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object
from livesize.apiserver.admission.plan import NOTHING_AROUND, Around
from livesize.apiserver.admission.trust import Distrust
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache


def around_of(cache: ObjectsCache, access: Access, *, trusts_editors: bool = True) -> Around:
    """``trusts_editors``: whoever may write pods may run them as processes of a machine. A resize
    brings no program, and so asks no node."""
    if access.resource == PRIORITY_CLASSES:
        return Around(priority_classes=_stored(cache, PRIORITY_CLASSES))
    if access.resource == PERSISTENT_VOLUME_CLAIMS:
        return Around(
            limit_ranges=_stored(cache, LIMIT_RANGES, access.namespace),
            storage_classes=_stored(cache, STORAGE_CLASSES),
        )
    if access.subresource == "binding" and not trusts_editors:
        return Around(distrust=Distrust.of(_stored(cache, NODES)))
    if access.resource != PODS or access.subresource not in ("", "resize"):
        return NOTHING_AROUND
    asks_nodes = not trusts_editors and access.subresource != "resize"
    namespace = cache.get(NAMESPACES, key_of(NAMESPACES, "", access.namespace))
    return Around(
        None if namespace is None else namespace.stored,
        _stored(cache, LIMIT_RANGES, access.namespace),
        _stored(cache, PRIORITY_CLASSES) if access.verb == "create" else (),
        distrust=Distrust.of(_stored(cache, NODES)) if asks_nodes else None,
    )


def _stored(cache: ObjectsCache, resource: Resource, namespace: str = "") -> tuple[Object, ...]:
    return tuple(record.stored for record in cache.records(resource, namespace))
