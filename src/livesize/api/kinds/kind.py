"""What a kind is: one value that says everything true of it. Routing, discovery, defaults,
validation, tables and the command line read it from the registry."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import msgspec

from livesize.api.columns import AGE, NAME, Column
from livesize.api.disruption import DisruptionJudge
from livesize.api.errors import FieldError
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import Subresource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object
from livesize.api.quota_rule import COUNTED, QuotaRule
from livesize.api.roles import Grants
from livesize.api.schema.fields import Message, Schema, schema_of
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.names import DnsRule


class StatusWrites(enum.Enum):
    """By which requests clients write ``status``."""

    ANY = "any"
    """Any: the kind has no status that the API server would treat apart."""
    CREATE = "create"
    """A create may bring it; an update leaves it as it is."""
    SUBRESOURCE = "subresource"
    """None but those to X/status."""


class Kind(msgspec.Struct, frozen=True, eq=False):
    """``defaults`` returns the object with everything filled in; doing it twice changes nothing
    more. ``validate`` and ``validate_update`` (new, old) return what is wrong; where a kind has no
    ``validate_update``, an update is checked like a new object. ``shape`` declares its fields.
    ``is_stored``: clients read and write objects of it; of the others the API server computes the
    answer to each request.

    ``roles``: what each role may do. ``node_scope``: to which objects a node may do what its role
    may. ``has_generation``: a change of the spec counts it up.
    ``tracks_updates``: managedFields say who updated what. ``quota``: how quotas count its
    objects; None: they do not. ``judge_eviction``: whether its objects let a pod be evicted, from
    the pod, all of them in its namespace, and the time.
    ``strategy`` names what else the API server does with its objects.
    ``collected``: the garbage collector follows its owner references."""

    resource: Resource
    shape: type[Message] = TypedObject
    defaults: Callable[[Object], Object] | None = None
    validate: Callable[[Object], list[FieldError]] | None = None
    validate_update: Callable[[Object, Object], list[FieldError]] | None = None
    name_rule: DnsRule = DnsRule.SUBDOMAIN
    columns: tuple[Column, ...] = (NAME, AGE)
    subresources: Mapping[str, Subresource] = {}
    strategy: str = ""
    roles: Grants = {}
    node_scope: NodeScope = NodeScope.READ_ALL
    selectable_fields: tuple[str, ...] = ()
    status: StatusWrites = StatusWrites.CREATE
    has_generation: bool = False
    tracks_updates: bool = True
    quota: QuotaRule | None = COUNTED
    judge_eviction: DisruptionJudge | None = None
    collected: bool = True
    is_stored: bool = True

    @property
    def schema(self) -> Schema:
        return schema_of(self.shape)
