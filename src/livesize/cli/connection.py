"""How a command reaches the server, and how it says that something went wrong.

``run_with_client(kubeconfig, work)`` runs ``work(client)`` and turns every expected failure into
one sentence on stderr with exit code 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from livesize.cli.plain_text import plain_lines
from livesize.cli.targets import find_resource
from livesize.machinery.clock import Clock, SystemClock

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

CLOCK: Clock = SystemClock()
"""The time of a command: its ages, its waits."""

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])


class CommandFailure(click.ClickException):
    """The command did not do its work. Exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"livesize: {plain_lines(self.format_message())}", err=True, file=file)


def kubeconfig_option(command: Command) -> Command:
    option = click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="How to reach the server.  [default: $LIVESIZE_KUBECONFIG, $KUBECONFIG, the one of"
        " `livesize up`, ~/.kube/config]",
    )
    return option(command)


def namespace_option(command: Command) -> Command:
    from livesize.cli.completion import complete_namespace

    option = click.option(
        *("-n", "--namespace"),
        default="",
        metavar="NS",
        shell_complete=complete_namespace,
        help="[default: the namespace of the kubeconfig, else default]",
    )
    return option(command)


def run_with_client(kubeconfig: str, work: Callable[[HttpClient], Awaitable[Result]]) -> Result:
    """Connect, do ``work``, disconnect."""
    from livesize.api.errors import StatusError
    from livesize.client.http import ServerUnreachableError
    from livesize.client.kubeconfig import KubeconfigError, connection_from, find_kubeconfig

    try:
        path = find_kubeconfig(kubeconfig)
        config = connection_from(path)
    except KubeconfigError as failure:
        raise CommandFailure(str(failure)) from failure
    try:
        return asyncio.run(_with_client(config, work))
    except ServerUnreachableError as failure:
        raise CommandFailure(unreachable_sentence(failure)) from failure
    except StatusError as refusal:
        raise CommandFailure(refusal_sentence(refusal, path)) from refusal
    except BrokenPipeError:
        raise SystemExit(1) from None  # the reader of our output has gone, as in `| head`


def default_namespace(kubeconfig: str, given: str) -> str:
    """The namespace to use where one is needed."""
    if given:
        return given
    from livesize.client.kubeconfig import KubeconfigError, find_kubeconfig, namespace_from

    try:
        return namespace_from(find_kubeconfig(kubeconfig))
    except KubeconfigError as failure:
        raise CommandFailure(str(failure)) from failure


def unreachable_sentence(failure: Any) -> str:
    return (
        f"cannot reach the server at {failure.server} ({failure.why});"
        " start one with `livesize up`, or name another with --kubeconfig"
    )


def refusal_sentence(refusal: Any, path: Path) -> str:
    if refusal.code == 401:
        return (
            f"the server does not accept the credentials in {path}; give those of its"
            " `livesize up` with --kubeconfig"
        )
    if refusal.code == 404 and refusal.details.get("name"):
        return f"{refusal.message}; {_where_to_look(str(refusal.details.get('kind', '')))}"
    return str(refusal.message)


def _where_to_look(plural: str) -> str:
    resource = find_resource(plural)
    elsewhere = ", -n picks the namespace" if resource is not None and resource.namespaced else ""
    return f"`livesize get {plural}` shows what there is{elsewhere}"


async def _with_client(config: Any, work: Callable[[HttpClient], Awaitable[Result]]) -> Result:
    from livesize.client.http import HttpClient

    client = await HttpClient.open(config, CLOCK)
    try:
        return await work(client)
    finally:
        await client.close()
