"""Reports one pod's status to the API server: builds it from what the machine says, posts the news.

Only the pod's worker calls. What a resize reports goes through the attempt (agent/resize).
"""

from __future__ import annotations

from livesize.agent.allocation.ledger import Ledger
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.observation import PodSnapshot, observe_again
from livesize.agent.pods.observer import PodObserver
from livesize.agent.pods.plan import is_initialized
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.pods.termination_messages import TerminationMessages
from livesize.agent.report import StatusFacts, WaitingReason, build_status, changed_status
from livesize.agent.resize.plan import PodObservation
from livesize.api.objects import Object, uid_of
from livesize.api.resize_state import is_terminal


class StatusReporter:
    def __init__(
        self,
        dependencies: AgentDependencies,
        ledger: Ledger,
        record: PodRecord,
        observer: PodObserver,
        messages: TerminationMessages,
    ) -> None:
        self._dependencies = dependencies
        self._ledger = ledger
        self._record = record
        self._observer = observer
        self._messages = messages
        self._uid = uid_of(record.pod)

    async def report(self, look: PodSnapshot | None = None) -> bool:
        """Tell what is news; False: nothing was."""
        if self._record.gone or is_terminal(self._record.pod):
            return False
        look = look or self._observer.observe()
        ended = self._observer.history.ended.values()
        await self._messages.collect(self._record.pod, (*look.containers.values(), *ended))
        changed = changed_status(self._record.pod, self.build(look))
        if changed:
            await self._record.patch_status(changed)
        return bool(changed)

    def build_with(self, groups: PodObservation | None) -> Object:
        """``groups``: what was read of them a moment ago."""
        if groups is None:
            return self.build()
        snapshot = observe_again(self._dependencies.runtime, self._uid, groups)
        self._observer.follow_probes(snapshot)
        return self.build(snapshot)

    def build(self, look: PodSnapshot | None = None) -> Object:
        snapshot = look or self._observer.observe()
        waiting, initialized = self._waiting(snapshot)
        return build_status(
            StatusFacts(
                pod=self._record.pod,
                snapshot=snapshot,
                allocation=self._ledger.get(self._uid),
                waiting=waiting,
                initialized=initialized,
                health={
                    name: self._observer.probes.health(view)
                    for name, view in snapshot.containers.items()
                },
                ended=self._observer.history.ended,
                messages=self._messages.messages,
                ending=self._observer.ending,
                cgroup_version=self._dependencies.runtime.cgroup_version,
                runtime_name=self._dependencies.machine.runtime_version.partition("://")[0],
                host_ip=self._dependencies.settings.host_ip,
                now=self._dependencies.clock.now(),
            )
        )

    def _waiting(self, snapshot: PodSnapshot) -> tuple[dict[str, WaitingReason], bool]:
        """Why containers do not run that should, and whether the init containers are through."""
        if self._observer.is_running(snapshot):
            return {}, True
        facts = self._observer.facts(snapshot)
        containers = (*facts.starting, *facts.containers)
        if self._observer.ending is not None:
            return {}, is_initialized(facts)  # nothing will start again
        return self._observer.history.waiting(containers, facts.restart_policy), is_initialized(
            facts
        )
