"""Service accounts: as whom the programs in pods speak."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    entries,
)
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.roles import EDITED
from livesize.api.schema.fields import boolean, list_of
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.references import LocalObjectReference, ObjectReference

SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", True, "serviceaccount", ("sa",)
)


class ServiceAccount(TypedObject):
    secrets = list_of(ObjectReference, 2, key="name")
    imagePullSecrets = list_of(LocalObjectReference, 3, key="name")
    automountServiceAccountToken = boolean(4, keeps_zero=True)


SERVICE_ACCOUNT = Kind(
    SERVICE_ACCOUNTS,
    shape=ServiceAccount,
    roles=EDITED,
    columns=(NAME, Column("Secrets", entries("secrets"), "integer"), AGE),
)
