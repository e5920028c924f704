"""A real etcd for the tests that ask for one; it says so where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from etcd_servers import Member, cluster, find_etcd


@pytest.fixture(scope="session")
def _shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with cluster(tmp_path_factory.mktemp("etcd")) as [member]:
        yield member


@pytest.fixture
def etcd(request: pytest.FixtureRequest, not_run: Callable[[str], NoReturn]) -> Member:
    """One member, shared by many tests: each uses keys of its own."""
    if find_etcd() is None:
        not_run("needs etcd")
    member: Member = request.getfixturevalue("_shared_etcd")
    return member
