"""Leases: who holds something, and until when."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    at,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup
from livesize.api.roles import ALL, CHANGE, CREATE, DELETE, GET, READ, Role
from livesize.api.schema.fields import Message, Type, anything, integer, object_of, scalar, string
from livesize.api.schema.meta import TypedObject

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, "lease")
COORDINATION = "io.k8s.api.coordination.v1"


class LeaseSpec(Message, package=COORDINATION):
    holderIdentity = string(1, keeps_zero=True)
    leaseDurationSeconds = integer(2, keeps_zero=True)
    acquireTime = scalar(Type.MICRO_TIME, 3)
    renewTime = scalar(Type.MICRO_TIME, 4)
    leaseTransitions = integer(5, keeps_zero=True)
    strategy = anything()
    preferredHolder = anything()


class Lease(TypedObject, package=COORDINATION):
    spec = object_of(LeaseSpec, 2)


def validate_lease(lease: Object) -> list[FieldError]:
    seconds = lookup(lease, "spec", "leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        detail = "must be greater than 0"
        field = "spec.leaseDurationSeconds"
        return [FieldError(FieldErrorKind.INVALID, field, detail, seconds)]
    return []


LEASE = Kind(
    LEASES,
    shape=Lease,
    validate=validate_lease,
    status=StatusWrites.ANY,
    tracks_updates=False,
    node_scope=NodeScope.OWN_LEASE,
    roles={
        Role.VIEWER: {"": READ},
        Role.EDITOR: {"": READ},
        Role.NODE: {"": GET | CREATE | CHANGE | DELETE},
        Role.SCHEDULER: {"": READ | CREATE | CHANGE},
        Role.CONTROLLER: {"": ALL},
        Role.APISERVER: {"": READ},
    },
    columns=(NAME, Column("Holder", at("spec", "holderIdentity", default="")), AGE),
)
