"""What a workload's resize does and did to its pods, as tables, lines and advice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.vm_status import resizable_statuses_of
from livesize.api.workload_resize import template_of
from livesize.api.workload_status import feasible_size
from livesize.cli.output import Table
from livesize.cli.resize.plan import describe
from livesize.cli.resize.progress import FollowedProgress, ResizeDone, ResizeRefused, ResizeWaiting
from livesize.cli.resize.report import progress_line
from livesize.cli.resize.workload_plan import WorkloadPatch
from livesize.cli.resize.workload_progress import PodProgress, WorkloadProgress
from livesize.cli.sizes import NOT_KNOWN, format_size, pod_sizes

_MOST_NAMED = 3
_NO_ROOM = ("Deferred", "Unscheduled")


class PodTimes(msgspec.Struct, frozen=True):
    """Seconds of one clock, by pod: first seen on its way, first seen with its size."""

    begun: Mapping[str, float]
    ended: Mapping[str, float]

    def took(self, name: str) -> str:
        if name not in self.ended:
            return NOT_KNOWN
        seconds = self.ended[name] - self.begun[name]
        return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def patch_in_words(patch: WorkloadPatch) -> str:
    several = len(patch.sizes) > 1
    sizes = [f"{one.container} " * several + describe(one) for one in patch.sizes]
    action = "" if patch.action is None else f", resizeAction {patch.action}"
    return "; ".join(sizes) + action


def forecast_table(workload: Object, pods: Iterable[tuple[Object, str]]) -> Table:
    """What would be done to each pod. ``workload``: with the new template."""
    after = format_size(pod_sizes(template_of(workload)).desired)
    rows = [(name_of(pod), format_size(pod_sizes(pod).desired), after, do) for pod, do in pods]
    return Table(("POD", "NOW", "TEMPLATE", "WILL BE"), tuple(rows))


def summary_table(
    progress: WorkloadProgress, before: Mapping[str, Object], times: PodTimes
) -> Table:
    """``before``: the pods that were there, by name."""
    rows = []
    for one in progress.pods:
        name = name_of(one.pod)
        known = before.get(name)
        rows.append(
            (
                name,
                progress_word(one.progress),
                NOT_KNOWN if known is None else format_size(pod_sizes(known).actual),
                format_size(pod_sizes(one.pod).actual),
                times.took(name),
                restarts(known, one.pod),
            )
        )
    return Table(("POD", "RESIZE", "BEFORE", "AFTER", "TOOK", "RESTARTED"), tuple(rows))


def restarts(before: Object | None, after: Object) -> str:
    """What of a pod has started anew: nothing, containers by name, or all of it."""
    if before is None or uid_of(before) != uid_of(after):
        return "recreated"
    counts = {one.get("name"): one.get("restartCount") for one in resizable_statuses_of(before)}
    again = [
        str(one.get("name"))
        for one in resizable_statuses_of(after)
        if (one.get("restartCount") or 0) > (counts.get(one.get("name")) or 0)
    ]
    return ", ".join(again) or "no"


def progress_word(progress: FollowedProgress) -> str:
    match progress:
        case ResizeDone():
            return "Done"
        case ResizeRefused():
            return "Infeasible"
        case ResizeWaiting(word):
            return word


def pod_line(
    label: str,
    progress: WorkloadProgress,
    one: PodProgress,
    before: Mapping[str, Object],
    times: PodTimes,
) -> str:
    """A step of one pod, while the command waits: with numbers."""
    name = name_of(one.pod)
    said = _in_words(name, one.progress)
    if one.is_done:
        known = before.get(name)
        was = NOT_KNOWN if known is None else format_size(pod_sizes(known).actual)
        now = format_size(pod_sizes(one.pod).actual)
        said = f"{name}: {was} → {now} in {times.took(name)}, restarted: {restarts(known, one.pod)}"
    return f"{label} {progress.done}/{progress.wanted}: {said}"


def shortfall(label: str, progress: WorkloadProgress) -> str:
    """How far it is, and what the pods that are not done wait for."""
    said = f"{label}: {progress.done} of {progress.wanted} pods have the new size"
    told = _left_in_words(progress)
    if progress.waits_for and not progress.stuck:
        told.append(progress.waits_for)
    return "; ".join([said, *told])


def advice(label: str, progress: WorkloadProgress, way_back: str, goes_on: str) -> str:
    """What to do next. ``goes_on``: what happens by itself, or empty."""
    left = [one for one in progress.pods if not one.is_done]
    kept = "It is still asked for" + (f", and goes on by itself ({goes_on})" if goes_on else "")
    ways = [f"look with `livesize describe {label}`"]
    if any(progress_word(one.progress) in ("Infeasible", *_NO_ROOM) for one in left):
        ways.append(f"ask for {feasible_size(_message(one.progress) for one in left)}")
    if any(progress_word(one.progress) in _NO_ROOM for one in left):
        nodes = {str(lookup(one.pod, "spec", "nodeName", default="any node")) for one in left}
        ways.append(f"free room on {', '.join(sorted(nodes))}")
    return f"{kept}: {', '.join(ways)}, or go back with `{way_back}`"


def _left_in_words(progress: WorkloadProgress) -> list[str]:
    """Pods that wait for the same are named together; those whose turn has not come are last."""
    names: dict[str, list[str]] = {}
    for one in sorted(progress.pods, key=lambda one: one.is_queued):
        if not one.is_done:
            names.setdefault(_in_words("", one.progress), []).append(name_of(one.pod))
    told = [f"{_some(pods)}{words}" for words, pods in list(names.items())[:_MOST_NAMED]]
    more = sum(map(len, list(names.values())[_MOST_NAMED:]))
    return [*told, f"and {more} more"] if more else told


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _in_words(name: str, progress: FollowedProgress) -> str:
    match progress:
        case ResizeDone():
            return f"{name}: done"
        case ResizeRefused(sentence):
            return f"{name}: its node can never hold it ({sentence})"
        case ResizeWaiting() as waiting:
            return progress_line(name, waiting)


def _message(progress: FollowedProgress) -> str:
    match progress:
        case ResizeRefused(sentence):
            return sentence
        case ResizeWaiting(message=message):
            return message
        case ResizeDone():
            return ""
