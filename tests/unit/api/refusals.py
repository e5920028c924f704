"""What the API server finds wrong with an object: the types of its fields first, then the rules of
its kind."""

from __future__ import annotations

from livesize.api.defaults import default_object
from livesize.api.errors import FieldError
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.nulls import without_nulls
from livesize.api.objects import Object
from livesize.api.schema.shapes import check_shape
from livesize.api.validation.objects import validate_create, validate_update


def shape_errors(resource: Resource, obj: Object) -> list[FieldError]:
    return check_shape(kind_of(resource).schema, without_nulls(obj))


def create_errors(resource: Resource, obj: Object) -> list[FieldError]:
    """Of a new object, as a client sends it."""
    errors = shape_errors(resource, obj)
    return errors or validate_create(resource, default_object(resource, obj))


def update_errors(resource: Resource, new: Object, old: Object) -> list[FieldError]:
    """Of an object in place of another; both are filled in."""
    return shape_errors(resource, new) or validate_update(resource, new, old)
