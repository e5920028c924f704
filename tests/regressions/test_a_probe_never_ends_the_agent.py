"""What a pod says of its probes and hooks is the pod's problem, and nobody else's."""

from __future__ import annotations

import pytest

from livesize.agent.probes.checks import Prober
from livesize.api.objects import Object
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


@pytest.mark.parametrize("handler", [
    pytest.param({"tcpSocket": {"host": "a..b", "port": 80}}, id="no name of a host"),
    pytest.param({"tcpSocket": {"host": "a" * 70, "port": 80}}, id="a label that is too long"),
    pytest.param({"tcpSocket": {"port": "70000"}}, id="no port"),
    pytest.param({"httpGet": {"port": "70000"}}, id="no port of a page"),
    pytest.param({"httpGet": {"host": "a..b", "port": 80}}, id="no name of a page's host"),
])  # fmt: skip
async def test_a_probe_that_cannot_even_be_asked_fails(world: World, handler: Object) -> None:
    """An error that nobody expected ended the agent, with all its pods' owners."""
    await world.start()
    probe = {**handler, "failureThreshold": 1}
    await world.api.run_pod("odd", container(readinessProbe=probe))
    await world.until(lambda: "Unhealthy" in world.api.event_reasons("odd"), "it has failed")
    await world.api.run_pod("even", container())
    await world.running("even")


async def test_a_bug_of_ours_is_a_probe_that_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Prober, "ask", ask)
    await world.start()
    probe = {"exec": {"command": ["check"]}, "failureThreshold": 1}
    await world.api.run_pod("odd", container(readinessProbe=probe))
    await world.until(lambda: "Unhealthy" in world.api.event_reasons("odd"), "it has failed")
