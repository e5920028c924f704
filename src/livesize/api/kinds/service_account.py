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

SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", True, "serviceaccount", ("sa",)
)


SERVICE_ACCOUNT = Kind(
    SERVICE_ACCOUNTS,
    roles=EDITED,
    columns=(NAME, Column("Secrets", entries("secrets"), "integer"), AGE),
)
