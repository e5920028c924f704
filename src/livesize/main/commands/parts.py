"""The commands that run Livesize: `up` all of it, the others one part each."""

from __future__ import annotations

from typing import Any

import click

from livesize.main.settings.options import part_options
from livesize.main.settings.table import Part


@click.command()
@part_options(Part.UP)
def up(**settings: Any) -> None:
    """Start Livesize on this machine: API server, scheduler and node agent.

    \b
    Examples:
      livesize up
      livesize up --data-dir ./data --listen 127.0.0.1:0 --allocatable cpu=2,memory=4Gi
      livesize up --store etcd --etcd-endpoints http://10.0.0.1:2379,http://10.0.0.2:2379
      KUBECONFIG=/var/lib/livesize/kubeconfig kubectl get pods
    """
    from livesize.main.wiring.up import UpOptions, run_up

    run_up(UpOptions(**settings))


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
    from livesize.main.wiring.apiserver_process import run_apiserver
    from livesize.main.wiring.apiserver_setup import ApiServerOptions

    run_apiserver(ApiServerOptions(**given))


@click.command()
@part_options(Part.SCHEDULER)
def scheduler(**given: Any) -> None:
    """Run a scheduler. Of several, one works; when it ends, another goes on within seconds.

    \b
    Examples:
      livesize scheduler --kubeconfig /etc/livesize/scheduler.kubeconfig
      livesize scheduler --kubeconfig FILE --server https://10.0.0.1:7443,https://10.0.0.2:7443
    """
    from livesize.main.wiring.scheduler import run_scheduler

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
    from livesize.main.wiring.controllers import run_controllers_command

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
    from livesize.main.wiring.agent_process import AgentOptions, run_agent

    run_agent(AgentOptions(**given))
