"""A lease that the election writes into the store is a lease like any other to the API server."""

from __future__ import annotations

import pytest

from livesize.api.errors import StatusError
from livesize.api.kinds.lease import LEASES
from livesize.api.objects import Object, evolve
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.store_lease import StoreLease
from livesize.client.adapters import ClientLease
from livesize.machinery.context import system_context
from livesize.machinery.lease import LeaseTerms, new_lease
from livesize.store.interface import StoreUnavailableError
from livesize.store.memory import MemoryStore
from unit.apiserver.conftest import ADMIN, Rig

TERMS = LeaseTerms("livesize-scheduler", "a", "kube-system", 5, 1.0)


def record_of(store: MemoryStore) -> StoreLease:
    return StoreLease(store, TERMS.namespace, TERMS.name, system_context())


def held_by(lease: Object, holder: str) -> Object:
    return evolve(lease, ("spec", "holderIdentity"), holder)


async def test_the_api_server_serves_what_was_written_into_the_store(rig: Rig) -> None:
    record = record_of(rig.store)
    assert await record.load() is None
    made = await record.create(new_lease(TERMS, 1.0))
    client = DirectClient(rig.service, ADMIN)
    served = await client.get(LEASES, TERMS.name, TERMS.namespace)
    assert served == made == await record.load()
    assert served["metadata"].keys() >= {"uid", "creationTimestamp", "resourceVersion"}


async def test_store_and_server_take_each_others_versions(rig: Rig) -> None:
    record = record_of(rig.store)
    at_server = ClientLease(DirectClient(rig.service, ADMIN), TERMS.namespace, TERMS.name)
    lease = await at_server.create(new_lease(TERMS, 1.0))
    for holder in "bcde":
        one, other = (record, at_server) if holder in "bd" else (at_server, record)
        stale, lease = lease, await one.update(held_by(lease, holder))
        with pytest.raises(StatusError, match="has been modified") as refused:
            await other.update(held_by(stale, "z"))
        assert refused.value.code == 409
    assert (await record.load() or {})["spec"]["holderIdentity"] == "e"


async def test_of_two_that_create_it_one_is_refused(rig: Rig) -> None:
    await record_of(rig.store).create(new_lease(TERMS, 1.0))
    with pytest.raises(StatusError) as refused:
        await record_of(rig.store).create(new_lease(TERMS, 1.0))
    assert refused.value.code == 409


async def test_a_store_that_is_away_is_a_connection_that_failed() -> None:
    class Away(MemoryStore):
        async def get(self, key: str) -> None:
            raise StoreUnavailableError("etcd does not answer")

    with pytest.raises(ConnectionError, match="etcd does not answer"):
        await record_of(Away()).load()
