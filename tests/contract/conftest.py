"""A real etcd and a real kube-apiserver for the tests that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from etcd_servers import Member, cluster, find_etcd
from kube_servers import KubeServer, build_program, kube_server


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


@pytest.fixture(scope="session")
def _shared_kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    with kube_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def kubernetes(request: pytest.FixtureRequest, not_run: Callable[[str], NoReturn]) -> KubeServer:
    """Kubernetes' own API server, shared by the tests of a run; the first run builds it."""
    if find_etcd() is None:
        not_run("needs etcd")
    build_program("kube-apiserver", not_run)
    server: KubeServer = request.getfixturevalue("_shared_kubernetes")
    return server
