"""The controllers, one list for `livesize up` and `livesize controllers`; and that command.

A new controller is a folder in livesize.controllers (plan.py, reconcile.py), and one row here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from livesize.client.interface import Client
from livesize.controllers.claims.reconcile import claims_controller
from livesize.controllers.deployment.reconcile import deployment_controller
from livesize.controllers.disruption.reconcile import disruption_controller
from livesize.controllers.garbage.reconcile import garbage_controller
from livesize.controllers.headless_names.reconcile import headless_names_controller
from livesize.controllers.in_place.reconcile import in_place_controller
from livesize.controllers.kit.loop import Controller, run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.controllers.node_lifecycle.reconcile import node_lifecycle_controller
from livesize.controllers.quota.reconcile import quota_controller
from livesize.controllers.replicaset.reconcile import replicaset_controller
from livesize.controllers.resize_deadline.reconcile import resize_deadline_controller
from livesize.controllers.statefulset.reconcile import stateful_set_controller
from livesize.machinery.context import Context
from livesize.main.settings.table import Part

CLUSTER: tuple[Callable[[Context], Controller[Any]], ...] = (
    garbage_controller,
    node_lifecycle_controller,
    quota_controller,
    disruption_controller,
    claims_controller,
    replicaset_controller,
    deployment_controller,
    stateful_set_controller,
    headless_names_controller,
)
"""What every Kubernetes cluster brings itself: they run on a Livesize API server only."""

OURS: tuple[Callable[[Context], Controller[Any]], ...] = (
    resize_deadline_controller,
    in_place_controller,
)
"""They read and write only what any Kubernetes API server serves, and run on every cluster."""


CHOICES = {"all": (*CLUSTER, *OURS), "ours": OURS}
"""By the setting ``controllers``."""


async def control(
    client: Client,
    context: Context,
    metrics: KitMetrics | None = None,
    controllers: str = "all",
) -> None:
    """Run the chosen ones, until cancelled."""
    made = [make(context) for make in CHOICES[controllers]]
    await run_controllers(made, client, context, metrics or KitMetrics())


def run_controllers_command(controllers: str, **settings: Any) -> None:
    from livesize.main.wiring.remote_process import run_remote_process

    metrics = KitMetrics()
    work = functools.partial(control, metrics=metrics, controllers=controllers)
    run_remote_process(Part.CONTROLLERS, work, metrics, **settings)
