"""One real `livesize up` on each runtime that runs containers, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.up import Up, running_up


@pytest.fixture(scope="module", params=["process", "containerd"])
def up_on_each_runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Up]:
    if request.param == "containerd":
        request.getfixturevalue("needs_containerd")
    directory = tmp_path_factory.mktemp(f"up-{request.param}")
    with running_up(directory, runtime=request.param, allocatable="cpu=8,memory=4Gi") as running:
        yield running


@pytest.fixture
def up(up_on_each_runtime: Up) -> Iterator[Up]:
    """Without pods: a test that fails takes no room from the next one."""
    yield up_on_each_runtime
    for pod in up_on_each_runtime.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]:
        up_on_each_runtime.delete_pod(pod["metadata"]["name"])
