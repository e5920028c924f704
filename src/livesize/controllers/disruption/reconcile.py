"""Keeps the status of disruption budgets: counted anew whenever one, or a pod of one, changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from livesize.api.disruption import is_healthy, protects
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, ObjectKey, evolve, lookup, name_of, namespace_of
from livesize.api.times import format_time, parse_time
from livesize.client.informer import Delta
from livesize.controllers.disruption.plan import plan_status, protected_pods
from livesize.controllers.disruption.scale import own_scale, scaled_kinds, wanted_pods
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context

CONFIRMED_SECONDS = 120.0
"""An evicted pod that is still there so long after was not deleted: it counts again."""


def disruption_controller(context: Context) -> Controller[ObjectKey]:
    async def reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
        return await _reconcile(key, read, write, context.clock)

    return Controller(
        name="disruption",
        component="controllermanager",
        watches=(
            Watch(DISRUPTION_BUDGETS, own_key),
            Watch(PODS, _budgets_of, once_there_is=DISRUPTION_BUDGETS),
            *(
                Watch(scaled, _budgets_of_namespace(scaled), once_there_is=DISRUPTION_BUDGETS)
                for scaled in scaled_kinds()
            ),
        ),
        reconcile=reconcile,
    )


def _budgets_of(delta: Delta, read: Reader) -> Iterator[ObjectKey]:
    """The pod may have been another budget's before."""
    states = [pod for pod in (delta.old, delta.new) if pod is not None]
    if len(states) == 2 and _counted(states[0]) == _counted(states[1]):
        return
    namespace = namespace_of(delta.object)
    for budget in read.list(DISRUPTION_BUDGETS, namespace):
        if any(protects(budget, pod) for pod in states):
            yield namespace, name_of(budget)


def _budgets_of_namespace(scaled: Resource) -> Callable[[Delta, Reader], Iterator[ObjectKey]]:
    """A workload that wants another number of pods changes what a share is a share of."""

    def keys(delta: Delta, read: Reader) -> Iterator[ObjectKey]:
        states = [one for one in (delta.old, delta.new) if one is not None]
        if len({own_scale(scaled, one) for one in states}) < 2 and len(states) == 2:
            return
        namespace = namespace_of(delta.object)
        for budget in read.list(DISRUPTION_BUDGETS, namespace):
            yield namespace, name_of(budget)

    return keys


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter, clock: Clock) -> Result:
    namespace, name = key
    budget = read.get(DISRUPTION_BUDGETS, name, namespace)
    if budget is None:
        return Done()
    since: dict[str, str] = lookup(budget, "status", "disruptedPods", default={})
    ages = {name: clock.now() - parse_time(time) for name, time in since.items()}
    overdue = {name for name, age in ages.items() if age >= CONFIRMED_SECONDS}
    own = protected_pods(budget, read.list(PODS, namespace))
    scale = wanted_pods(own, read)
    status = plan_status(budget, own, scale, overdue, format_time(clock.now()))
    if status is not None:
        counted = evolve(budget, ("status",), status)
        await write.update(DISRUPTION_BUDGETS, counted, subresource="status")
    waiting = [CONFIRMED_SECONDS - age for age in ages.values() if age < CONFIRMED_SECONDS]
    return Again(min(waiting)) if waiting else Done()


def _counted(pod: Object) -> tuple[object, ...]:
    """All of a pod that counts."""
    metadata = pod["metadata"]
    ended = lookup(pod, "status", "phase")
    return is_healthy(pod), metadata.get("labels"), metadata.get("deletionTimestamp"), ended
