"""Resizes one pod: asks through pods/resize, and follows it as long as the command waits."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import click

from livesize.api.objects import Object, generation_of
from livesize.api.resources import container_resources
from livesize.cli.output import Format
from livesize.cli.plain_text import plain_lines
from livesize.cli.resize.cells import plan_vm_patch
from livesize.cli.resize.follower import ResizeFollower
from livesize.cli.resize.plan import ResizePatch, ResizeRefusal, describe, undo_options
from livesize.cli.resize.progress import ResizeDone, ResizeRefused, ResizeWaiting, verdict_is_known
from livesize.cli.resize.report import change_table, progress_line, verdict_words
from livesize.cli.resize.request import (
    Interrupted,
    ResizeCommand,
    ResizeFailure,
    ResizeOutcome,
    ask,
)
from livesize.cli.vm_words import guest_table, on_its_way
from livesize.machinery.clock import SystemClock

if TYPE_CHECKING:
    from livesize.client.interface import Client

_VERDICT_SECONDS = 0.2


async def resize_pod(client: Client, request: ResizeCommand) -> ResizeOutcome:
    began = SystemClock().monotonic()

    def plan(pod: Object) -> ResizePatch | ResizeRefusal:
        return plan_vm_patch(pod, request.container, request.sizes, request.cells)

    before, patch, answer = await ask(client, request, plan, "resize")
    if request.dry_run:
        return _outcome(request, patch, before, answer, f"would be resized ({describe(patch)})")
    if request.patience_seconds is not None:
        after, note = await _wait(client, request, patch, before, answer)
        seconds = SystemClock().monotonic() - began
        return _outcome(request, patch, before, after, note or f"resized in {seconds:.2f} s")
    if generation_of(answer) == generation_of(before):
        return _outcome(request, patch, before, answer, "has this size already")
    after, verdict = await _verdict(client, patch, answer)
    return _outcome(request, patch, before, after, f"asked for {describe(patch)}; {verdict}")


async def _verdict(client: Client, patch: ResizePatch, answer: Object) -> tuple[Object, str]:
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
    client: Client, request: ResizeCommand, patch: ResizePatch, before: Object, answer: Object
) -> tuple[Object, str]:
    """The pod as it is when the resize is done, and what else there is to say."""
    following = ResizeFollower(client, SystemClock(), answer, patch)
    on_terminal = sys.stderr.isatty()

    def tell(waiting: ResizeWaiting) -> None:
        if on_terminal:
            line = progress_line(request.label, waiting)
            moving = on_its_way(following.pod)
            click.echo(plain_lines(f"{line}; {moving}" if moving else line), err=True)

    try:
        async with asyncio.timeout(request.patience_seconds):
            await following.run(tell)
    except TimeoutError:
        late = f"not resized after {request.patience_seconds:g} s"
        raise ResizeFailure(_standing(request, following, patch, before, late)) from None
    except asyncio.CancelledError:  # Ctrl-C ends the whole command
        stopped = "no longer waited for"
        raise Interrupted(_standing(request, following, patch, before, stopped)) from None
    match following.progress:
        case ResizeRefused(sentence):
            raise ResizeFailure(f"{request.label} was not resized: {sentence}")
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
    moving = on_its_way(following.pod)
    if moving:
        state = f"{state}; {moving}"
    return (
        f"{why}: {state}. It is still asked for, and goes on by itself; look with"
        f" `livesize get {request.label} -w`,"
        f" or go back with `livesize resize {request.label} {undo}`"
    )


def _outcome(
    request: ResizeCommand, patch: ResizePatch, before: Object, after: Object, what: str
) -> ResizeOutcome:
    wide = request.form is Format.WIDE
    containers = list(container_resources(after)) if wide else [patch.container]
    tables = tuple(change_table(container, before, after) for container in containers)
    guest = guest_table(after)
    if guest.rows and request.patience_seconds is not None:
        tables = (*tables, guest)
    return ResizeOutcome(request, after, what, tables)
