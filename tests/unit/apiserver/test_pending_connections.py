"""Connections whose clients have not said who they are: so many of an address, so many in all."""

from __future__ import annotations

import pytest

from livesize.apiserver.pending_connections import (
    LOCAL,
    PendingConnection,
    PendingConnections,
    PendingLimits,
    address_of,
)


class Standing:
    def __init__(self, **limits: int) -> None:
        self.pending = PendingConnections(PendingLimits(**limits))
        self.closed: list[str] = []

    def add(self, address: str, name: str) -> PendingConnection:
        return self.pending.add(address, lambda: self.closed.append(name))


def test_the_oldest_of_an_address_goes_for_its_newest() -> None:
    standing = Standing(per_address=2, in_all=100)
    for name in ("a1", "a2", "a3"):
        standing.add("192.0.2.1", name)
    standing.add("192.0.2.2", "b1")
    assert standing.closed == ["a1"]


def test_many_addresses_close_their_own_and_not_those_of_this_machine() -> None:
    standing = Standing(per_address=10, in_all=3)
    standing.add(LOCAL, "here")
    for number in range(6):
        standing.add(f"192.0.2.{number}", f"far{number}")
    assert standing.closed == ["far0", "far1", "far2", "far3"]
    assert len(standing.pending) == 3


def test_who_has_left_is_closed_for_nobody() -> None:
    standing = Standing(per_address=1, in_all=100)
    known = standing.add("192.0.2.1", "known")
    known.leave()
    known.leave()
    standing.add("192.0.2.1", "next")
    assert standing.closed == []
    assert len(standing.pending) == 1


@pytest.mark.parametrize(
    ("host", "counted_for"),
    [
        ("127.0.0.1", LOCAL),
        ("127.8.9.1", LOCAL),
        ("::1", LOCAL),
        ("::ffff:127.0.0.1", LOCAL),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_counts_for_one_machine(host: str, counted_for: str) -> None:
    assert address_of(host) == counted_for
