"""`livesize delete`: asks for objects to go, and waits until they are gone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, uid_of, version_of
from livesize.cli.completion import complete_target
from livesize.cli.connection import (
    CommandFailure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.plain_text import plain
from livesize.cli.targets import Duration, label_of, parse_targets

if TYPE_CHECKING:
    from livesize.client.http import HttpClient


class ObjectDeletion(msgspec.Struct, frozen=True):
    """One object to delete. ``patience_seconds`` None: do not wait."""

    resource: Resource
    name: str
    namespace: str
    grace_seconds: int | None
    patience_seconds: float | None
    ignore_not_found: bool


@click.command()
@click.argument("targets", nargs=-1, metavar="KIND/NAME...", shell_complete=complete_target)
@namespace_option
@click.option("--grace-period", type=click.IntRange(min=0), help="Seconds a pod gets to stop.")
@click.option("--now", is_flag=True, help="The same as --grace-period 0.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is gone.")
@click.option("--timeout", "patience", type=Duration(), default="60s", show_default=True)
@click.option("--ignore-not-found", is_flag=True, help="What is not there is no failure.")
@kubeconfig_option
def delete(targets: tuple[str, ...], namespace: str, kubeconfig: str, **options: Any) -> None:
    """Delete objects.

    \b
    Examples:
      livesize delete pod/db
      livesize delete pod/db --now --no-wait
      livesize delete namespace/test
    """
    wanted = parse_targets(targets)
    if any(not target.names for target in wanted):
        raise click.UsageError("name the objects to delete: KIND/NAME")
    space = default_namespace(kubeconfig, namespace)
    deletions = [
        ObjectDeletion(
            resource=target.resource,
            name=name,
            namespace=space if target.resource.namespaced else "",
            grace_seconds=0 if options["now"] else options["grace_period"],
            patience_seconds=options["patience"] if options["wait"] else None,
            ignore_not_found=options["ignore_not_found"],
        )
        for target in wanted
        for name in target.names
    ]

    async def work(client: HttpClient) -> None:
        for deletion in deletions:
            await _delete(client, deletion)

    run_with_client(kubeconfig, work)


async def _delete(client: HttpClient, deletion: ObjectDeletion) -> None:
    label = label_of(deletion.resource, deletion.name)
    try:
        answer = await client.delete(
            deletion.resource,
            deletion.name,
            deletion.namespace,
            grace_period_seconds=deletion.grace_seconds,
        )
    except StatusError as refusal:
        if refusal.code == 404 and deletion.ignore_not_found:
            return
        raise
    if deletion.patience_seconds is not None:
        try:
            async with asyncio.timeout(deletion.patience_seconds):
                await _until_gone(client, deletion, _deleted_uid(answer))
        except TimeoutError:
            raise CommandFailure(
                f"{label} is still stopping after {deletion.patience_seconds:g} s; it goes on by"
                f" itself, `livesize delete {label} --now` hurries it"
            ) from None
    click.echo(plain(f"{label} deleted"))


def _deleted_uid(answer: Object) -> str:
    """A DELETE answers with the object, or with a Status that names it."""
    return str((answer.get("details") or {}).get("uid") or "") or uid_of(answer)


async def _until_gone(client: HttpClient, deletion: ObjectDeletion, uid: str) -> None:
    selection = Selection(namespace=deletion.namespace, fields=f"metadata.name={deletion.name}")
    while (here := await _present(client, deletion)) is not None:
        if uid and uid_of(here) != uid:
            return  # another object has taken the name
        try:
            stream = client.watch(deletion.resource, selection, resource_version=version_of(here))
            async with aclosing(stream):
                async for event in stream:
                    if event.type is WatchEventType.DELETED:
                        return
        except StatusError as refusal:
            if refusal.code != 410:
                raise


async def _present(client: HttpClient, deletion: ObjectDeletion) -> Object | None:
    try:
        return await client.get(deletion.resource, deletion.name, deletion.namespace)
    except StatusError as refusal:
        if refusal.code == 404:
            return None
        raise
