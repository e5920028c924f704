"""Stopping containers and sandboxes: their shim may be gone before containerd knows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from livesize.api.kernel_units import CgroupVersion
from livesize.machinery.clock import SystemClock
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.cri_client import CriClient, CriRefusedError
from livesize.runtime.containerd.group_layout import GroupLayout
from livesize.runtime.containerd.sandboxes import Sandboxes


class Refusing:
    """A client that refuses the first so many calls."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals
        self.graces: list[int] = []

    async def call(self, name: str, **arguments: Any) -> None:
        assert name == "StopContainer"
        self.graces.append(arguments["timeout"])
        if self.left:
            self.left -= 1
            raise CriRefusedError("StopContainer: failed to stop container: ttrpc: closed")


def containers(client: Refusing) -> Containers:
    return Containers(
        cast("CriClient", client), "n1", Path("/logs"), CgroupVersion.V2, SystemClock()
    )


@pytest.mark.parametrize("grace_seconds", [0.0, 5.0])
async def test_a_shim_that_ended_under_the_call_is_asked_for_again(grace_seconds: float) -> None:
    client = Refusing(2)
    await containers(client).stop("c1", grace_seconds)
    assert client.graces[-1] == 0
    assert len(client.graces) == 3


async def test_what_is_refused_again_and_again_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livesize.runtime.containerd.shim_exit.ENDING_DELAYS", (0.001, 0.001))
    client = Refusing(100)
    with pytest.raises(CriRefusedError, match="ttrpc: closed"):
        await containers(client).stop("c1", 0.0)
    assert len(client.graces) == 3


class RefusingSandbox:
    """A client to a containerd with one sandbox, which it refuses to stop so many times."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals
        self.calls: list[str] = []

    async def call(self, name: str, **_arguments: Any) -> Any:
        self.calls.append(name)
        if name == "StopPodSandbox" and self.left:
            self.left -= 1
            raise CriRefusedError("StopPodSandbox: failed to kill sandbox container: ttrpc: closed")
        return SimpleNamespace(items=[SimpleNamespace(id="s1")])


async def test_so_is_a_sandbox_and_the_pod_is_removed() -> None:
    client = RefusingSandbox(2)
    layout = cast("GroupLayout", None)  # it is not asked
    sandboxes = Sandboxes(cast("CriClient", client), "n1", Path("/logs"), layout, SystemClock())
    await sandboxes.remove("pod-one")
    assert client.calls == ["ListPodSandbox", *["StopPodSandbox"] * 3, "RemovePodSandbox"]
