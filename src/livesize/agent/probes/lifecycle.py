"""Runs the lifecycle hooks of containers: postStart and preStop."""

from __future__ import annotations

from livesize.agent.dependencies import AgentDependencies
from livesize.agent.probes.checks import Prober
from livesize.agent.probes.plan import parse_handler
from livesize.api.objects import Object, lookup, uid_of
from livesize.api.reasons import EventReason
from livesize.api.resources import containers_of, init_containers_of
from livesize.runtime.interface import ContainerPhase

_LEAST_GRACE_SECONDS = 2.0  # after a preStop hook that took all of it


class LifecycleHooks:
    def __init__(self, dependencies: AgentDependencies) -> None:
        self._dependencies = dependencies

    async def after_start(self, pod: Object, container: Object, seconds: float) -> str:
        """What went wrong; the container cannot go on without it."""
        problem = await self._run(pod, container, "postStart", seconds)
        if problem:
            self._dependencies.record_event(pod, EventReason.FAILED_POST_START, problem)
        return problem

    async def before_stop(self, pod: Object, name: str, grace_seconds: float) -> float:
        """Let the container prepare for its end; returns what is left of its grace. What fails
        here stops nothing."""
        everyone = [*containers_of(pod), *init_containers_of(pod)]
        container = next((one for one in everyone if one["name"] == name), None)
        if container is None or grace_seconds <= 0:
            return grace_seconds
        began = self._dependencies.clock.monotonic()
        problem = await self._run(pod, container, "preStop", grace_seconds)
        if problem:
            self._dependencies.record_event(pod, EventReason.FAILED_PRE_STOP, problem)
        spent = self._dependencies.clock.monotonic() - began
        return max(grace_seconds - spent, min(_LEAST_GRACE_SECONDS, grace_seconds))

    async def _run(self, pod: Object, container: Object, hook: str, seconds: float) -> str:
        given = lookup(container, "lifecycle", hook)
        handler = None if not given else parse_handler(given, container)
        view = self._dependencies.runtime.pod(uid_of(pod))
        started = () if view is None else view.containers
        runs = any(
            one.name == container["name"] and one.phase is ContainerPhase.RUNNING for one in started
        )
        if handler is None or view is None or not runs:
            return ""
        prober = Prober(
            self._dependencies.runtime,
            self._dependencies.clock,
            uid_of(pod),
            container["name"],
            view.address or self._dependencies.settings.host_ip,
        )
        return await prober.ask(handler, max(seconds, 1.0))
