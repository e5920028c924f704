"""`livesize describe`: each size of a pod, what a resize does, the last resize and its steps; of a
workload, how its resize stands (workload_description.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from livesize.api.container_state import start_failures
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.resize_policy import listed_policy, mapped_policy, shown_policy
from livesize.api.resources import ResourceName, is_vm, resizable_of
from livesize.cli.completion import complete_described
from livesize.cli.connection import (
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.output import Table, print_table
from livesize.cli.plain_text import plain
from livesize.cli.sizes import container_sizes, format_amount, format_side
from livesize.cli.tables import pod_status, resize_word, table_of
from livesize.cli.targets import DESCRIBED, parse_resizable
from livesize.cli.vm_words import guest_table, vm_lines
from livesize.machinery.clock import SystemClock

if TYPE_CHECKING:
    from livesize.client.http import HttpClient


@click.command()
@click.argument("target", metavar="KIND/NAME", shell_complete=complete_described)
@namespace_option
@kubeconfig_option
def describe(target: str, namespace: str, kubeconfig: str) -> None:
    """Show all about the sizes of a pod: desired, allocated and actual of each container, what a
    change of each does (also where it is the default), its last resize step by step, and events.
    Of a StatefulSet or a Deployment, the sizes of its template and of its pods, who asks for its
    resizes in place, how the last one stands, and the way back. Of a ReplicaSet, its pods.

    \b
    Examples:
      livesize describe pod/db
      livesize describe statefulset/db
    """
    (parsed,) = parse_resizable([target], DESCRIBED)
    namespace = default_namespace(kubeconfig, namespace)
    resource, (name,) = parsed.resource, parsed.names

    async def work(client: HttpClient) -> None:
        found = await client.get(resource, name, namespace)
        fields = f"involvedObject.name={name},involvedObject.kind={resource.kind}"
        listing = await client.list(EVENTS, Selection(namespace=namespace, fields=fields))
        if resource == PODS:
            _print_pod(found)
        else:
            from livesize.cli.resize.workload_follower import read_pods
            from livesize.cli.workload_description import print_workload

            print_workload(resource, found, await read_pods(client, resource, found))
        if listing.items:
            click.echo()
            events = sorted(listing.items, key=_last_seen)
            now = SystemClock().now()
            print_table(table_of(EVENTS, events, now, wide=False, all_namespaces=False))

    run_with_client(kubeconfig, work)


def _print_pod(pod: Object) -> None:
    for line in summary_lines(pod):
        click.echo(plain(line))
    click.echo()
    print_table(size_table(pod))
    guest = guest_table(pod)
    if guest.rows:
        click.echo()
        print_table(guest)
    for line in vm_lines(pod) if is_vm(pod) else ():
        click.echo(plain(line))
    for line in resize_lines(pod):
        click.echo(plain(line))
    steps = step_table(pod)
    if steps.rows:
        print_table(steps)


def summary_lines(pod: Object) -> list[str]:
    node = lookup(pod, "spec", "nodeName", default="none yet")
    quality = lookup(pod, "status", "qosClass", default="-")
    return [
        f"pod/{name_of(pod)} in {namespace_of(pod)}, on node {node}",
        f"Status {pod_status(pod)}, QoS class {quality}, resize {resize_word(pod)}",
        *start_failures(pod),
    ]


def size_table(pod: Object) -> Table:
    """One row for each resource of each container. ON RESIZE: what a change of it does."""
    rows = []
    sizes = container_sizes(pod)
    for container in resizable_of(pod):
        name = container["name"]
        policy, here = shown_policy(container, name), sizes[name]
        for resource in ResourceName:
            allocated = None if here.allocated is None else here.allocated.amount(resource)
            rows.append(
                (
                    f"{name} {resource}",
                    format_side(resource, here.desired),
                    format_amount(resource, allocated),
                    format_side(resource, here.actual),
                    policy[resource] + ("" if _is_said(container, resource) else " (default)"),
                )
            )
    return Table(("", "DESIRED", "ALLOCATED", "ACTUAL", "ON RESIZE"), tuple(rows))


def _is_said(container: Object, resource: ResourceName) -> bool:
    said = (listed_policy(container, resource), mapped_policy(container, resource))
    return said != (None, None)


def resize_lines(pod: Object) -> list[str]:
    """The last resize; nothing where there was none, or the server does not say."""
    state = lookup(pod, "status", "resizeState", default={})
    if state.get("phase", "None") == "None":
        return []
    who, when = state.get("requestedBy", "-"), state.get("transitionTime", "-")
    action = f", resizeAction {state['action']}" if state.get("action") else ""
    sentence = f"Resize {state['phase']} since {when}, asked by {who}"
    return ["", f"{sentence} at generation {state.get('generation')}{action}", state["message"]]


def step_table(pod: Object) -> Table:
    rows = [
        (
            str(step.get("name")),
            f"{1000 * float(step.get('seconds', 0)):.1f} ms",
            ": ".join(filter(None, (step.get("outcome"), step.get("message")))),
        )
        for step in lookup(pod, "status", "resizeState", "steps", default=[])
    ]
    return Table(("STEP", "TOOK", "OUTCOME"), tuple(rows))


def _last_seen(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
