"""The commands that run one part of Livesize each: apiserver, scheduler, controllers, agent."""

from __future__ import annotations

from typing import Any

import click

from livesize.main.part_options import part_options
from livesize.main.settings_table import Part


@click.command()
@part_options(Part.APISERVER)
def apiserver(**given: Any) -> None:
    """Run the API server alone; scheduler, controllers and agents speak to it from elsewhere.

    \b
    Examples:
      livesize apiserver --listen 0.0.0.0:7443
      livesize apiserver --listen 0.0.0.0:7443 --store etcd --etcd-endpoints https://10.0.0.5:2379
      livesize apiserver --config /etc/livesize/apiserver.yaml
    """
    from livesize.main.apiserver import run_apiserver
    from livesize.main.door_options import DoorOptions

    run_apiserver(DoorOptions(**given))


@click.command()
@part_options(Part.SCHEDULER)
def scheduler(**given: Any) -> None:
    """Run a scheduler. Of several, one works; when it ends, another goes on within seconds.

    \b
    Examples:
      livesize scheduler --kubeconfig /etc/livesize/scheduler.kubeconfig
      livesize scheduler --kubeconfig FILE --server https://10.0.0.1:7443,https://10.0.0.2:7443
    """
    from livesize.main.scheduler import run_scheduler

    run_scheduler(**given)


@click.command()
@part_options(Part.CONTROLLERS)
def controllers(**given: Any) -> None:
    """Run the controllers: garbage, quotas, silent nodes. Of several, one process works.

    \b
    Examples:
      livesize controllers --kubeconfig /etc/livesize/controllers.kubeconfig
      livesize controllers --config /etc/livesize/controllers.yaml
    """
    from livesize.main.controllers import run_controllers_command

    run_controllers_command(**given)


@click.command()
@part_options(Part.AGENT)
def agent(**given: Any) -> None:
    """Run the pods of this machine for API servers elsewhere. Join first: `livesize join`.

    Pods go on when it is stopped, and are found again when it is started.

    \b
    Examples:
      livesize agent
      livesize agent --server https://10.0.0.1:7443,https://10.0.0.2:7443
      livesize agent --kubeconfig ./worker-1.kubeconfig --allocatable cpu=2,memory=4Gi
    """
    from livesize.main.agent import AgentCommand, run_agent

    run_agent(AgentCommand(**given))
