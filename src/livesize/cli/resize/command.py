"""`livesize resize`: asks through pods/resize, and with --wait shows that it happened."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, generation_of
from livesize.api.patch import PatchType
from livesize.api.resources import ResourceName, container_resources
from livesize.api.write_options import WriteOptions
from livesize.cli.completing import complete_pod
from livesize.cli.connection import (
    Failure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    speak,
)
from livesize.cli.output import Format, print_table, print_value
from livesize.cli.plain_text import plain_lines
from livesize.cli.resize.follow import Following
from livesize.cli.resize.plan import (
    ResizePatch,
    ResizeRefusal,
    Wish,
    describe,
    parse_wish,
    plan_patch,
    undo_options,
)
from livesize.cli.resize.progress import Done, Refused, Waiting, verdict_is_known
from livesize.cli.resize.report import change_table, progress_line, verdict_words
from livesize.cli.targets import Duration, parse_pod
from livesize.machinery.clock import SystemClock

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_CONFLICT = 409
_TRIES = 10
_VERDICT_SECONDS = 0.2


class Interrupted(Failure):
    """Ctrl-C, as a shell tells it."""

    exit_code = 130


class Asked(msgspec.Struct, frozen=True):
    """The command, read."""

    name: str
    namespace: str
    container: str
    wishes: dict[ResourceName, Wish]
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
    wishes = {resource: _wish(resource, options) for resource in ResourceName}
    asked = Asked(
        name=parse_pod(pod),
        namespace=default_namespace(kubeconfig, namespace),
        container=options["container"],
        wishes={resource: wish for resource, wish in wishes.items() if wish != Wish()},
        form=Format(options["output"]),
        patience_seconds=options["patience"] if options["wait"] else None,
        dry_run=options["dry_run"],
    )
    if not asked.wishes:
        raise click.UsageError("say what to change: --cpu, --memory, or one of their sides")

    async def work(client: HttpClient) -> None:
        await _resize(client, asked)

    speak(kubeconfig, work)


def _wish(resource: ResourceName, options: dict[str, Any]) -> Wish:
    word = options[resource.value]
    request, limit = options[f"request_{resource.value}"], options[f"limit_{resource.value}"]
    wish = parse_wish(word, request, limit)
    if isinstance(wish, ResizeRefusal):
        raise click.UsageError(f"--{resource.value}: {wish.sentence}")
    return wish


async def _resize(client: HttpClient, asked: Asked) -> None:
    began = SystemClock().monotonic()
    before, patch, answer = await _ask(client, asked)
    if asked.dry_run:
        _show(asked, patch, before, answer, f"would be resized ({describe(patch)})")
    elif asked.patience_seconds is None:
        if generation_of(answer) == generation_of(before):
            _show(asked, patch, before, answer, "has this size already")
            return
        after, verdict = await _verdict(client, patch, answer)
        _show(asked, patch, before, after, f"asked for {describe(patch)}; {verdict}")
    else:
        after, note = await _wait(client, asked, patch, before, answer)
        seconds = SystemClock().monotonic() - began
        _show(asked, patch, before, after, note or f"resized in {seconds:.2f} s")


async def _ask(client: HttpClient, asked: Asked) -> tuple[Object, ResizePatch, Object]:
    """The pod before, what was sent, and the pod as the server has it then. A change of what is
    there is worked out anew where somebody else has changed the pod meanwhile."""
    for left in reversed(range(_TRIES)):
        before = await client.get(PODS, asked.name, asked.namespace)
        patch = plan_patch(before, asked.container, asked.wishes)
        if isinstance(patch, ResizeRefusal):
            raise Failure(f"{asked.label}: {patch.sentence}")
        try:
            answer = await client.patch(
                PODS,
                asked.name,
                patch.body(),
                namespace=asked.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
                options=WriteOptions(dry_run=asked.dry_run),
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
    following = Following(client, SystemClock(), answer, patch)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_VERDICT_SECONDS):
            await following.run(_nothing, until=verdict_is_known)
    return following.pod, verdict_words(following.progress)


def _nothing(_waiting: Waiting) -> None:
    """Steps on the way are not told."""


async def _wait(
    client: HttpClient, asked: Asked, patch: ResizePatch, before: Object, answer: Object
) -> tuple[Object, str]:
    """The pod as it is when the resize is done, and what else there is to say."""
    following = Following(client, SystemClock(), answer, patch)
    on_terminal = sys.stderr.isatty()

    def tell(waiting: Waiting) -> None:
        if on_terminal:
            click.echo(plain_lines(progress_line(asked.label, waiting)), err=True)

    try:
        async with asyncio.timeout(asked.patience_seconds):
            await following.run(tell)
    except TimeoutError:
        late = f"not resized after {asked.patience_seconds:g} s"
        raise Failure(_standing(asked, following, patch, before, late)) from None
    except asyncio.CancelledError:  # Ctrl-C ends the whole command
        stopped = "no longer waited for"
        raise Interrupted(_standing(asked, following, patch, before, stopped)) from None
    match following.progress:
        case Refused(sentence):
            raise Failure(f"{asked.label} was not resized: {sentence}")
        case Done(note):
            return following.pod, note
        case Waiting():
            raise AssertionError("following ended while it was waiting")


def _standing(
    asked: Asked, following: Following, patch: ResizePatch, before: Object, why: str
) -> str:
    """Where a resize stands that is not waited for any more, and the way back."""
    state = "unknown"
    if isinstance(following.progress, Waiting):
        state = progress_line(asked.label, following.progress)
    undo = undo_options(patch, container_resources(before)[patch.container])
    return (
        f"{why}: {state}. It is still asked for, and goes on by itself; look with"
        f" `livesize get {asked.label} -w`, or go back with `livesize resize {asked.label} {undo}`"
    )


def _show(asked: Asked, patch: ResizePatch, before: Object, after: Object, what: str) -> None:
    match asked.form:
        case Format.JSON | Format.YAML:
            print_value(after, asked.form)
        case Format.NAME:
            click.echo(asked.label)
        case Format.TABLE | Format.WIDE:
            click.echo(plain_lines(f"{asked.label} {what}"))
            containers = [patch.container]
            if asked.form is Format.WIDE:
                containers = list(container_resources(after))
            for container in containers:
                print_table(change_table(container, before, after))
