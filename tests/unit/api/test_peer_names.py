"""Names of the pods of a headless service: what is read from a pod, and the lines it gets."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.peer_names import PEERS, format_peers, parse_peers, peer_lines


def a_pod(said: str = "", **spec: Any) -> Object:
    metadata = {"name": "db-0", "namespace": "shop", "annotations": {PEERS: said} if said else {}}
    return {"metadata": metadata, "spec": {"subdomain": "db", **spec}}


@pytest.mark.parametrize(("said", "peers"), [
    ("", {}),
    ("no json", {}),
    ("[]", {}),
    ('{"a": 1}', {}),
    ('{"\\ud800": "10.0.0.1"}', {}),
    ('{"a": "10.0.0.1", "b": "fd00::2"}', {"a": "10.0.0.1", "b": "fd00::2"}),
    ('{"a": "10.0.0.1\\n127.0.0.1 localhost"}', {}),
    ('{"a b": "10.0.0.1", "c\\n10.0.0.3 d": "10.0.0.2", "": "10.0.0.4"}', {}),
])  # fmt: skip
def test_what_is_no_name_or_no_address_is_left_out(said: str, peers: Any) -> None:
    assert parse_peers(a_pod(said)) == peers


def test_the_lines_of_a_pod() -> None:
    said = format_peers({"db-1": "10.0.0.2", "db-0": "10.0.0.9"})
    assert list(peer_lines(a_pod(said), "10.0.0.1")) == [
        ("10.0.0.1", "db-0.db.shop.svc.cluster.local", "db-0.db.shop", "db-0.db", "db-0"),
        ("10.0.0.2", "db-1.db.shop.svc.cluster.local", "db-1.db.shop", "db-1.db", "db-1"),
    ], "its own address is the one it knows itself"
    ((_, *names),) = peer_lines(a_pod(hostname="first"), "10.0.0.1")
    assert names[-1] == "first"
