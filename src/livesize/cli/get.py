"""`livesize get`: shows objects, and with --watch every change of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
import msgspec

from livesize.api.container_state import start_failures
from livesize.api.errors import StatusError
from livesize.api.kinds.pod_resource import PODS
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, name_of, namespace_of, version_of
from livesize.cli.completion import complete_target
from livesize.cli.connection import (
    CLOCK,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.output import (
    Format,
    column_widths,
    format_row,
    list_object,
    print_table,
    print_value,
)
from livesize.cli.plain_text import plain, plain_json
from livesize.cli.tables import table_of
from livesize.cli.targets import CommandTarget, label_of, parse_targets

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_MOST_FAILURES = 5


class GetView(msgspec.Struct, frozen=True):
    """What the command shows, and how."""

    form: Format
    namespace: str  # empty: all
    labels: str
    watch: bool

    def selection(self, target: CommandTarget) -> Selection:
        fields = f"metadata.name={target.names[0]}" if target.names else ""
        namespace = self.namespace if target.resource.namespaced else ""
        return Selection(namespace=namespace, labels=self.labels, fields=fields)


@click.command()
@click.argument("targets", nargs=-1, metavar="KIND[/NAME]...", shell_complete=complete_target)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@click.option("-l", "--selector", "labels", default="", metavar="LABELS", help="app=db,tier!=test")
@click.option(
    *("-o", "--output", "output"),
    type=click.Choice([form.value for form in Format]),
    default=Format.TABLE.value,
    show_default=True,
)
@click.option("-w", "--watch", is_flag=True, help="Then show every change, until interrupted.")
@kubeconfig_option
def get(targets: tuple[str, ...], namespace: str, kubeconfig: str, **options: Any) -> None:
    """Show objects: pods with desired, allocated and actual sizes as request:limit.

    Of a virtual machine, -o wide also shows what its guest reports: vCPUs in use of those plugged
    in, and memory seen of that plugged in (the guest's kernel keeps some for itself).

    \b
    Examples:
      livesize get pods
      livesize get pods -A -o wide
      livesize get pod/db -o yaml
      livesize get pods -l app=db -w
      livesize get pvc,pv
      livesize get nodes
    """
    wanted = parse_targets(targets)
    everywhere = bool(options["all_namespaces"])
    if options["watch"] and (len(wanted) > 1 or len(wanted[0].names) > 1):
        raise click.UsageError("--watch shows one kind or one object at a time")
    if everywhere and any(target.names for target in wanted):
        raise click.UsageError("an object is named within one namespace: use -n, not -A")
    view = GetView(
        form=Format(options["output"]),
        namespace="" if everywhere else default_namespace(kubeconfig, namespace),
        labels=options["labels"],
        watch=options["watch"],
    )

    async def work(client: HttpClient) -> None:
        if view.watch:
            await _watch(client, wanted[0], view)
        else:
            await _show(client, wanted, view)

    run_with_client(kubeconfig, work)


async def _show(client: HttpClient, targets: Sequence[CommandTarget], view: GetView) -> None:
    found = [(target, await _fetch(client, target, view)) for target in targets]
    if view.form in (Format.JSON, Format.YAML):
        every = [obj for _, objects in found for obj in objects]
        single = len(every) == 1 and bool(targets[0].names)
        print_value(every[0] if single else list_object(every), view.form)
        return
    for place, (target, objects) in enumerate(_merged(found)):
        if place and view.form is not Format.NAME:
            click.echo()
        _print(target, objects, view)


async def _fetch(client: HttpClient, target: CommandTarget, view: GetView) -> list[Object]:
    if target.names:
        namespace = view.namespace if target.resource.namespaced else ""
        return [await client.get(target.resource, name, namespace) for name in target.names]
    listing = await client.list(target.resource, view.selection(target))
    return sorted(listing.items, key=lambda obj: (namespace_of(obj), name_of(obj)))


def _merged(
    found: Sequence[tuple[CommandTarget, list[Object]]],
) -> list[tuple[CommandTarget, list[Object]]]:
    """Objects of one kind share a table."""
    merged: list[tuple[CommandTarget, list[Object]]] = []
    for target, objects in found:
        if merged and merged[-1][0].resource is target.resource:
            merged[-1][1].extend(objects)
        else:
            merged.append((target, list(objects)))
    return merged


def _print(target: CommandTarget, objects: Sequence[Object], view: GetView) -> None:
    if view.form is Format.NAME:
        for obj in objects:
            click.echo(plain(label_of(target.resource, name_of(obj))))
        return
    if not objects:
        where = f" in namespace {view.namespace}" if view.namespace else ""
        scope = where if target.resource.namespaced else ""
        click.echo(f"There are no {target.resource.plural}{scope}.", err=True)
        return
    print_table(
        table_of(
            target.resource,
            objects,
            CLOCK.now(),
            wide=view.form is Format.WIDE,
            all_namespaces=not view.namespace,
        )
    )
    if target.resource == PODS:
        print_failures(objects)


def print_failures(pods: Sequence[Object]) -> None:
    """Below the table, whose one word says neither the cause nor the remedy."""
    failures = [f"pod/{name_of(pod)}: {one}" for pod in pods for one in start_failures(pod)]
    for line in failures[:_MOST_FAILURES]:
        click.echo(plain(line), err=True)
    if len(failures) > _MOST_FAILURES:
        more = len(failures) - _MOST_FAILURES
        click.echo(f"and {more} more: `livesize describe pod/NAME` says why", err=True)


async def _watch(client: HttpClient, target: CommandTarget, view: GetView) -> None:
    lines = _WatchedLines(target, view)
    while True:
        listing = await client.list(target.resource, view.selection(target))
        lines.show(sorted(listing.items, key=lambda obj: (namespace_of(obj), name_of(obj))))
        try:
            await _follow(client, target, view, listing.resource_version, lines)
        except StatusError as refusal:
            if refusal.code != 410:  # 410: too much happened meanwhile, so look at all of it again
                raise


async def _follow(
    client: HttpClient, target: CommandTarget, view: GetView, version: str, lines: _WatchedLines
) -> None:
    while True:
        stream = client.watch(target.resource, view.selection(target), resource_version=version)
        async with aclosing(stream):
            async for event in stream:
                version = version_of(event.object) or version
                if event.type is not WatchEventType.BOOKMARK:
                    lines.show([event.object])


class _WatchedLines:
    """Prints objects one line each, keeping the columns of what came before."""

    def __init__(self, target: CommandTarget, view: GetView) -> None:
        self._target = target
        self._view = view
        self._widths: tuple[int, ...] = ()

    def show(self, objects: Sequence[Object]) -> None:
        match self._view.form:
            case Format.JSON:
                for obj in objects:
                    click.echo(plain_json(json.dumps(obj, ensure_ascii=False)))
            case Format.YAML:
                for obj in objects:
                    click.echo("---")
                    print_value(obj, Format.YAML)
            case Format.NAME:
                for obj in objects:
                    click.echo(plain(label_of(self._target.resource, name_of(obj))))
            case Format.TABLE | Format.WIDE:
                self._rows(objects)

    def _rows(self, objects: Sequence[Object]) -> None:
        table = table_of(
            self._target.resource,
            objects,
            CLOCK.now(),
            wide=self._view.form is Format.WIDE,
            all_namespaces=not self._view.namespace,
        )
        known = [tuple("·" * width for width in self._widths)] if self._widths else []
        widths = column_widths([table.header, *table.rows, *known])
        rows = table.rows if self._widths else (table.header, *table.rows)
        self._widths = widths
        for row in rows:
            click.echo(format_row(row, widths))
