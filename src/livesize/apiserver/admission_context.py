"""Collects from the cache the objects that admission compares a change with."""

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
from livesize.apiserver.admission.plan import EMPTY_CONTEXT, AdmissionContext
from livesize.apiserver.admission.trust import Distrust
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache


def context_of(
    cache: ObjectsCache, access: Access, *, trusts_editors: bool = True
) -> AdmissionContext:
    """``trusts_editors``: whoever may write pods may run them as processes of a machine. A resize
    brings no program, and so asks no node."""
    if access.resource == PRIORITY_CLASSES:
        return AdmissionContext(priority_classes=_stored(cache, PRIORITY_CLASSES))
    if access.resource == PERSISTENT_VOLUME_CLAIMS:
        return AdmissionContext(
            limit_ranges=_stored(cache, LIMIT_RANGES, access.namespace),
            storage_classes=_stored(cache, STORAGE_CLASSES),
        )
    if access.subresource == "binding" and not trusts_editors:
        return AdmissionContext(distrust=Distrust.of(_stored(cache, NODES)))
    if access.resource != PODS or access.subresource not in ("", "resize"):
        return EMPTY_CONTEXT
    asks_nodes = not trusts_editors and access.subresource != "resize"
    namespace = cache.get(NAMESPACES, key_of(NAMESPACES, "", access.namespace))
    return AdmissionContext(
        None if namespace is None else namespace.stored,
        _stored(cache, LIMIT_RANGES, access.namespace),
        _stored(cache, PRIORITY_CLASSES) if access.verb == "create" else (),
        distrust=Distrust.of(_stored(cache, NODES)) if asks_nodes else None,
    )


def _stored(cache: ObjectsCache, resource: Resource, namespace: str = "") -> tuple[Object, ...]:
    return tuple(record.stored for record in cache.records(resource, namespace))
