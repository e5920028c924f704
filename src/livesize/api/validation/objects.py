"""Everything wrong with an object of any kind.

Callers give it objects that went through ``default_object``, without derived fields
(``strip_dialects``). ``livesize.apiserver.request_body`` has checked the types of fields.
"""

from __future__ import annotations

from livesize.api.errors import FieldError
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.validation.metadata import validate_metadata, validate_metadata_update


def validate_create(resource: Resource, obj: Object) -> list[FieldError]:
    """Everything wrong with a new object."""
    kind = kind_of(resource)
    errors = validate_metadata(obj, namespaced=resource.namespaced, rule=kind.name_rule)
    return errors if kind.validate is None else errors + kind.validate(obj)


def validate_update(resource: Resource, new: Object, old: Object) -> list[FieldError]:
    """Everything wrong with ``new`` in place of ``old``."""
    kind = kind_of(resource)
    errors = validate_metadata_update(new, old)
    if kind.validate_update is not None:
        return errors + kind.validate_update(new, old)
    return errors if kind.validate is None else errors + kind.validate(new)
