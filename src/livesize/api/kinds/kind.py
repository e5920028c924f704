"""What a kind is: one value that says everything true of it. Routing, discovery, defaults,
validation, tables and the command line read it from the registry."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from livesize.api.columns import AGE, NAME, Column
from livesize.api.errors import FieldError
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.validation.names import DnsRule


class Kind(msgspec.Struct, frozen=True, eq=False):
    """``defaults`` returns the object with everything filled in; doing it twice changes nothing
    more. ``validate`` and ``validate_update`` (new, old) return what is wrong; where a kind has no
    ``validate_update``, an update is checked like a new object. ``is_stored``: clients read and
    write objects of it; of the others the API server computes the answer to each request."""

    resource: Resource
    defaults: Callable[[Object], Object] | None = None
    validate: Callable[[Object], list[FieldError]] | None = None
    validate_update: Callable[[Object, Object], list[FieldError]] | None = None
    name_rule: DnsRule = DnsRule.SUBDOMAIN
    columns: tuple[Column, ...] = (NAME, AGE)
    is_stored: bool = True
