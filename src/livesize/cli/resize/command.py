"""`livesize resize`: asks pods and workloads for a size, and with --wait shows that it happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from livesize.api.errors import StatusError
from livesize.api.kinds.pod_resource import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection
from livesize.api.objects import name_of
from livesize.api.requested_action import SPELLINGS
from livesize.api.resources import ResourceName
from livesize.cli.completion import complete_cells, complete_resizable
from livesize.cli.connection import (
    CommandFailure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    refusal_sentence,
    run_with_client,
    unreachable_sentence,
)
from livesize.cli.output import Format, list_object, print_table, print_value
from livesize.cli.plain_text import plain_lines
from livesize.cli.resize.cells import parse_cells
from livesize.cli.resize.plan import RequestedSize, ResizeRefusal, parse_requested_size
from livesize.cli.resize.pod import resize_pod
from livesize.cli.resize.request import Interrupted, ResizeCommand, ResizeFailure, ResizeOutcome
from livesize.cli.targets import (
    CommandTarget,
    Duration,
    label_of,
    parse_resizable,
    parse_resizable_kinds,
)

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_MOST_AT_ONCE = 20


@click.command()
@click.argument("targets", nargs=-1, metavar="KIND/NAME...", shell_complete=complete_resizable)
@namespace_option
@click.option("-l", "--selector", "labels", default="", metavar="LABELS", help="app=db,tier!=test")
@click.option("-c", "--container", default="", help="Which container; needed if there are several.")
@click.option("--cpu", default="", metavar="X|REQUEST:LIMIT", help="2, 500m, +500m, 500m:1")
@click.option("--memory", default="", metavar="X|REQUEST:LIMIT", help="4Gi, -64Mi, 256Mi:512Mi")
@click.option(
    *("--numa", "cells"),
    multiple=True,
    metavar="CELL=SIZE",
    shell_complete=complete_cells,
    help="Of a VM: the memory of one NUMA cell, 1=1Gi, 0=+512Mi; again for another.",
)
@click.option("--request-cpu", default="", metavar="X")
@click.option("--limit-cpu", default="", metavar="X")
@click.option("--request-memory", default="", metavar="X")
@click.option("--limit-memory", default="", metavar="X")
@click.option("--undo", is_flag=True, help="Of a workload: back to the sizes before the last ones.")
@click.option(
    "--action",
    type=click.Choice(list(SPELLINGS)),
    help="Of a workload: what may be done to its pods; written on it as resizeAction.  [default:"
    " what stands on it, else InPlaceResizePreferred]",
)
@click.option("--wait/--no-wait", default=False, show_default=True, help="Until it has happened.")
@click.option("--timeout", "patience", type=Duration(), default="60s", show_default=True)
@click.option(
    *("-o", "--output", "output"),
    type=click.Choice([form.value for form in Format]),
    default=Format.TABLE.value,
    show_default=True,
)
@click.option("--dry-run", is_flag=True, help="Let the server check it; change nothing.")
@kubeconfig_option
def resize(targets: tuple[str, ...], namespace: str, kubeconfig: str, **options: Any) -> None:
    """Change CPU and memory of running pods, containers or virtual machines, without restarting
    them. Of a StatefulSet or a Deployment the template is changed, and the pods that run are
    resized in place.

    A single size keeps the shape of the container: the limit where there is one, and the request
    too where it was the same. A sign makes it a change of what is asked for now: +64Mi is 64Mi
    more, -500m half a CPU less.

    The memory of a virtual machine with NUMA cells is the sum of its cells: name the ones that
    change, and --memory follows.

    What becomes of a workload's pods is said by --action, or by what stands on the workload. Where
    nothing does, this command asks for InPlaceResizePreferred: a pod is recreated only if it cannot
    be resized where it is. InPlaceResize never recreates; Restart recreates all of them.

    \b
    Examples:
      livesize resize pod/db --cpu 2 --memory 4Gi --wait
      livesize resize pod/db -c app --cpu 500m:1
      livesize resize pod/db --memory +512Mi
      livesize resize pod/db --limit-memory 1Gi --dry-run
      livesize resize pod/vm1 --cpu 4 --memory 2Gi --wait
      livesize resize pod/vm1 --numa 1=1Gi --wait
      livesize resize pod/vm1 --numa 0=-256Mi --numa 1=+256Mi
      livesize resize statefulset/db --cpu 2 --memory 4Gi --wait
      livesize resize sts/db deploy/web --memory 1Gi --action InPlaceResize
      livesize resize statefulset/db --undo --wait
      livesize resize -l app=web --cpu 2 --dry-run
      livesize resize pods -l app=web --cpu +250m
    """
    sizes = {resource: _requested_size(resource, options) for resource in ResourceName}
    given = {resource: size for resource, size in sizes.items() if size != RequestedSize()}
    labels, undo, action = options["labels"], options["undo"], SPELLINGS.get(options["action"])
    cells = _requested_cells(options["cells"])
    if undo and (given or cells):
        raise click.UsageError("--undo brings former sizes back: give no other")
    if not given and not cells and not undo:
        raise click.UsageError("say what to change: --cpu, --memory, or one of their sides")
    kinds = parse_resizable_kinds(targets) if labels else []
    named = [] if labels else parse_resizable(targets)
    if (undo or action) and PODS in (*kinds, *(target.resource for target in named)):
        raise click.UsageError("--undo and --action are for workloads, not for pods")
    if cells and {*kinds, *(target.resource for target in named)} != {PODS}:
        raise click.UsageError("--numa is for pods that are virtual machines, not for workloads")
    namespace = default_namespace(kubeconfig, namespace)

    def request(target: CommandTarget) -> ResizeCommand:
        return ResizeCommand(
            resource=target.resource,
            name=target.names[0],
            namespace=namespace,
            container=options["container"],
            sizes=given,
            form=Format(options["output"]),
            patience_seconds=options["patience"] if options["wait"] else None,
            dry_run=options["dry_run"],
            undo=undo,
            action=action,
            cells=cells,
        )

    async def work(client: HttpClient) -> int:
        found = await _select(client, kinds, namespace, labels) if labels else named
        requests = [request(target) for target in found]
        if len(requests) == 1:
            await _resize_one(client, requests[0])
            return 0
        return await _resize_several(client, requests, kubeconfig)

    if code := run_with_client(kubeconfig, work):
        raise SystemExit(code)


def _requested_size(resource: ResourceName, options: dict[str, Any]) -> RequestedSize:
    word = options[resource.value]
    request, limit = options[f"request_{resource.value}"], options[f"limit_{resource.value}"]
    size = parse_requested_size(word, request, limit)
    if isinstance(size, ResizeRefusal):
        raise click.UsageError(f"--{resource.value}: {size.sentence}")
    return size


def _requested_cells(words: tuple[str, ...]) -> dict[int, str]:
    cells = parse_cells(words)
    if isinstance(cells, ResizeRefusal):
        raise click.UsageError(f"--numa: {cells.sentence}")
    return cells


async def _select(
    client: HttpClient, kinds: Sequence[Resource], namespace: str, labels: str
) -> list[CommandTarget]:
    from livesize.client.pages import list_all

    found = []
    for kind in kinds:
        listing = await list_all(client, kind, Selection(namespace=namespace, labels=labels))
        found += [CommandTarget(kind, (name,)) for name in sorted(map(name_of, listing.items))]
    if not found:
        words = " or ".join(kind.plural for kind in kinds)
        raise CommandFailure(
            f"there are no {words} with labels {labels} in namespace {namespace};"
            f" `livesize get {','.join(kind.plural for kind in kinds)}` shows what there is"
        )
    return found


async def _resize(client: HttpClient, request: ResizeCommand) -> ResizeOutcome:
    if request.resource == PODS:
        return await resize_pod(client, request)
    from livesize.cli.resize.workload import resize_workload

    return await resize_workload(client, request)


async def _resize_one(client: HttpClient, request: ResizeCommand) -> None:
    try:
        _show([await _resize(client, request)], request.form)
    except ResizeFailure as failure:
        _show_tables(failure, request.form)
        raise


async def _resize_several(
    client: HttpClient, requests: Sequence[ResizeCommand], kubeconfig: str
) -> int:
    """Each of them for itself: what one cannot do keeps no other from it. The exit code."""
    from livesize.client.http import ServerUnreachableError
    from livesize.client.kubeconfig import find_kubeconfig

    form, turns = requests[0].form, asyncio.Semaphore(_MOST_AT_ONCE)

    async def settle(request: ResizeCommand) -> ResizeOutcome | CommandFailure:
        try:
            async with turns:
                return await _resize(client, request)
        except CommandFailure as failure:
            return failure
        except ServerUnreachableError as error:
            return CommandFailure(unreachable_sentence(error))
        except StatusError as refusal:
            return CommandFailure(refusal_sentence(refusal, find_kubeconfig(kubeconfig)))
        except asyncio.CancelledError:
            label = label_of(request.resource, request.name)
            return Interrupted(f"{label}: stopped before it was asked, or before the answer came")

    tasks: list[asyncio.Task[ResizeOutcome | CommandFailure]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(settle(request)) for request in requests]
    except asyncio.CancelledError:  # Ctrl-C: each of them has said how it stands
        pass
    settled = [task.result() for task in tasks]
    _show([one for one in settled if isinstance(one, ResizeOutcome)], form)
    failures = [one for one in settled if isinstance(one, CommandFailure)]
    for failure in failures:
        _show_tables(failure, form)
        failure.show()
    return max((failure.exit_code for failure in failures), default=0)


def _show_tables(failure: CommandFailure, form: Format) -> None:
    if isinstance(failure, ResizeFailure) and form in (Format.TABLE, Format.WIDE):
        for table in failure.tables:
            print_table(table)


def _show(outcomes: Sequence[ResizeOutcome], form: Format) -> None:
    match form:
        case Format.JSON | Format.YAML:
            objects = [outcome.after for outcome in outcomes]
            print_value(objects[0] if len(objects) == 1 else list_object(objects), form)
        case Format.NAME:
            for outcome in outcomes:
                click.echo(outcome.request.label)
        case Format.TABLE | Format.WIDE:
            for outcome in outcomes:
                click.echo(plain_lines(f"{outcome.request.label} {outcome.sentence}"))
                for table in outcome.tables:
                    print_table(table)
