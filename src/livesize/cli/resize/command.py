"""`livesize resize`: asks through pods/resize, and with --wait shows that it happened."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.pod_resource import PODS
from livesize.api.objects import Object, generation_of
from livesize.api.patch import PatchType
from livesize.api.resources import ResourceName, container_resources
from livesize.api.write_options import WriteOptions
from livesize.cli.completion import complete_pod
from livesize.cli.connection import (
    CommandFailure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.output import Format, print_table, print_value
from livesize.cli.plain_text import plain_lines
from livesize.cli.resize.follower import ResizeFollower
from livesize.cli.resize.plan import (
    RequestedSize,
    ResizePatch,
    ResizeRefusal,
    describe,
    parse_requested_size,
    plan_patch,
    undo_options,
)
from livesize.cli.resize.progress import ResizeDone, ResizeRefused, ResizeWaiting, verdict_is_known
from livesize.cli.resize.report import change_table, progress_line, verdict_words
from livesize.cli.targets import Duration, parse_pod
from livesize.machinery.clock import SystemClock

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_CONFLICT = 409
_TRIES = 10
_VERDICT_SECONDS = 0.2


class Interrupted(CommandFailure):
    """Ctrl-C, as a shell tells it."""

    exit_code = 130


class ResizeCommand(msgspec.Struct, frozen=True):
    """The command, read."""

    name: str
    namespace: str
    container: str
    sizes: dict[ResourceName, RequestedSize]
    form: Format
    patience_seconds: float | None  # None: do not wait
    dry_run: bool

    @property
    def label(self) -> str:
        return f"pod/{self.name}"


@click.command()
@click.argument("pod", metavar="pod/NAME", shell_complete=complete_pod)
@namespace_option
@click.option("-c", "--container", default="", help="Which container; needed if there are several.")
@click.option("--cpu", default="", metavar="X|REQUEST:LIMIT", help="2, 500m, +500m, 500m:1")
@click.option("--memory", default="", metavar="X|REQUEST:LIMIT", help="4Gi, -64Mi, 256Mi:512Mi")
@click.option("--request-cpu", default="", metavar="X")
@click.option("--limit-cpu", default="", metavar="X")
@click.option("--request-memory", default="", metavar="X")
@click.option("--limit-memory", default="", metavar="X")
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
def resize(pod: str, namespace: str, kubeconfig: str, **options: Any) -> None:
    """Change CPU and memory of a running pod, container or virtual machine, without restarting it.

    A single size keeps the shape of the container: the limit where there is one, and the request
    too where it was the same. A sign makes it a change of what is asked for now: +64Mi is 64Mi
    more, -500m half a CPU less.

    \b
    Examples:
      livesize resize pod/db --cpu 2 --memory 4Gi --wait
      livesize resize pod/db -c app --cpu 500m:1
      livesize resize pod/db --memory +512Mi
      livesize resize pod/db --limit-memory 1Gi --dry-run
      livesize resize pod/vm1 --cpu 4 --memory 2Gi --wait
    """
    sizes = {resource: _requested_size(resource, options) for resource in ResourceName}
    request = ResizeCommand(
        name=parse_pod(pod),
        namespace=default_namespace(kubeconfig, namespace),
        container=options["container"],
        sizes={resource: size for resource, size in sizes.items() if size != RequestedSize()},
        form=Format(options["output"]),
        patience_seconds=options["patience"] if options["wait"] else None,
        dry_run=options["dry_run"],
    )
    if not request.sizes:
        raise click.UsageError("say what to change: --cpu, --memory, or one of their sides")

    async def work(client: HttpClient) -> None:
        await _resize(client, request)

    run_with_client(kubeconfig, work)


def _requested_size(resource: ResourceName, options: dict[str, Any]) -> RequestedSize:
    word = options[resource.value]
    request, limit = options[f"request_{resource.value}"], options[f"limit_{resource.value}"]
    size = parse_requested_size(word, request, limit)
    if isinstance(size, ResizeRefusal):
        raise click.UsageError(f"--{resource.value}: {size.sentence}")
    return size


async def _resize(client: HttpClient, request: ResizeCommand) -> None:
    began = SystemClock().monotonic()
    before, patch, answer = await _ask(client, request)
    if request.dry_run:
        _show(request, patch, before, answer, f"would be resized ({describe(patch)})")
    elif request.patience_seconds is None:
        if generation_of(answer) == generation_of(before):
            _show(request, patch, before, answer, "has this size already")
            return
        after, verdict = await _verdict(client, patch, answer)
        _show(request, patch, before, after, f"asked for {describe(patch)}; {verdict}")
    else:
        after, note = await _wait(client, request, patch, before, answer)
        seconds = SystemClock().monotonic() - began
        _show(request, patch, before, after, note or f"resized in {seconds:.2f} s")


async def _ask(client: HttpClient, request: ResizeCommand) -> tuple[Object, ResizePatch, Object]:
    """The pod before, what was sent, and the pod as the server has it then. A change of what is
    there is worked out anew where somebody else has changed the pod meanwhile."""
    for left in reversed(range(_TRIES)):
        before = await client.get(PODS, request.name, request.namespace)
        patch = plan_patch(before, request.container, request.sizes)
        if isinstance(patch, ResizeRefusal):
            raise CommandFailure(f"{request.label}: {patch.sentence}")
        try:
            answer = await client.patch(
                PODS,
                request.name,
                patch.body(),
                namespace=request.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
                options=WriteOptions(dry_run=request.dry_run),
            )
        except StatusError as refusal:
            if refusal.code != _CONFLICT or not patch.version or not left:
                raise
        else:
            return before, patch, answer
    raise AssertionError("the last try answers or raises")


async def _verdict(client: HttpClient, patch: ResizePatch, answer: Object) -> tuple[Object, str]:
    """The node mostly answers within a few milliseconds: what it says by then, and the pod as it
    is then."""
    following = ResizeFollower(client, SystemClock(), answer, patch)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_VERDICT_SECONDS):
            await following.run(_nothing, until=verdict_is_known)
    return following.pod, verdict_words(following.progress)


def _nothing(_waiting: ResizeWaiting) -> None:
    """Steps on the way are not told."""


async def _wait(
    client: HttpClient, request: ResizeCommand, patch: ResizePatch, before: Object, answer: Object
) -> tuple[Object, str]:
    """The pod as it is when the resize is done, and what else there is to say."""
    following = ResizeFollower(client, SystemClock(), answer, patch)
    on_terminal = sys.stderr.isatty()

    def tell(waiting: ResizeWaiting) -> None:
        if on_terminal:
            click.echo(plain_lines(progress_line(request.label, waiting)), err=True)

    try:
        async with asyncio.timeout(request.patience_seconds):
            await following.run(tell)
    except TimeoutError:
        late = f"not resized after {request.patience_seconds:g} s"
        raise CommandFailure(_standing(request, following, patch, before, late)) from None
    except asyncio.CancelledError:  # Ctrl-C ends the whole command
        stopped = "no longer waited for"
        raise Interrupted(_standing(request, following, patch, before, stopped)) from None
    match following.progress:
        case ResizeRefused(sentence):
            raise CommandFailure(f"{request.label} was not resized: {sentence}")
        case ResizeDone(note):
            return following.pod, note
        case ResizeWaiting():
            raise AssertionError("following ended while it was waiting")


def _standing(
    request: ResizeCommand, following: ResizeFollower, patch: ResizePatch, before: Object, why: str
) -> str:
    """Where a resize stands that is not waited for any more, and the way back."""
    state = "unknown"
    if isinstance(following.progress, ResizeWaiting):
        state = progress_line(request.label, following.progress)
    undo = undo_options(patch, container_resources(before)[patch.container])
    return (
        f"{why}: {state}. It is still asked for, and goes on by itself; look with"
        f" `livesize get {request.label} -w`,"
        f" or go back with `livesize resize {request.label} {undo}`"
    )


def _show(
    request: ResizeCommand, patch: ResizePatch, before: Object, after: Object, what: str
) -> None:
    match request.form:
        case Format.JSON | Format.YAML:
            print_value(after, request.form)
        case Format.NAME:
            click.echo(request.label)
        case Format.TABLE | Format.WIDE:
            click.echo(plain_lines(f"{request.label} {what}"))
            containers = [patch.container]
            if request.form is Format.WIDE:
                containers = list(container_resources(after))
            for container in containers:
                print_table(change_table(container, before, after))
