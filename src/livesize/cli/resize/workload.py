"""Resizes one workload: writes the sizes into its template, and follows its pods as long as the
command waits."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from livesize.api.objects import Object, generation_of, name_of
from livesize.api.requested_action import RequestedAction
from livesize.cli.output import Table
from livesize.cli.plain_text import plain_lines
from livesize.cli.resize.plan import ResizeRefusal
from livesize.cli.resize.request import (
    Interrupted,
    ResizeCommand,
    ResizeFailure,
    ResizeOutcome,
    ask,
)
from livesize.cli.resize.workload_follower import WorkloadFollower, read_pods
from livesize.cli.resize.workload_plan import (
    REFUSED,
    WorkloadPatch,
    fallback_in_words,
    forecast,
    plan_undo,
    plan_workload_patch,
    way_back,
)
from livesize.cli.resize.workload_progress import PodProgress, WorkloadProgress
from livesize.cli.resize.workload_report import (
    PodTimes,
    advice,
    forecast_table,
    patch_in_words,
    pod_line,
    shortfall,
    summary_table,
)
from livesize.machinery.context import system_context

if TYPE_CHECKING:
    from livesize.client.interface import Client


async def resize_workload(client: Client, request: ResizeCommand) -> ResizeOutcome:
    found = await client.get(request.resource, request.name, request.namespace)
    pods = await read_pods(client, request.resource, found)

    def plan(workload: Object) -> WorkloadPatch | ResizeRefusal:
        if request.undo:
            return plan_undo(workload, request.container, request.action)
        return plan_workload_patch(workload, request.container, request.sizes, request.action)

    before, patch, answer = await ask(client, request, plan)
    asked = patch_in_words(patch)
    if request.patience_seconds is not None and not request.dry_run:
        return await _wait(client, request, patch, (before, answer), pods)
    fates = forecast(before, answer, pods)
    table = forecast_table(answer, fates)
    refused = next((fate for _, fate in fates if fate.startswith(REFUSED)), "")
    if request.dry_run and refused:
        how = f"{refused}; --action {RequestedAction.IN_PLACE_PREFERRED} would recreate them"
        raise ResizeFailure(f"{request.label}: its pods could not be resized: {how}", (table,))
    if request.dry_run:
        return ResizeOutcome(request, answer, f"would be resized ({asked})", (table,))
    if generation_of(answer) == generation_of(before):
        return ResizeOutcome(request, answer, "has this size already", (table,))
    look = f"`livesize describe {request.label}` shows how it stands"
    return ResizeOutcome(request, answer, f"asked for {asked}; {look}", (table,))


async def _wait(
    client: Client,
    request: ResizeCommand,
    patch: WorkloadPatch,
    change: tuple[Object, Object],
    pods: list[Object],
) -> ResizeOutcome:
    context, (before, answer) = system_context(), change
    began = context.clock.monotonic()
    following = WorkloadFollower(client, context, request.resource, answer, pods, patch)
    known, on_terminal = {name_of(pod): pod for pod in pods}, sys.stderr.isatty()

    def times() -> PodTimes:
        return PodTimes(following.begun, following.ended)

    def tell(progress: WorkloadProgress, one: PodProgress) -> None:
        if on_terminal:
            line = pod_line(request.label, progress, one, known, times())
            click.echo(plain_lines(line), err=True)

    def failed(why: str, *, goes_on: bool = True) -> tuple[str, tuple[Table, ...]]:
        back = way_back(request.label, before, answer, patch)
        by_itself = fallback_in_words(following.workload) if goes_on else ""
        said = f"{why}: {shortfall(request.label, following.progress)}."
        said += f" {advice(request.label, following.progress, back, by_itself)}"
        return said, (summary_table(following.progress, known, times()),)

    try:
        async with asyncio.timeout(request.patience_seconds):
            await following.run(tell)
    except TimeoutError:
        late = f"not resized after {request.patience_seconds:g} s"
        raise ResizeFailure(*failed(late)) from None
    except asyncio.CancelledError:  # Ctrl-C ends the whole command
        raise Interrupted(*failed("no longer waited for")) from None
    progress = following.progress
    if progress.overtaken:
        raise ResizeFailure(f"{request.label} was not resized: {progress.overtaken}")
    if not progress.is_done:
        raise ResizeFailure(*failed("not all pods can be resized", goes_on=False))
    if not progress.wanted:
        none = "has no pods to resize; those to come have this size"
        return ResizeOutcome(request, following.workload, none)
    seconds = context.clock.monotonic() - began
    counts = f"{progress.done} of {progress.wanted} pods"
    had_it = not following.ended and generation_of(answer) == generation_of(before)
    done = f"has this size already, {counts}" if had_it else f"resized in {seconds:.2f} s, {counts}"
    table = summary_table(progress, known, times())
    return ResizeOutcome(request, following.workload, done, (table,))
