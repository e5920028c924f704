"""Steps that let a workload take part in its own resize: before it shrinks, and when it is done.

The command runs in the container, with the old and the new size in its environment. One that says
no (an exit status, or no end in time) before a shrink stops it: the resize says why, and tries
again as after any failure. After a resize nothing can be stopped any more: an event tells.

Each runs once for each resize, however often that is tried; a new agent may run it once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeAlias

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.pods.pod_record import PodRecord
from livesize.api.objects import Object, lookup
from livesize.api.reasons import EventReason
from livesize.api.resize_hooks import Hook, has_hooks, hook_command, hook_seconds
from livesize.api.resources import Amounts, ResourceName, parse_resources, same_size
from livesize.machinery.steps import Step, StepFailedError
from livesize.runtime.interface import RuntimeCallError

_MOST_CHARACTERS = 300

Overtaken: TypeAlias = Callable[[], bool]
"""Whether the resize has lost its point."""


class ResizeHooks:
    def __init__(self, dependencies: AgentDependencies, record: PodRecord) -> None:
        self._dependencies = dependencies
        self._record = record
        self._done: set[tuple[int, Hook, str]] = set()

    def before(self, entry: Allocation, names: Iterable[str], overtaken: Overtaken) -> list[Step]:
        """For those of the containers ``names`` of which a limit falls."""
        if not has_hooks(self._record.pod):
            return []
        falling = [
            name
            for name in sorted(names)
            if _falls(_limits(entry.size_before(name)), _limits(entry.size(name)))
        ]
        return self._steps(Hook.PRE_SHRINK, entry, falling, overtaken)

    def after(self, entry: Allocation, names: Iterable[str], overtaken: Overtaken) -> list[Step]:
        if not has_hooks(self._record.pod):
            return []
        changed = [
            name
            for name in sorted(names)
            if not same_size(entry.size_before(name), entry.size(name))
        ]
        return self._steps(Hook.POST_RESIZE, entry, changed, overtaken)

    def _steps(
        self, hook: Hook, entry: Allocation, names: list[str], overtaken: Overtaken
    ) -> list[Step]:
        pod = self._record.pod
        return [
            self._step(hook, entry, name, overtaken)
            for name in names
            if (entry.generation, hook, name) not in self._done and hook_command(pod, hook, name)
        ]

    def _step(self, hook: Hook, entry: Allocation, name: str, overtaken: Overtaken) -> Step:
        async def run() -> None:
            problem = await self._run_unless(overtaken, hook, entry, name)
            if problem and hook is Hook.PRE_SHRINK:
                raise StepFailedError(f"the pre-shrink hook of container {name} says: {problem}")
            if problem:
                message = f"the post-resize hook of container {name} says: {problem}"
                self._dependencies.record_event(
                    self._record.pod, EventReason.FAILED_POST_RESIZE, message
                )
            self._done = {one for one in self._done if one[0] == entry.generation}
            self._done.add((entry.generation, hook, name))

        return Step(f"{hook.value}:{name}", run)

    async def _run_unless(
        self, overtaken: Overtaken, hook: Hook, entry: Allocation, name: str
    ) -> str:
        """Neither a newer size nor the pod's end waits for a hook that takes its time."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._run(hook, entry, name))
            watching = tasks.create_task(self._until(overtaken))
            running.add_done_callback(lambda _: watching.cancel())
            watching.add_done_callback(lambda _: running.cancel())
        if running.cancelled():
            raise StepFailedError(f"the {hook} hook of container {name} was overtaken")
        return running.result()

    async def _until(self, overtaken: Overtaken) -> None:
        while not overtaken():
            self._record.changed.clear()
            await self._record.changed.wait()

    async def _run(self, hook: Hook, entry: Allocation, name: str) -> str:
        """The last line of what it said, where it did not succeed."""
        pod = self._record.pod
        try:
            result = await self._dependencies.runtime.run_command(
                entry.uid,
                name,
                hook_command(pod, hook, name),
                env=_environment(entry.size_before(name), entry.size(name)),
                timeout_seconds=hook_seconds(pod),
            )
        except RuntimeCallError as failure:
            return str(failure)
        if result.exit_code == 0:
            return ""
        lines = result.output.strip().splitlines()
        return lines[-1][:_MOST_CHARACTERS] if lines else f"exit status {result.exit_code}"


def _environment(before: Object, after: Object) -> tuple[tuple[str, str], ...]:
    """Limits; where there is none, the request."""
    return (
        ("LIVESIZE_OLD_CPU", _amount(before, ResourceName.CPU)),
        ("LIVESIZE_OLD_MEMORY", _amount(before, ResourceName.MEMORY)),
        ("LIVESIZE_NEW_CPU", _amount(after, ResourceName.CPU)),
        ("LIVESIZE_NEW_MEMORY", _amount(after, ResourceName.MEMORY)),
    )


def _amount(size: Object, resource: str) -> str:
    requested = lookup(size, "requests", resource, default="")
    return str(lookup(size, "limits", resource, default=requested))


def _limits(size: Object) -> Amounts:
    return parse_resources(size).limits


def _falls(before: Amounts, after: Amounts) -> bool:
    return any(_less(after.amount(one), before.amount(one)) for one in ResourceName)


def _less(left: int | None, right: int | None) -> bool:
    """No limit is more than any."""
    return left is not None and (right is None or left < right)
