"""Keeps the status of disruption budgets: counted anew whenever one, or a pod of one, changes."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from livesize.api.disruption import is_healthy, protects
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.objects import Object, evolve, lookup, name_of, namespace_of
from livesize.api.times import format_time, parse_time
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.disruption.plan import plan_status
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers

CONFIRMED_SECONDS = 120.0
"""An evicted pod that is still there so long after was not deleted: it counts again."""
_AGAIN_SECONDS = 0.05

Key: TypeAlias = tuple[str, str]


class DisruptionBudgets:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._clock = context.clock
        self._queue: WorkQueue[Key] = WorkQueue(context)
        self._budgets = Informer(
            client, DISRUPTION_BUDGETS, context=context, on_change=self._observe_budget
        )
        self._pods = Informer(client, PODS, context=context, on_change=self._observe_pod)
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._has_budgets = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._budgets.run())
            # Where there is no budget, nobody listens to all the pods.
            await self._has_budgets.wait()
            group.create_task(self._pods.run())
            await self._pods.synced.wait()
            await run_workers(self._queue, self._reconcile, 1)

    def _observe_budget(self, delta: Delta) -> None:
        self._has_budgets.set()
        if delta.new is not None:
            self._queue.add((namespace_of(delta.new), name_of(delta.new)))

    def _observe_pod(self, delta: Delta) -> None:
        """What it is about may have been another budget's before."""
        namespace = namespace_of(delta.object)
        pods = self._by_namespace.setdefault(namespace, {})
        if delta.new is None:
            pods.pop(name_of(delta.object), None)
        else:
            pods[name_of(delta.object)] = delta.new
        if not pods:
            del self._by_namespace[namespace]
        states = [pod for pod in (delta.old, delta.new) if pod is not None]
        if len(states) == 2 and _counted(states[0]) == _counted(states[1]):
            return
        for budget in self._budgets.items():
            if namespace_of(budget) == namespace and any(protects(budget, pod) for pod in states):
                self._queue.add((namespace, name_of(budget)))

    async def _reconcile(self, key: Key) -> float | None:
        budget = self._budgets.get(*key)
        if budget is None:
            return None
        since: dict[str, str] = lookup(budget, "status", "disruptedPods", default={})
        ages = {name: self._clock.now() - parse_time(time) for name, time in since.items()}
        overdue = {name for name, age in ages.items() if age >= CONFIRMED_SECONDS}
        pods = self._by_namespace.get(key[0], {}).values()
        status = plan_status(budget, pods, overdue, format_time(self._clock.now()))
        if status is not None and not await self._write(evolve(budget, ("status",), status)):
            return _AGAIN_SECONDS
        waiting = [CONFIRMED_SECONDS - age for age in ages.values() if age < CONFIRMED_SECONDS]
        return min(waiting, default=None)

    async def _write(self, budget: Object) -> bool:
        """False: somebody else has written, an eviction for instance; the watch brings it."""
        try:
            await self._client.update(DISRUPTION_BUDGETS, budget, subresource="status")
        except StatusError as refusal:
            if refusal.code == 404:
                return True
            if refusal.code == 409:
                return False
            raise
        return True


def _counted(pod: Object) -> tuple[object, ...]:
    """All of a pod that counts."""
    metadata = pod["metadata"]
    ended = lookup(pod, "status", "phase")
    return is_healthy(pod), metadata.get("labels"), metadata.get("deletionTimestamp"), ended
