"""Runs the lifecycle hooks of containers: postStart and preStop."""

from __future__ import annotations

from livesize.agent.outside import Outside
from livesize.agent.probes.checks import Asker
from livesize.agent.probes.plan import parse_handler
from livesize.api.objects import Object, lookup, uid_of
from livesize.api.reasons import EventReason
from livesize.runtime.interface import ContainerPhase


class LifecycleHooks:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def after_start(self, pod: Object, container: Object, seconds: float) -> str:
        """What went wrong; the container cannot go on without it."""
        problem = await self._run(pod, container, "postStart", seconds)
        if problem:
            self._outside.tell(pod, EventReason.FAILED_POST_START, problem)
        return problem

    async def before_stop(self, pod: Object, container: Object, seconds: float) -> None:
        """What fails here stops nothing."""
        problem = await self._run(pod, container, "preStop", seconds)
        if problem:
            self._outside.tell(pod, EventReason.FAILED_PRE_STOP, problem)

    async def _run(self, pod: Object, container: Object, hook: str, seconds: float) -> str:
        given = lookup(container, "lifecycle", hook)
        handler = None if not given else parse_handler(given, container)
        view = self._outside.runtime.pod(uid_of(pod))
        started = () if view is None else view.containers
        runs = any(
            one.name == container["name"] and one.phase is ContainerPhase.RUNNING for one in started
        )
        if handler is None or view is None or not runs:
            return ""
        asker = Asker(
            self._outside.runtime,
            self._outside.clock,
            uid_of(pod),
            container["name"],
            view.address or self._outside.settings.host_ip,
        )
        return await asker.ask(handler, max(seconds, 1.0))
