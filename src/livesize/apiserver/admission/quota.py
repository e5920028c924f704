"""Decides what a change costs each ResourceQuota of its namespace, and whether they bear it. Pure.

Only what a person asks for can be refused. What a node reports is a fact: it is charged all the
same, so that used never says less than there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, name_of
from livesize.api.quota import (
    format_used,
    hard_of,
    unspecified,
    usage_of,
    used_of,
    with_status,
)
from livesize.api.quota_rule import QuotaUsage
from livesize.apiserver.admission.plan import AdmissionRefusal


class CountedChange(msgspec.Struct, frozen=True):
    """One change of one object. ``refusable``: a client sent it, and a quota may refuse it."""

    resource: Resource
    old: Object | None
    new: Object | None
    refusable: bool

    @property
    def sets_limits(self) -> bool:
        """A quota that is new, or limits something else than before."""
        if self.resource != RESOURCE_QUOTAS or self.new is None:
            return False
        return self.old is None or self.old.get("spec") != self.new.get("spec")


def plan_charge(
    quotas: Sequence[Object], change: CountedChange
) -> tuple[Object, ...] | AdmissionRefusal:
    """The quotas that change, as they are to be stored with the change; or why it may not be."""
    charged = []
    for quota in quotas:
        delta = _delta(quota, change)
        if change.refusable:
            refusal = _refuse(quota, change, delta)
            if refusal is not None:
                return refusal
        if delta:
            used = used_of(quota)
            after = {
                name: max(0, used.get(name, 0) + delta.get(name, 0))
                for name in used.keys() | delta.keys()
            }
            charged.append(with_status(quota, after))
    return tuple(charged)


def _delta(quota: Object, change: CountedChange) -> QuotaUsage:
    before = usage_of(quota, change.resource, change.old)
    after = usage_of(quota, change.resource, change.new)
    changed = {
        name: after.get(name, 0) - before.get(name, 0) for name in before.keys() | after.keys()
    }
    return {name: amount for name, amount in changed.items() if amount}


def _refuse(quota: Object, change: CountedChange, delta: QuotaUsage) -> AdmissionRefusal | None:
    if change.old is None and change.new is not None:
        silent = unspecified(quota, change.resource, change.new)
        if silent:
            return AdmissionRefusal(
                f"failed quota: {name_of(quota)}: must specify {'; '.join(silent)}"
            )
    hard, used = hard_of(quota), used_of(quota)
    over = sorted(
        name
        for name, amount in delta.items()
        if amount > 0 and name in hard and used.get(name, 0) + amount > hard[name]
    )
    if not over:
        return None
    requested, already, limited = (
        ",".join(f"{name}={format_used(name, amounts.get(name, 0))}" for name in over)
        for amounts in (delta, used, hard)
    )
    return AdmissionRefusal(
        f"exceeded quota: {name_of(quota)}, requested: {requested}, used: {already},"
        f" limited: {limited}"
    )
