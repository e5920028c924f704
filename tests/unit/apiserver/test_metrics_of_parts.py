"""/metrics of an API server that runs controllers in its process has their numbers too."""

from __future__ import annotations

from livesize.apiserver.http.app import App
from livesize.controllers.kit.metrics import KitMetrics
from unit.apiserver.conftest import Rig, TokenNames


async def test_what_controllers_count_is_served(rig: Rig) -> None:
    metrics = KitMetrics()
    rig.app = App(
        rig.service,
        TokenNames(),
        rig.clock,
        version="test",
        is_ready=lambda: True,
        other_metrics=[metrics.families],
    )
    metrics.of("garbage").adds = 3
    text = (await rig.get("/metrics")).body.decode()
    assert 'workqueue_adds_total{name="garbage"} 3.0' in text
    assert "apiserver_storage_objects" in text
