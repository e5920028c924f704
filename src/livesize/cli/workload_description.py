"""What `livesize describe` says of a workload: who asks for its resizes in place, its template's
sizes, how the last resize stands, and its pods. Pure, but for ``print_workload``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from livesize.api.conditions import find_condition
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.reasons import ConditionType
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_policy import POLICY_WORDS
from livesize.api.resources import ResourceName, parse_resources, resizable_of, resources_of
from livesize.api.workload_resize import (
    action_of,
    asks_in_place,
    hold_of,
    policy_for,
    previous_sizes,
    template_of,
)
from livesize.api.workload_status import current_status, last_status
from livesize.api.workloads import ready_cell
from livesize.cli.output import Table, print_table
from livesize.cli.plain_text import plain
from livesize.cli.resize.workload_follower import controller_of
from livesize.cli.resize.workload_plan import fallback_in_words
from livesize.cli.sizes import NOT_KNOWN, format_side, format_size, pod_sizes
from livesize.cli.tables import pod_status, resize_word, workload_resize_word
from livesize.cli.targets import WORKLOADS, label_of


def print_workload(resource: Resource, workload: Object, pods: Sequence[Object]) -> None:
    for line in workload_lines(resource, workload):
        click.echo(plain(line))
    click.echo()
    print_table(template_table(workload))
    for line in standing_lines(resource, workload):
        click.echo(plain(line))
    if pods:
        click.echo()
        print_table(pods_table(workload, pods))


def workload_lines(resource: Resource, workload: Object) -> list[str]:
    where = f"{label_of(resource, name_of(workload))} in {namespace_of(workload)}"
    state = f"{ready_cell(workload, 0.0)} pods ready, resize {workload_resize_word(workload)}"
    return [f"{where}, {state}", _who_asks(resource, workload)]


def _who_asks(resource: Resource, workload: Object) -> str:
    if resource.kind not in WORKLOADS:
        owner = controller_of(workload)
        if owner is None:
            return "A change of its sizes is for pods to come: those that run keep theirs"
        return f"Its sizes are those of {owner['kind'].lower()}/{owner['name']}; describe that"
    action = action_of(workload)
    if action is RequestedAction.RESTART:
        return "A change of its sizes is a rollout: resizeAction is Restart"
    if asks_in_place(workload):
        who = f"resizeAction is {action}" if action else "its resize policies ask for it"
        return f"A change of its sizes is made in place: {who}; {fallback_in_words(workload)}"
    return "A change of its sizes is a rollout, unless `livesize resize` asks for it"


def template_table(workload: Object) -> Table:
    """One row for each resource of each container. BEFORE: the last resize."""
    previous = previous_sizes(workload) or {}
    rows = []
    for container in resizable_of(template_of(workload)):
        name = container["name"]
        former = parse_resources(previous[name]) if name in previous else None
        rows += [
            (
                f"{name} {resource}",
                format_side(resource, resources_of(container)),
                format_side(resource, former),
                POLICY_WORDS[policy_for(workload, container, resource)],
            )
            for resource in ResourceName
        ]
    return Table(("", "TEMPLATE", "BEFORE", "ON RESIZE"), tuple(rows))


def standing_lines(resource: Resource, workload: Object) -> list[str]:
    """How the last resize stands; nothing where there was none, or the server does not say."""
    lines = []
    status, label = last_status(workload), label_of(resource, name_of(workload))
    if hold_of(workload) is not None:
        lines.append("Its rollout is held while its pods are resized")
        status = current_status(workload)  # not what was said of the one before
    if status is not None:
        lines.append(f"Resize of generation {status.generation}, {status.time}: {status.message}")
    if previous_sizes(workload) is not None:
        lines.append(f"Back to the sizes before it: `livesize resize {label} --undo`")
    return ["", *lines] if lines else []


def pods_table(workload: Object, pods: Sequence[Object]) -> Table:
    """RESIZE: what its node says; WAITS FOR: what the workload's resize says of the pod."""
    status = current_status(workload)
    noted = {} if status is None else {one.get("pod"): one for one in status.unfinished}
    rows = []
    for pod in pods:
        one = noted.get(name_of(pod), {})
        reasons = (one.get("reason"), one.get("message")) if one else _own_reason(pod)
        why = ": ".join(filter(None, reasons))
        sizes = pod_sizes(pod)
        rows.append(
            (
                name_of(pod),
                pod_status(pod),
                format_size(sizes.desired),
                format_size(sizes.actual),
                resize_word(pod),
                str(lookup(pod, "spec", "nodeName", default=NOT_KNOWN)),
                why or NOT_KNOWN,
            )
        )
    header = ("POD", "STATUS", "DESIRED", "ACTUAL", "RESIZE", "NODE", "WAITS FOR")
    return Table(header, tuple(rows))


def _own_reason(pod: Object) -> tuple[str | None, ...]:
    """What the scheduler or its node says, before the workload's report does, or after its end."""
    is_placed = lookup(pod, "spec", "nodeName") is not None
    kind = ConditionType.POD_RESIZE_PENDING if is_placed else ConditionType.POD_SCHEDULED
    condition = find_condition(pod, kind) or {}
    return condition.get("reason"), condition.get("message")
