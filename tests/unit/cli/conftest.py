"""One server for each module of tests that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.cli.small_system import Running, Shell


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def shell(running: Running) -> Iterator[Shell]:
    made = Shell(running.kubeconfig)
    yield made
    for kinds in ("statefulsets,deployments,replicasets", "pods"):
        names = made.ok(f"get {kinds} -o name").split()
        if names:
            made.ok(f"delete {' '.join(names)} --now")
