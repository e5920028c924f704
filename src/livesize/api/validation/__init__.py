"""Says what is wrong with an object, field by field, in Kubernetes' words; [] means nothing is.

``validate_create`` and ``validate_update`` know every kind; ``validate_pod_resize`` and
``prepare_resize`` are for pods/resize. Give them objects that went through ``default_object``,
without derived fields (``strip_dialects``). They accept any JSON and never raise on it.
"""

from __future__ import annotations

from collections.abc import Callable

from livesize.api.errors import FieldError
from livesize.api.kinds import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from livesize.api.objects import Object
from livesize.api.validation.kinds import validate_event, validate_lease, validate_node
from livesize.api.validation.metadata import validate_metadata, validate_metadata_update
from livesize.api.validation.names import DnsRule
from livesize.api.validation.pod import validate_pod
from livesize.api.validation.pod_update import validate_pod_update
from livesize.api.validation.policies import (
    validate_disruption_budget,
    validate_limit_range,
    validate_priority_class,
    validate_priority_class_update,
    validate_quota,
    validate_quota_update,
)
from livesize.api.validation.resize import (
    keep_policies,
    malformed_quantity,
    prepare_resize,
    validate_pod_resize,
)
from livesize.api.validation.shapes import check_shape
from livesize.api.validation.storage import (
    validate_claim,
    validate_claim_update,
    validate_storage_class,
    validate_storage_class_update,
    validate_volume,
    validate_volume_update,
)
from livesize.api.validation.stored import (
    validate_config_map,
    validate_config_map_update,
    validate_namespace,
    validate_secret,
    validate_secret_update,
    validate_service,
)

__all__ = [
    "keep_policies",
    "malformed_quantity",
    "prepare_resize",
    "validate_create",
    "validate_pod_resize",
    "validate_update",
]

_NAME_RULES = {NAMESPACES.plural: DnsRule.LABEL, SERVICES.plural: DnsRule.LABEL}
_CREATE: dict[str, Callable[[Object], list[FieldError]]] = {
    PODS.plural: validate_pod,
    NODES.plural: validate_node,
    LEASES.plural: validate_lease,
    EVENTS.plural: validate_event,
    NAMESPACES.plural: validate_namespace,
    RESOURCE_QUOTAS.plural: validate_quota,
    LIMIT_RANGES.plural: validate_limit_range,
    CONFIG_MAPS.plural: validate_config_map,
    SECRETS.plural: validate_secret,
    SERVICES.plural: validate_service,
    DISRUPTION_BUDGETS.plural: validate_disruption_budget,
    PRIORITY_CLASSES.plural: validate_priority_class,
    PERSISTENT_VOLUME_CLAIMS.plural: validate_claim,
    PERSISTENT_VOLUMES.plural: validate_volume,
    STORAGE_CLASSES.plural: validate_storage_class,
}
# Of the kinds of which not everything may change.
_UPDATE: dict[str, Callable[[Object, Object], list[FieldError]]] = {
    PODS.plural: validate_pod_update,
    RESOURCE_QUOTAS.plural: validate_quota_update,
    CONFIG_MAPS.plural: validate_config_map_update,
    SECRETS.plural: validate_secret_update,
    PRIORITY_CLASSES.plural: validate_priority_class_update,
    PERSISTENT_VOLUME_CLAIMS.plural: validate_claim_update,
    PERSISTENT_VOLUMES.plural: validate_volume_update,
    STORAGE_CLASSES.plural: validate_storage_class_update,
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
    compare = _UPDATE.get(resource.plural)
    if compare is not None:
        return errors + compare(new, old)
    check = _CREATE.get(resource.plural)
    return errors if check is None else errors + check(new)
