"""What is counted of each controller: how much waits, how long it takes, how it ends.

Counted in plain numbers; livesize.machinery.exposition writes them in Prometheus' words when they
are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, TypeVar

from livesize.machinery.context import Context
from livesize.machinery.durations import Durations
from livesize.machinery.queue import WorkQueue

if TYPE_CHECKING:
    from livesize.machinery.exposition import Family

Key = TypeVar("Key", bound=Hashable)


class ControllerMetrics:
    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.failed_events = 0
        self.waited = Durations()
        self.worked = Durations()
        self.results: Counter[str] = Counter()
        self.depth: Callable[[], int] = lambda: 0


class KitMetrics:
    """Of all controllers of a process, by name."""

    def __init__(self) -> None:
        self._controllers: dict[str, ControllerMetrics] = {}

    def of(self, controller: str) -> ControllerMetrics:
        """New ones: a controller that begins anew is counted anew."""
        self._controllers[controller] = ControllerMetrics()
        return self._controllers[controller]

    def families(self) -> Iterator[Family]:
        from livesize.machinery.exposition import counter, gauge, histogram

        every = [((name,), one) for name, one in sorted(self._controllers.items())]
        named = ("name",)
        yield gauge(
            "workqueue_depth",
            "Keys that are ready and wait for a worker.",
            named,
            [(name, one.depth()) for name, one in every],
        )
        yield counter(
            "workqueue_adds",
            "Keys added.",
            named,
            [(name, one.adds) for name, one in every],
        )
        yield counter(
            "workqueue_retries",
            "Keys that come again after a failure or a conflict.",
            named,
            [(name, one.retries) for name, one in every],
        )
        yield histogram(
            "workqueue_queue_duration_seconds",
            "How long a key waited for a worker.",
            named,
            [(name, one.waited) for name, one in every],
        )
        yield histogram(
            "workqueue_work_duration_seconds",
            "How long a reconcile took.",
            named,
            [(name, one.worked) for name, one in every],
        )
        yield counter(
            "controller_reconcile",
            "Reconciles, by how they ended.",
            ("controller", "result"),
            [
                ((*name, result), count)
                for name, one in every
                for result, count in sorted(one.results.items())
            ],
        )
        yield counter(
            "controller_event_failures",
            "Changes that a controller failed to map to keys: bugs.",
            ("controller",),
            [(name, one.failed_events) for name, one in every],
        )


class CountedQueue(WorkQueue[Key]):
    """A work queue that says how many keys came, and how long each waited."""

    def __init__(self, context: Context, metrics: ControllerMetrics) -> None:
        super().__init__(context)
        self._metrics = metrics
        self._added_at: dict[Key, float] = {}
        metrics.depth = self.__len__

    def add(self, key: Key) -> None:
        if key not in self._added_at:
            self._metrics.adds += 1
            self._added_at[key] = self._clock.monotonic()
        super().add(key)

    async def get(self) -> Key:
        key = await super().get()
        self._metrics.waited.add(self._clock.monotonic() - self._added_at.pop(key))
        return key
