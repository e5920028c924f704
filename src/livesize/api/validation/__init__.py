"""Says what is wrong with an object, field by field, in Kubernetes' words; [] means nothing is.

``validate_create`` and ``validate_update`` know every kind; ``validate_pod_resize`` and
``prepare_resize`` are for pods/resize. Give them objects that went through ``default_object``,
without derived fields (``strip_dialects``). They accept any JSON and never raise on it.
"""

from __future__ import annotations

from collections.abc import Callable

from livesize.api.errors import FieldError
from livesize.api.kinds import LEASES, NAMESPACES, NODES, PODS, Resource
from livesize.api.objects import Object
from livesize.api.validation.kinds import validate_lease, validate_node
from livesize.api.validation.metadata import validate_metadata, validate_metadata_update
from livesize.api.validation.names import DnsRule
from livesize.api.validation.pod import validate_pod
from livesize.api.validation.pod_update import validate_pod_update
from livesize.api.validation.resize import (
    keep_policies,
    malformed_quantity,
    prepare_resize,
    validate_pod_resize,
)
from livesize.api.validation.shapes import check_shape

__all__ = [
    "keep_policies",
    "malformed_quantity",
    "prepare_resize",
    "validate_create",
    "validate_pod_resize",
    "validate_update",
]

_NAME_RULES = {NAMESPACES.plural: DnsRule.LABEL}
_CREATE: dict[str, Callable[[Object], list[FieldError]]] = {
    PODS.plural: validate_pod,
    NODES.plural: validate_node,
    LEASES.plural: validate_lease,
}


def validate_create(resource: Resource, obj: Object) -> list[FieldError]:
    """Everything wrong with a new object."""
    if errors := check_shape(resource, obj):
        return errors
    rule = _NAME_RULES.get(resource.plural, DnsRule.SUBDOMAIN)
    errors = validate_metadata(obj, namespaced=resource.namespaced, rule=rule)
    check = _CREATE.get(resource.plural)
    return errors if check is None else errors + check(obj)


def validate_update(resource: Resource, new: Object, old: Object) -> list[FieldError]:
    """Everything wrong with ``new`` in place of ``old``."""
    if errors := check_shape(resource, new):
        return errors
    errors = validate_metadata_update(new, old)
    if resource.plural == PODS.plural:
        return errors + validate_pod_update(new, old)
    check = _CREATE.get(resource.plural)
    return errors if check is None else errors + check(new)
