"""`livesize completion`, and what the shell offers after TAB: quick and quiet, nothing without a
server."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from livesize.api.objects import Object, name_of

if TYPE_CHECKING:
    from livesize.api.kinds.resource import Resource
    from livesize.client.http import HttpClient

_PATIENCE_SECONDS = 1.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      source <(livesize completion bash)
      livesize completion zsh > "${fpath[1]}/_livesize"
      livesize completion fish > ~/.config/fish/completions/livesize.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    click.echo(made(root.command, {}, "livesize", "_LIVESIZE_COMPLETE").source())


def complete_resizable(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """KIND/NAME for every pod and workload of the namespace, in the words that were begun."""
    from livesize.cli.targets import RESIZABLE

    del parameter
    return _offer_names(context, incomplete, RESIZABLE)


def complete_cells(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """CELL=SIZE for each NUMA cell of the first pod that was named, with what it has now."""
    from livesize.api.kinds.pod_resource import PODS
    from livesize.api.quantity import format_memory
    from livesize.cli.targets import find_resource
    from livesize.cli.vm_words import desired_cells

    del parameter
    # While the option has no value yet, what else was typed is still unparsed.
    for target in (*(context.params.get("targets") or ()), *context.args):
        kind, _, name = str(target).partition("/")
        if name and find_resource(kind) == PODS:
            found = [pod for pod in _objects(context, PODS) if name_of(pod) == name]
            cells = desired_cells(found[0]) if found else {}
            return _offer(
                [f"{cell}={format_memory(now)}" for cell, now in cells.items()], incomplete
            )
    return []


def complete_described(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from livesize.cli.targets import DESCRIBED

    del parameter
    return _offer_names(context, incomplete, DESCRIBED)


def complete_target(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A kind, or KIND/NAME once there is a slash."""
    from livesize.api.kinds.registry import REGISTRY
    from livesize.cli.targets import find_resource

    del parameter
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return _offer([resource.plural for resource in REGISTRY.stored()], incomplete)
    resource = find_resource(kind)
    if resource is None:
        return []
    return _offer([f"{kind}/{name}" for name in _names(context, resource)], incomplete)


def complete_namespace(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from livesize.api.kinds.namespace import NAMESPACES

    del parameter
    return _offer(_names(context, NAMESPACES), incomplete)


def _offer_names(
    context: click.Context, incomplete: str, kinds: Sequence[str]
) -> list[CompletionItem]:
    from livesize.cli.targets import find_resource

    word, slash, _ = incomplete.partition("/")
    begun = [word] if slash else [kind.lower() for kind in kinds]
    labels = [
        f"{kind}/{name}"
        for kind in begun
        if kind.startswith(word) and (known := find_resource(kind)) and known.kind in kinds
        for name in _names(context, known)
    ]
    return _offer(labels, incomplete)


def _offer(words: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _names(context: click.Context, resource: Resource) -> list[str]:
    return sorted(name_of(obj) for obj in _objects(context, resource))


def _objects(context: click.Context, resource: Resource) -> list[Object]:
    import asyncio

    from livesize.api.list_watch import Selection
    from livesize.cli.connection import default_namespace, run_with_client

    kubeconfig = str(context.params.get("kubeconfig") or "")
    given = str(context.params.get("namespace") or "")

    async def ask(client: HttpClient) -> list[Object]:
        namespace = default_namespace(kubeconfig, given) if resource.namespaced else ""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            listing = await client.list(resource, Selection(namespace=namespace))
        return list(listing.items)

    with contextlib.suppress(click.ClickException, TimeoutError):
        return run_with_client(kubeconfig, ask)
    return []
