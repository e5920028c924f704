"""Observes one pod: reads the machine, and gathers the facts from which the pod's turn is planned.

The observer decides nothing: ``plan`` is ``plan_pod`` of its facts. It never acts, but for probes:
each look at the machine also tells the pod's probes which containers run.
"""

from __future__ import annotations

import contextlib

import msgspec

from livesize.agent.allocation.ledger import Ledger
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.observation import LostGroups, PodSnapshot, all_run, observe_pod
from livesize.agent.pods.history import StartHistory
from livesize.agent.pods.plan import (
    GO_ON,
    ContainerFacts,
    CrashBackoff,
    PodFacts,
    PodPlan,
    Standing,
    plan_pod,
)
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.probes.plan import WELL, has_probes
from livesize.agent.probes.watch import PodProbes
from livesize.agent.report import Ending, reported_starts, reported_status
from livesize.agent.resize.restarts import is_due
from livesize.agent.settings import AgentSettings
from livesize.api.hashes import container_hash_without_resources
from livesize.api.objects import Object, uid_of
from livesize.api.resize_state import is_terminal
from livesize.api.resources import containers_of, init_containers_of, stays
from livesize.api.restart_policy import own_policy, own_rules, policy_of_pod
from livesize.runtime.interface import ContainerPhase, ContainerView, RuntimeCallError

GROUP_LOST = "another process removed its control group, so it has no limits any more"


class PodObserver:
    """``ending``: how the pod has ended, or why it was never admitted; None: neither."""

    def __init__(
        self,
        dependencies: AgentDependencies,
        ledger: Ledger,
        record: PodRecord,
        history: StartHistory,
        probes: PodProbes,
    ) -> None:
        self._dependencies = dependencies
        self._ledger = ledger
        self._record = record
        self.history = history
        self.probes = probes
        self._uid = uid_of(record.pod)
        self._lost_groups = LostGroups(dependencies.clock)
        self._crash_backoff = crash_backoff(dependencies.settings)
        self.ending: Ending | None = None

    def observe(self) -> PodSnapshot:
        snapshot = observe_pod(self._dependencies.runtime, self._uid, self._dependencies.vms)
        self.follow_probes(snapshot)  # before a new start counts as ready
        return snapshot

    async def read_again(self, snapshot: PodSnapshot) -> PodSnapshot:
        """libvirt does not report every change of a virtual machine. So the observer reads again
        what it read long ago, and finds what was changed by hand. An idle turn always finds it
        that old; a turn that an event woke seldom does, and so does not wait for the reading."""
        vm, vms = snapshot.vm, self._dependencies.vms
        if vm is None or vms is None:
            return snapshot
        if (
            self._dependencies.clock.now() - vm.read_at
            < self._dependencies.settings.recheck_seconds
        ):
            return snapshot
        with contextlib.suppress(RuntimeCallError):
            await vms.refresh_vm(self._uid)
        return self.observe()

    def plan(self, snapshot: PodSnapshot) -> PodPlan:
        """As nearly always nothing is to be started or stopped, and that is quickly seen."""
        return GO_ON if self._goes_on(snapshot) else plan_pod(self.facts(snapshot))

    def facts(self, snapshot: PodSnapshot) -> PodFacts:
        pod = self._record.pod
        return PodFacts(
            standing=self._standing(),
            restart_policy=policy_of_pod(pod),
            containers=self._container_facts(snapshot),
            has_group=snapshot.groups is not None,
            now=self._dependencies.clock.now(),
            backoff=self._crash_backoff,
            starting=self._starting_facts(snapshot),
        )

    def is_running(self, snapshot: PodSnapshot) -> bool:
        """Every container, and none has anything before it."""
        return not self.history.any_failed and all_run(self._record.pod, snapshot)

    def follow_probes(self, snapshot: PodSnapshot) -> None:
        pod, views = self._record.pod, snapshot.containers
        if self.probes.any:
            self.probes.forget_others({view.id for view in views.values() if _runs(view)})
        if self._record.is_leaving:
            return
        for container in (*containers_of(pod), *init_containers_of(pod)):
            if not has_probes(container):
                continue
            name = container["name"]
            self.probes.follow(container, views.get(name), reported_status(pod, name))

    def _goes_on(self, snapshot: PodSnapshot) -> bool:
        if self.probes.any or snapshot.groups is None or not self.is_running(snapshot):
            return False
        pod, views = self._record.pod, snapshot.containers
        if len(snapshot.groups.containers) != len(views):
            return False
        changed = [
            one for one in containers_of(pod) if self._must_start_anew(one, views.get(one["name"]))
        ]
        return not changed and self._standing() is Standing.ADMITTED

    def _standing(self) -> Standing:
        pod = self._record.pod
        if self._record.is_leaving:
            return Standing.LEAVING
        if is_terminal(pod):
            return Standing.ENDED
        if self._ledger.get(self._uid) is None:
            return Standing.ENDED if self.ending is not None else Standing.REJECTED
        return Standing.ADMITTED

    def _container_facts(self, snapshot: PodSnapshot) -> tuple[ContainerFacts, ...]:
        views = snapshot.containers
        return tuple(
            self._facts_of(container, views.get(container["name"]), snapshot, changes=True)
            for container in containers_of(self._record.pod)
        )

    def _starting_facts(self, snapshot: PodSnapshot) -> tuple[ContainerFacts, ...]:
        """An init container that has done its work is not asked to do it another way."""
        views = snapshot.containers
        return tuple(
            msgspec.structs.replace(
                self._facts_of(one, views.get(one["name"]), snapshot, changes=stays(one)),
                is_init=True,
                stays=stays(one),
            )
            for one in init_containers_of(self._record.pod)
        )

    def _facts_of(
        self, container: Object, view: ContainerView | None, snapshot: PodSnapshot, *, changes: bool
    ) -> ContainerFacts:
        facts = self.history.facts(
            container["name"],
            view,
            definition_changed=changes and self._must_start_anew(container, view),
            starts=reported_starts(self._record.pod, container["name"]),
        )
        if view is not None and self._lost_groups.is_lost(view, snapshot):
            return msgspec.structs.replace(facts, unhealthy=GROUP_LOST)
        if container.get("restartPolicy") is not None:
            facts = msgspec.structs.replace(
                facts, own_policy=own_policy(container), rules=own_rules(container)
            )
        health = self.probes.health(view)
        if health is WELL:
            return facts
        return msgspec.structs.replace(
            facts,
            has_started=health.started,
            unhealthy=health.unhealthy,
            stop_seconds=health.grace_seconds,
        )

    def _must_start_anew(self, container: Object, view: ContainerView | None) -> bool:
        """More than its size was changed; or a resize stopped it to start it again."""
        if view is None:
            return False
        if view.hash_without_resources != container_hash_without_resources(container):
            return True
        entry = self._ledger.get(self._uid)
        exited = view.phase is ContainerPhase.EXITED
        return exited and entry is not None and is_due(entry, view)

    def lost_group_seconds(self, snapshot: PodSnapshot) -> float:
        """Until the next container that has no group counts as lost; infinity: all have theirs."""
        return self._lost_groups.wait_seconds(snapshot)


def crash_backoff(settings: AgentSettings) -> CrashBackoff:
    return CrashBackoff(settings.crash_backoff_seconds, settings.crash_backoff_maximum_seconds)


def _runs(view: ContainerView) -> bool:
    return view.phase is ContainerPhase.RUNNING
