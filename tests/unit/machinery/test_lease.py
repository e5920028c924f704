"""A heartbeat: made once, renewed on time, tried again soon when it fails, taken over when lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from livesize.api.errors import StatusError
from livesize.api.objects import Object, evolve
from livesize.machinery.lease import LeaseTerms, keep_lease, new_lease, renewed_lease
from virtual_time import CLOCK, virtual_context, virtual_time

TERMS = LeaseTerms("n1", "n1")


class Record:
    """A lease with a version, and failures to come."""

    def __init__(self, failures: list[Exception] | None = None) -> None:
        self.lease: Object | None = None
        self.failures = failures or []
        self.times: list[float] = []
        self.calls: list[str] = []

    async def load(self) -> Object | None:
        self.calls.append("load")
        return self.lease

    async def create(self, lease: Object) -> Object:
        return self._write("create", lease)

    async def update(self, lease: Object) -> Object:
        return self._write("update", lease)

    def _write(self, call: str, lease: Object) -> Object:
        self.calls.append(call)
        self.times.append(CLOCK.monotonic())
        if self.failures:
            raise self.failures.pop(0)
        version = str(len(self.calls))
        self.lease = evolve(lease, ("metadata", "resourceVersion"), version)
        return self.lease

    async def run(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await keep_lease(self, TERMS, context=virtual_context())


@virtual_time
async def test_it_is_made_once_and_then_renewed_on_time() -> None:
    record = Record()
    await record.run(25)
    assert record.calls == ["load", "create", "update", "update"]
    assert record.times == [0.0, 10.0, 20.0]
    assert record.lease is not None
    assert record.lease["spec"] == {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
        "acquireTime": "2027-01-15T08:00:00.000000Z",
        "renewTime": "2027-01-15T08:00:20.000000Z",
    }


@virtual_time
async def test_a_failure_is_tried_again_soon_from_what_is_really_there() -> None:
    conflict = StatusError(409, "Conflict", "changed")
    record = Record([ConnectionError("down"), conflict])
    await record.run(12)
    assert record.calls == ["load", "create", "load", "create", "load", "create", "update"]
    waits = [later - earlier for earlier, later in itertools.pairwise(record.times)]
    assert waits[0] <= 0.2
    assert waits[1] <= 0.4
    assert waits[2] == pytest.approx(10.0)


def test_a_new_holder_acquires_and_the_same_one_only_renews() -> None:
    lease = new_lease(TERMS, 0.0, {"kind": "Node", "name": "n1"})
    assert lease["metadata"]["ownerReferences"] == [{"kind": "Node", "name": "n1"}]
    same = renewed_lease(lease, TERMS, 60.0)["spec"]
    assert (same["acquireTime"], same["renewTime"]) == (
        "1970-01-01T00:00:00.000000Z",
        "1970-01-01T00:01:00.000000Z",
    )
    other = renewed_lease(lease, LeaseTerms("n1", "n2"), 60.0)["spec"]
    assert other["holderIdentity"] == "n2"
    assert other["acquireTime"] == other["renewTime"]
