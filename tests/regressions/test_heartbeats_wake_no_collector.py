"""Every heartbeat of every node woke the garbage collector: a lease is owned by its node."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.kinds.lease import LEASES
from livesize.api.objects import Object, evolve
from livesize.client.informer import Delta
from livesize.controllers.garbage.reconcile import garbage_controller
from livesize.controllers.kit.watches import Watch
from virtual_time import virtual_context

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
LEASE: Object = {
    "metadata": {"name": "n1", "namespace": "kube-node-lease", "ownerReferences": [OWNER]},
    "spec": {"renewTime": "2027-01-15T08:00:00.000000Z"},
}


class NoOwners:
    def get(self, *_: Any) -> None:
        return None


def keys_of(old: Object | None, new: Object) -> list[str]:
    watches = garbage_controller(virtual_context()).watches
    watch: Watch = next(one for one in watches if one.resource is LEASES)
    return [key.name for key in watch.keys(Delta(old, new), NoOwners())]  # type: ignore[arg-type]


def test_a_heartbeat_is_no_news_to_the_collector() -> None:
    renewed = evolve(LEASE, ("spec", "renewTime"), "2027-01-15T08:00:10.000000Z")
    assert keys_of(LEASE, renewed) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ownerReferences", [{**OWNER, "uid": "u2"}]),
        ("deletionTimestamp", "2027-01-15T08:00:10Z"),
        ("finalizers", ["foregroundDeletion"]),
        ("uid", "another"),
    ],
)
def test_what_the_collector_reads_is(field: str, value: object) -> None:
    assert keys_of(LEASE, evolve(LEASE, ("metadata", field), value)) == ["n1"]
    assert keys_of(None, LEASE) == ["n1"]
